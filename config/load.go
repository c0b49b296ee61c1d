package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v3"
)

// Load reads files and folders into one configuration. A folder counts for all its *.yaml, *.yml and *.json that are not
// hidden. Together they are a disjoint union: what one gives, no other may give. Env gives the values of variables, like
// os.LookupEnv; SIDECAR_* fill the node. The error is an Errors with every mistake; what is allowed but hardly meant
// stands in Config.Warnings.
func Load(paths []string, env func(string) (string, bool)) (*Config, error) {
	d := newDecoder(env)
	var files []string
	for _, p := range paths {
		files = append(files, d.expand(p)...)
	}
	if len(files) == 0 && len(d.errors) == 0 {
		d.errors = append(d.errors, Error{File: strings.Join(paths, " "), Msg: "no file to read"})
	}
	g := newGrammar()
	for _, f := range files {
		data, err := readFile(f)
		if err != nil {
			d.errors, d.partial = append(d.errors, fileError(f, err)), true
			continue
		}
		d.document(g, &Source{Name: f, Rank: RankFile}, data)
	}
	return d.finish(RankFile)
}

// LoadBytes reads one document. What ranks below the local file may only say services, policies and defaults, and its
// references are looked at when it is merged.
func LoadBytes(name string, data []byte, rank Rank, env func(string) (string, bool)) (*Config, error) {
	d := newDecoder(env)
	d.document(newGrammar(), &Source{Name: name, Rank: rank}, data)
	return d.finish(rank)
}

func newDecoder(env func(string) (string, bool)) *decoder {
	return &decoder{config: Default(), env: env, places: map[string]Origin{}, layouts: layouts{}, filled: map[*yaml.Node]filling{}}
}

// document reads one document into the configuration.
func (d *decoder) document(g *grammar, source *Source, data []byte) {
	root, problem := parse(source, data)
	if problem != nil {
		d.errors, d.partial = append(d.errors, *problem), true
		return
	}
	d.source, d.defs = source, g.defs
	d.budget = len(data) + maxAliased
	if source.Rank < RankFile && root.Kind == yaml.MappingNode {
		d.onlyMesh(root)
	}
	g.document.read(d, root, d.config)
	d.placeListeners(root)
}

// onlyMesh refuses what is the process's own in a source that speaks to many.
func (d *decoder) onlyMesh(root *yaml.Node) {
	for i := 0; i+1 < len(root.Content); i += 2 {
		switch key := root.Content[i]; key.Value {
		case "node", "listen", "limits", "registries", "config_center", "inbound", "discovery", "telemetry", "bulkheads":
			d.errors = append(d.errors, d.origin(key).errorAt(key.Value, "belongs to the local file; this source gives services, policies, switches and defaults"))
		}
	}
}

// placeListeners keeps where the process's own addresses are written.
func (d *decoder) placeListeners(root *yaml.Node) {
	listen := at(root, "listen")
	if listen == nil {
		return
	}
	if d.config.listenFrom == nil {
		d.config.listenFrom = map[string]Origin{}
	}
	for _, name := range []string{"outbound", "inbound", "admin", "health", "metrics"} {
		if n := at(listen, name); n != nil {
			d.config.listenFrom[name] = d.origin(n)
		}
	}
}

// finish looks at the whole, once all documents are read.
func (d *decoder) finish(rank Rank) (*Config, error) {
	c := d.config
	c.claims = d.claims
	if rank >= RankFile {
		nodeFromEnv(&c.Node, d.env)
		d.nameInbound()
		if !d.partial {
			d.errors = append(d.errors, c.check()...)
		}
	}
	if err := d.errors.asError(); err != nil {
		return nil, err
	}
	d.warnings = append(d.warnings, c.doubts()...)
	c.Warnings = d.warnings.sorted()
	return c, nil
}

// nameInbound gives inbound services without a name the name of the node.
func (d *decoder) nameInbound() {
	for _, in := range d.config.Inbound {
		if in.Service == "" {
			in.Service = d.config.Node.Service
		}
		if in.Service == "" {
			d.errors = append(d.errors, in.From.errorAt("inbound", "service is missing, and there is no node.service"))
		}
	}
	for i := range d.config.claims {
		if c := &d.config.claims[i]; c.kind == claimInbound && c.name == "" {
			c.name = d.config.Node.Service
		}
	}
}

// expand lists the files that a path stands for.
func (d *decoder) expand(path string) []string {
	entries, err := os.ReadDir(path)
	if err != nil {
		return []string{path} // a file, or an error that reading it will tell
	}
	var files []string
	for _, e := range entries {
		full := filepath.Join(path, e.Name())
		if strings.HasPrefix(e.Name(), ".") || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
			continue
		}
		if info, err := os.Stat(full); err != nil || !info.IsDir() {
			files = append(files, full)
		}
	}
	if len(files) == 0 {
		d.errors = append(d.errors, Error{File: path, Msg: "the folder holds no *.yaml, *.yml or *.json"})
	}
	return files
}

// readFile reads a file up to the bound of a document, and one byte more to tell that it is too long. A pipe that nobody writes
// to is empty: to open it would otherwise wait for somebody.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxDocument+1))
}

func fileError(path string, err error) Error {
	if p := (*fs.PathError)(nil); errors.As(err, &p) {
		err = p.Err
	}
	return Error{File: path, Msg: fmt.Sprintf("not readable: %v", err)}
}
