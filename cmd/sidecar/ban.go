package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery/consul"
)

// banCommand writes a rule like any other: what it says can be read, changed and deleted as such.
func banCommand() *cobra.Command {
	var s store
	var lasts time.Duration
	var lift bool
	c := &cobra.Command{
		Use:   "ban SERVICE CALLER",
		Short: "Refuse a caller of a service for a while",
		Long: `Refuse a caller of a service for a while: a rule that ends by itself is added to the document rules/SERVICE of the config centre, where
the sidecars of the service and of its callers read it. CALLER is an address, a network (10.20.0.0/16, 10.20.*), or the name of an
application, which only its own sidecar knows it by.`,
		Example: "  sidecar ban shop 10.20.153.10 --for 10m -c sidecar.yaml\n  sidecar ban shop 10.20.153.10 --lift --consul 127.0.0.1:8500",
		Args:    takes("SERVICE", "CALLER"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := config.CheckCaller(args[1]); err != nil {
				return usageOf(c, err)
			}
			if lasts < time.Second {
				return usageOf(c, errors.New("--for is at least 1s"))
			}
			if lift && c.Flags().Changed("for") {
				return usageOf(c, errors.New("--lift ends the ban at once: --for has no meaning beside it"))
			}
			return s.with(c, func(ctx context.Context, kv *consul.KV, cfg *config.Config) error {
				if cfg != nil && ruledByFile(cfg, args[0]) {
					fmt.Fprintf(c.ErrOrStderr(), "warning: the file has rules for %s, which win over this one wherever that file is in force\n", args[0])
				}
				until := time.Now().Add(lasts)
				err := changeRules(ctx, kv, args[0], func(document []byte) ([]byte, error) {
					if !lift {
						return config.Ban(document, args[1], until, time.Now())
					}
					left, found, err := config.Unban(document, args[1])
					if err == nil && !found {
						err = fmt.Errorf("%s is not banned from %s", args[1], args[0])
					}
					return left, err
				}, func(name string, data []byte, revision *uint64) error {
					return putDocument(ctx, c.OutOrStdout(), kv, cfg, name, data, revision)
				})
				switch {
				case err != nil:
				case lift:
					fmt.Fprintf(c.OutOrStdout(), "%s is banned from %s no longer\n", args[1], args[0])
				default:
					fmt.Fprintf(c.OutOrStdout(), "%s is banned from %s until %s\n", args[1], args[0], until.UTC().Format(time.RFC3339))
				}
				return err
			})
		},
	}
	c.Flags().DurationVar(&lasts, "for", 10*time.Minute, "how long; a ban of the same caller is replaced")
	c.Flags().BoolVar(&lift, "lift", false, "end the ban")
	return s.flags(c)
}

// ruledByFile reports whether a configuration has rules for a service, against which those of the config centre do not count (S-127).
func ruledByFile(cfg *config.Config, service string) bool {
	for _, r := range cfg.RuleSets() {
		if r.Service == service && r.Local() {
			return true
		}
	}
	return false
}

// changeRules changes the rules of a service, unless somebody else did meanwhile.
func changeRules(ctx context.Context, kv *consul.KV, service string, change func([]byte) ([]byte, error), put func(string, []byte, *uint64) error) error {
	name := "rules/" + service
	doc, err := kv.Get(ctx, name)
	if err != nil {
		return err
	}
	var data []byte
	var revision uint64
	if doc != nil {
		data, revision = doc.Data, doc.Revision
	}
	if data, err = change(data); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return put(name, data, &revision)
}
