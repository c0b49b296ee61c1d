package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ConfigCenter says where the documents are that the files do not hold. Exactly one member is set.
type ConfigCenter struct {
	Consul *ConsulCenter
}

// ConsulCenter is a prefix of Consul's key-value store, whose keys are documents.
type ConsulCenter struct {
	Registry string // whose Consul it is
	Prefix   string // with its final slash
}

func centerValue() value[ConfigCenter] {
	prefix := checked(line(), keyPrefixProblem)
	consul := object(
		must(in("registry", "whose Consul it is", func(c *ConsulCenter) *string { return &c.Registry }, claimed(claimConsul, line()))),
		in("prefix", "of the keys (sidecar/)", func(c *ConsulCenter) *string { return &c.Prefix }, prefix),
	)
	read := consul.read
	consul.read = func(d *decoder, n *yaml.Node, out *ConsulCenter) bool {
		out.Prefix = "sidecar/"
		return read(d, n, out)
	}
	return choice(ref("consul", "keys of Consul", func(c *ConfigCenter) **ConsulCenter { return &c.Consul }, consul))
}

func keyPrefixProblem(s string) string {
	switch {
	case strings.HasPrefix(s, "/") || !strings.HasSuffix(s, "/"):
		return "a prefix ends in / and does not begin with it, like sidecar/"
	case strings.Contains(s, "//"):
		return "a prefix has no empty part"
	}
	return ""
}

// Document is one document of a config centre.
type Document struct {
	Name     string // below the prefix: services/NAME, policies/NAME, rules/NAME, switches/NAME, grey/NAME, groups/NAME, published/NAME, defaults or update_gate
	Place    string // as a person would name it
	Revision uint64
	Data     []byte
}

// source is where the values of the document come from.
func (d *Document) source() *Source {
	rank := RankCenter
	if strings.HasPrefix(d.Name, publishedPrefix) {
		rank = RankProvider
	}
	return &Source{Name: fmt.Sprintf("%s@%d", d.Place, d.Revision), Rank: rank}
}

// publishedPrefix begins the names of documents that providers write.
const publishedPrefix = "published/"

// LoadDocument reads one document of a config centre: the same text that stands below that name in a file. References are
// looked at when it is merged.
func LoadDocument(doc Document, env func(string) (string, bool)) (*Config, error) {
	d := newDecoder(env)
	source := doc.source()
	root, problem := parse(source, doc.Data)
	if problem != nil {
		return nil, Errors{*problem}
	}
	if service, ok := strings.CutPrefix(doc.Name, publishedPrefix); ok {
		return loadPublished(d, source, service, root, len(doc.Data))
	}
	whole, err := wrap(doc.Name, root)
	if err != nil {
		return nil, Errors{{File: source.Name, Line: 1, Col: 1, Msg: err.Error()}}
	}
	d.source, d.budget = source, len(doc.Data)+maxAliased
	g := newGrammar()
	d.defs = g.defs
	g.document.read(d, whole, d.config)
	return d.finish(RankCenter)
}

// loadPublished reads what a provider publishes.
func loadPublished(d *decoder, source *Source, service string, root *yaml.Node, size int) (*Config, error) {
	if problem := nameProblem(service); problem != "" {
		return nil, Errors{{File: source.Name, Line: 1, Col: 1, Msg: problem}}
	}
	var p Published
	d.source, d.budget = source, size+maxAliased
	publishedValue().read(d, root, &p)
	d.config.Published = map[string]*Published{service: &p}
	return d.finish(RankCenter)
}

// wrap puts a document where its name says that it belongs.
func wrap(name string, root *yaml.Node) (*yaml.Node, error) {
	switch name {
	case "defaults":
		return under(name, root), nil
	case "update_gate":
		return under("discovery", under(name, root)), nil
	}
	kind, rest, _ := strings.Cut(name, "/")
	switch kind {
	case "services", "policies", "rules", "switches", "grey", "groups":
	default:
		return nil, fmt.Errorf("documents are defaults, update_gate and services/NAME, policies/NAME, rules/NAME, switches/NAME, grey/NAME, groups/NAME, published/NAME, not %q", name)
	}
	switch problem := nameProblem(rest); {
	case rest == "" || strings.Contains(rest, "/"):
		return nil, fmt.Errorf("a document is named %s/NAME, not %q", kind, name)
	case problem != "":
		return nil, errors.New(problem)
	case kind != "groups":
		return under(kind, under(rest, root)), nil
	case root.Kind == yaml.SequenceNode:
		return under(kind, root), nil
	}
	return under(kind, &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Line: 1, Column: 1, Content: []*yaml.Node{root}}), nil
}

// under is a map with one key.
func under(key string, n *yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: 1, Column: 1, Content: []*yaml.Node{
		{Kind: yaml.ScalarNode, Tag: "!!str", Value: key, Line: 1, Column: 1}, n,
	}}
}

// Center keeps the documents of a config centre, each on its own: a bad one counts as it was when it was last in force,
// and says so; the others are not touched by it. It is owned by one goroutine.
type Center struct {
	env  func(string) (string, bool)
	docs map[string]*centerDoc
}

// centerDoc is what is known of one document.
type centerDoc struct {
	Document
	newest   *Config  // nil: not to be read
	good     *Config  // as it was in force last; nil: never
	goodText Document // of which good was read
	restored bool     // as an earlier run had it
	chosen   *Config  // what the last Merge took
	gone     bool     // deleted, and still in force until Accept
	errs     Errors   // why the newest is not the one that counts
}

// NewCenter makes a center without documents.
func NewCenter(env func(string) (string, bool)) *Center {
	return &Center{env: env, docs: map[string]*centerDoc{}}
}

// Set takes the documents as they are now, all of them, and reports whether anything is to be put in force.
func (c *Center) Set(docs []Document) bool {
	changed := false
	now := make(map[string]bool, len(docs))
	for _, doc := range docs {
		now[doc.Name] = true
		d := c.docs[doc.Name]
		if d != nil && !d.gone && d.Revision == doc.Revision && d.Place == doc.Place && (!d.restored || bytes.Equal(d.Data, doc.Data)) {
			d.restored = false
			continue
		}
		if d == nil {
			d = &centerDoc{}
			c.docs[doc.Name] = d
		}
		d.Document, d.gone, d.restored, changed = doc, false, false, true
		d.newest, d.errs = nil, nil
		cfg, err := LoadDocument(doc, c.env)
		if err != nil && !errors.As(err, &d.errs) {
			d.errs = Errors{{File: doc.source().Name, Msg: err.Error()}}
		}
		d.newest = cfg
	}
	for name, d := range c.docs {
		switch {
		case now[name] || d.gone:
		case strings.HasPrefix(name, publishedPrefix) && d.good != nil && !d.restored:
			// Callers rely on it, and whoever deleted it cannot know all of them (S-13).
			d.newest, d.errs = nil, Errors{{File: d.source().Name, Msg: "it was deleted; what callers inherit of it stays until they are restarted"}}
		default:
			d.newest, d.errs, d.gone, changed = nil, nil, true, true
		}
	}
	return changed
}

// Merge puts the documents below base. A document that refers to nothing, or takes what another one has, is left out as if
// it could not be read. The error is one of base itself.
func (c *Center) Merge(base *Config, layers ...Layer) (*Config, error) {
	for _, d := range c.docs {
		if d.newest != nil {
			d.errs = nil
		}
		d.chosen = d.newest
		if d.newest == nil && !d.gone {
			d.chosen = d.good
		}
	}
	for {
		out, err := Merge(base, append(c.layers(), layers...)...)
		if err == nil || !c.demote(err) {
			return out, err
		}
	}
}

// layers are the chosen documents in the order of their names.
func (c *Center) layers() []Layer {
	var list []Layer
	for _, name := range slices.Sorted(maps.Keys(c.docs)) {
		if d := c.docs[name]; d.chosen != nil {
			list = append(list, Layer{Rank: RankCenter, Config: d.chosen})
		}
	}
	return list
}

// Refuse takes in why the result of Merge could not be put in force, and reports whether a document was to blame: then
// merging again leaves it out. Sources of mistakes are known by their names.
func (c *Center) Refuse(err error) bool {
	if !c.demote(err) {
		return false
	}
	for _, d := range c.docs {
		if d.errs != nil && d.chosen != d.newest {
			d.newest = nil
		}
	}
	return true
}

// demote takes, of each document that err names, what was in force before; where that is to blame as well, nothing.
func (c *Center) demote(err error) bool {
	var errs Errors
	if !errors.As(err, &errs) {
		return false
	}
	done := false
	for _, d := range c.docs {
		if d.chosen == nil {
			continue
		}
		place := d.Place + "@"
		mine := slices.DeleteFunc(slices.Clone(errs), func(e Error) bool { return !strings.HasPrefix(e.File, place) })
		if len(mine) == 0 {
			continue
		}
		if d.chosen == d.newest {
			d.errs = mine
		}
		if d.chosen != d.good {
			d.chosen = d.good
		} else {
			d.chosen = nil
		}
		done = true
	}
	return done
}

// Accept notes that the result of the last Merge is in force.
func (c *Center) Accept() {
	for name, d := range c.docs {
		if d.gone {
			delete(c.docs, name)
			continue
		}
		if d.chosen != nil && d.chosen != d.good {
			d.goodText = d.Document // only the newest text can be new
		}
		d.good = d.chosen
	}
}

// DocumentState says how one document is doing.
type DocumentState struct {
	Name     string
	Revision uint64
	InForce  bool   // as it was written last
	Kept     bool   // an earlier version of it is in force instead
	Errors   Errors // why
}

// States lists the documents by name.
func (c *Center) States() []DocumentState {
	list := make([]DocumentState, 0, len(c.docs))
	for _, d := range c.docs {
		s := DocumentState{Name: d.Name, Revision: d.Revision, Errors: d.errs}
		s.InForce = d.good != nil && d.good == d.newest
		s.Kept = d.good != nil && d.good != d.newest
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b DocumentState) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
