package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery/consul"
)

// store is the command line's way to the documents of a config centre.
type store struct {
	paths                      []string
	address, prefix, tokenFile string
	cas                        int64
	o                          output
}

func configCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "Read and write the documents of the config centre",
		Long: `Read and write the documents of the config centre, which are keys of Consul: defaults, update_gate, and services/NAME, policies/NAME,
rules/NAME, switches/NAME, grey/NAME, groups/NAME, published/NAME. Where they are is taken from config_center of a configuration file (-c), or from
--consul and --prefix. What is wrong is not written.`,
		Example: "  sidecar config put services/catalog catalog.yaml -c sidecar.yaml\n  sidecar config list --consul 127.0.0.1:8500",
		Args:    takes(),
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(configPut(), configGet(), configList(), configWatch(), configDelete(), configPublish(), configServe())
	return c
}

// flags adds what all the commands have.
func (s *store) flags(c *cobra.Command) *cobra.Command {
	configFlag(c, &s.paths)
	c.Flags().StringVar(&s.address, "consul", "", "`address` of Consul, instead of -c")
	c.Flags().StringVar(&s.prefix, "prefix", "sidecar/", "`prefix` of the keys, with --consul")
	c.Flags().StringVar(&s.tokenFile, "token-file", "", "`file` with the access token, with --consul")
	return c
}

func (s *store) casFlag(c *cobra.Command) *cobra.Command {
	c.Flags().Int64Var(&s.cas, "cas", -1, "only if the `revision` is still this one; 0: only if there is none yet")
	return c
}

// revision is that of --cas; nil: none is wanted.
func (s *store) revision(c *cobra.Command) (*uint64, error) {
	if !c.Flags().Changed("cas") {
		return nil, nil
	}
	if s.cas < 0 {
		return nil, usageOf(c, errors.New("--cas is a revision, as `config get` and `config list` show it"))
	}
	r := uint64(s.cas)
	return &r, nil
}

// open finds the store, and the configuration that the documents go with.
func (s *store) open(c *cobra.Command) (*consul.KV, *config.Config, error) {
	if (len(s.paths) > 0) == (s.address != "") {
		return nil, nil, usageOf(c, errors.New("either -c FILE or --consul ADDRESS is needed"))
	}
	if s.address != "" {
		text := fmt.Sprintf("registries: {consul: {consul: {address: %q, stale: false}}}\nconfig_center: {consul: {registry: consul, prefix: %q}}", s.address, s.prefix)
		cfg, err := config.LoadBytes("command line", []byte(text), config.RankFile, os.LookupEnv)
		if err != nil {
			return nil, nil, usageOf(c, err)
		}
		reg := cfg.Registries["consul"]
		reg.Consul.TokenFile = s.tokenFile
		kv, err := consul.NewKV(reg, s.prefix)
		return kv, nil, err
	}
	cfg, err := load(s.paths)
	if err != nil {
		return nil, nil, err
	}
	if cfg.Center == nil || cfg.Center.Consul == nil {
		return nil, nil, fmt.Errorf("%s has no config_center", strings.Join(s.paths, " "))
	}
	kv, err := consul.NewKV(cfg.Registries[cfg.Center.Consul.Registry], cfg.Center.Consul.Prefix)
	return kv, cfg, err
}

// with opens the store for one command that ends on a signal.
func (s *store) with(c *cobra.Command, do func(ctx context.Context, kv *consul.KV, cfg *config.Config) error) error {
	kv, cfg, err := s.open(c)
	if err != nil {
		return err
	}
	defer kv.Close()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return do(ctx, kv, cfg)
}

func configPut() *cobra.Command {
	var s store
	var confirm bool
	c := &cobra.Command{
		Use:   "put NAME [FILE]",
		Short: "Check a document and write it",
		Long: `Check a document, alone and with what is there already, and write it. FILE is read from standard input when it is - or
left out. With -c it is also checked against that file. --cas keeps two writers from overwriting each other. A document that
turns on a switch of level 3 needs --confirm, and a reason in the document.`,
		Example: "  sidecar config put services/catalog catalog.yaml --consul 127.0.0.1:8500\n" +
			"  echo '{service: \"*\", from: bj, to: [sh]}' | sidecar config put groups/bj -c sidecar.yaml --cas 0",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				return nil
			}
			return takes("NAME", "FILE")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			revision, err := s.revision(c)
			if err != nil {
				return err
			}
			data, err := readDocument(c.InOrStdin(), args[1:])
			if err != nil {
				return err
			}
			return s.with(c, func(ctx context.Context, kv *consul.KV, cfg *config.Config) error {
				if err := mayPut(cfg, args[0]); err != nil {
					return err
				}
				if err := confirmed(cfg, args[0], data, confirm); err != nil {
					return err
				}
				if s := shadow(cfg, args[0], data); s != "" {
					fmt.Fprintf(c.ErrOrStderr(), "warning: %s\n", s)
				}
				return putDocument(ctx, c.OutOrStdout(), kv, cfg, args[0], data, revision)
			})
		},
	}
	c.Flags().BoolVar(&confirm, "confirm", false, "yes, also a switch of level 3: its impact is large")
	return s.casFlag(s.flags(c))
}

// readDocument reads the file that is named, or what is piped in.
func readDocument(stdin io.Reader, args []string) ([]byte, error) {
	if len(args) == 0 || args[0] == "-" {
		return io.ReadAll(io.LimitReader(stdin, maxDocument))
	}
	return os.ReadFile(args[0])
}

// maxDocument is what Consul takes as one value.
const maxDocument = 512 << 10

func putDocument(ctx context.Context, out io.Writer, kv *consul.KV, cfg *config.Config, name string, data []byte, revision *uint64) error {
	if len(data) >= maxDocument {
		return fmt.Errorf("%s has %d bytes; Consul takes less than %d", name, len(data), maxDocument)
	}
	docs, err := kv.List(ctx)
	if err != nil {
		return err
	}
	if err := checkDocument(cfg, docs, name, data); err != nil {
		return err
	}
	if err := kv.Put(ctx, name, data, revision); err != nil {
		return changed(ctx, kv, name, err)
	}
	if doc, err := kv.Get(ctx, name); err == nil && doc != nil {
		fmt.Fprintf(out, "%s: written, revision %d\n", name, doc.Revision)
	}
	return nil
}

// changed says of a write that came too late which revision there is.
func changed(ctx context.Context, kv *consul.KV, name string, err error) error {
	if !errors.Is(err, consul.ErrChanged) {
		return err
	}
	switch doc, failed := kv.Get(ctx, name); {
	case failed != nil:
		return fmt.Errorf("%s: %w", name, err)
	case doc == nil:
		return fmt.Errorf("%s: %w: it is gone", name, err)
	default:
		return fmt.Errorf("%s: %w: it has revision %d", name, err, doc.Revision)
	}
}

// checkDocument says what is wrong with a document, alone and among the others. cfg may be nil.
func checkDocument(cfg *config.Config, docs []config.Document, name string, data []byte) error {
	all := []config.Document{{Name: name, Place: name, Data: data}}
	for _, d := range docs {
		if d.Name != name {
			all = append(all, d)
		}
	}
	base := cfg
	if base == nil {
		base = config.Default()
	}
	keeper := config.NewCenter(os.LookupEnv)
	keeper.Set(all)
	if _, err := keeper.Merge(base); err != nil {
		return err
	}
	keeper.Accept()
	for _, d := range keeper.States() {
		if d.Name != name || d.InForce {
			continue
		}
		problems := d.Errors
		if cfg == nil {
			problems = withoutReferences(problems)
		}
		if len(problems) > 0 {
			return problems
		}
	}
	return nil
}

// withoutReferences leaves out what only the whole configuration can tell: registries and services that the files name.
func withoutReferences(errs config.Errors) config.Errors {
	var list config.Errors
	for _, e := range errs {
		if !strings.HasPrefix(e.Msg, "there is no registry ") && !strings.HasPrefix(e.Msg, "there is no service ") {
			list = append(list, e)
		}
	}
	return list
}

func configGet() *cobra.Command {
	var s store
	c := &cobra.Command{
		Use:     "get NAME",
		Short:   "Print a document",
		Example: "  sidecar config get services/catalog --consul 127.0.0.1:8500",
		Args:    takes("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			return s.with(c, func(ctx context.Context, kv *consul.KV, _ *config.Config) error {
				doc, err := kv.Get(ctx, args[0])
				if err != nil {
					return err
				}
				if doc == nil {
					return fmt.Errorf("there is no document %s", args[0])
				}
				return s.o.write(c.OutOrStdout(), shownDocument{doc.Name, doc.Revision, string(doc.Data)}, func() string {
					return strings.TrimSuffix(string(doc.Data), "\n") + "\n"
				})
			})
		},
	}
	outputFlag(c, &s.o)
	return s.flags(c)
}

// shownDocument is a document as JSON.
type shownDocument struct {
	Name     string `json:"name"`
	Revision uint64 `json:"revision"`
	Text     string `json:"text"`
}

func configList() *cobra.Command {
	var s store
	c := &cobra.Command{
		Use:     "list",
		Short:   "List the documents with their revisions",
		Example: "  sidecar config list -c sidecar.yaml\n  sidecar config list --consul 127.0.0.1:8500 -o json",
		Args:    takes(),
		RunE: func(c *cobra.Command, _ []string) error {
			return s.with(c, func(ctx context.Context, kv *consul.KV, _ *config.Config) error {
				docs, err := kv.List(ctx)
				if err != nil {
					return err
				}
				return s.show(c, docs)
			})
		},
	}
	outputFlag(c, &s.o)
	return s.flags(c)
}

// show prints documents.
func (s *store) show(c *cobra.Command, docs []config.Document) error {
	list := make([]shownDocument, len(docs))
	for i, d := range docs {
		list[i] = shownDocument{d.Name, d.Revision, string(d.Data)}
	}
	return s.o.write(c.OutOrStdout(), list, func() string {
		var b strings.Builder
		for _, d := range docs {
			fmt.Fprintf(&b, "%s\trevision %d\t%d bytes\n", d.Name, d.Revision, len(d.Data))
		}
		return b.String()
	})
}

func configWatch() *cobra.Command {
	var s store
	c := &cobra.Command{
		Use:     "watch",
		Short:   "Print what changes, until interrupted",
		Example: "  sidecar config watch --consul 127.0.0.1:8500",
		Args:    takes(),
		RunE: func(c *cobra.Command, _ []string) error {
			return s.with(c, func(ctx context.Context, kv *consul.KV, _ *config.Config) error {
				before := map[string]uint64{}
				kv.Watch(ctx, func(docs []config.Document, _ bool) { before = printChanges(c.OutOrStdout(), before, docs) },
					func(err error) { fmt.Fprintln(c.ErrOrStderr(), "warning: "+err.Error()) })
				return nil
			})
		},
	}
	return s.flags(c)
}

// printChanges tells how documents differ from what was there, and returns what is there now.
func printChanges(out io.Writer, before map[string]uint64, docs []config.Document) map[string]uint64 {
	at := time.Now().Format(time.RFC3339)
	now := make(map[string]uint64, len(docs))
	for _, d := range docs {
		now[d.Name] = d.Revision
		if before[d.Name] != d.Revision {
			fmt.Fprintf(out, "%s %s revision %d, %d bytes\n", at, d.Name, d.Revision, len(d.Data))
		}
	}
	for name := range before {
		if _, still := now[name]; !still {
			fmt.Fprintf(out, "%s %s deleted\n", at, name)
		}
	}
	return now
}

func configDelete() *cobra.Command {
	var s store
	c := &cobra.Command{
		Use:     "delete NAME",
		Short:   "Delete a document",
		Example: "  sidecar config delete groups/bj -c sidecar.yaml",
		Args:    takes("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			revision, err := s.revision(c)
			if err != nil {
				return err
			}
			return s.with(c, func(ctx context.Context, kv *consul.KV, _ *config.Config) error {
				doc, err := kv.Get(ctx, args[0])
				switch {
				case err != nil:
					return err
				case doc == nil:
					return fmt.Errorf("there is no document %s", args[0])
				}
				if err := kv.Delete(ctx, args[0], revision); err != nil {
					return err
				}
				fmt.Fprintf(c.OutOrStdout(), "%s: deleted\n", args[0])
				return nil
			})
		},
	}
	return s.casFlag(s.flags(c))
}
