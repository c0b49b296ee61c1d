package disk

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sidecar-mesh/sidecar/config"
)

// A file is one line that says what it is, and JSON: "sidecar-endpoints 1 <SHA-256 of what follows>\n{…}".
const (
	magic   = "sidecar-endpoints"
	version = 1
	suffix  = ".endpoints"
)

// Bounds of a file that is believed.
const (
	maxEndpoints = 200_000
	maxLabels    = 64
	maxText      = 1024
	maxWeight    = 1_000_000
)

// body is what a file says.
type body struct {
	Registry  string     `json:"registry"`
	Service   string     `json:"service"`
	Scope     string     `json:"scope"`
	Saved     time.Time  `json:"saved"`
	Endpoints []endpoint `json:"endpoints"`
}

type endpoint struct {
	Address string            `json:"address"`
	Weight  int               `json:"weight"`
	Group   string            `json:"group,omitempty"`
	Zone    string            `json:"zone,omitempty"`
	Region  string            `json:"region,omitempty"`
	Version string            `json:"version,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
}

func (c *content) named() string { return "endpoints of " + c.service }
func (c *content) empty() bool   { return len(c.list) == 0 }

func (c *content) encode(now time.Time) []byte {
	b := body{Registry: c.registry, Service: c.service, Scope: c.scope, Saved: now.UTC(), Endpoints: make([]endpoint, 0, len(c.list))}
	for _, e := range c.list {
		b.Endpoints = append(b.Endpoints, endpoint{e.Address, e.Weight, e.Group, e.Zone, e.Region, e.Version, e.Labels})
	}
	return sign(magic, plainJSON(b))
}

// plainJSON writes data that cannot fail to be written.
func plainJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("disk: plain data cannot be written: " + err.Error())
	}
	return text
}

// sign puts the first line before a body.
func sign(magic string, text []byte) []byte {
	sum := sha256.Sum256(text)
	return append(fmt.Appendf(nil, "%s %d %s\n", magic, version, hex.EncodeToString(sum[:])), text...)
}

// open takes the first line off, and returns the body that it vouches for.
func open(magic, what string, data []byte) ([]byte, error) {
	head, text, ok := bytes.Cut(data, []byte("\n"))
	words := strings.Split(string(head[:min(len(head), 200)]), " ")
	switch {
	case !ok || len(words) != 3 || words[0] != magic:
		return nil, errors.New("not " + what + " of ours")
	case words[1] != strconv.Itoa(version):
		return nil, fmt.Errorf("of version %q, and this is %d", words[1], version)
	}
	sum := sha256.Sum256(text)
	if words[2] != hex.EncodeToString(sum[:]) {
		return nil, errors.New("damaged: the checksum is of another content")
	}
	return text, nil
}

// decode reads a file that is to be of want. What it returns keeps the bounds that a registry's answer has.
func decode(data []byte, want *content) ([]*config.Endpoint, time.Time, error) {
	none := time.Time{}
	text, err := open(magic, "a list of endpoints", data)
	if err != nil {
		return nil, none, err
	}
	var b body
	if err := json.Unmarshal(text, &b); err != nil {
		return nil, none, fmt.Errorf("damaged: %w", err)
	}
	if b.Registry != want.registry || b.Service != want.service || b.Scope != want.scope {
		return nil, none, fmt.Errorf("foreign: it is of service %q of registry %q", b.Service, b.Registry)
	}
	if len(b.Endpoints) > maxEndpoints {
		return nil, none, fmt.Errorf("more than %d endpoints", maxEndpoints)
	}
	list := make([]*config.Endpoint, 0, len(b.Endpoints))
	for i := range b.Endpoints {
		e := &b.Endpoints[i]
		if problem := e.problem(); problem != "" {
			return nil, none, fmt.Errorf("endpoint %d: %s", i, problem)
		}
		list = append(list, &config.Endpoint{
			Address: e.Address, Weight: e.Weight, Group: e.Group, Zone: e.Zone, Region: e.Region, Version: e.Version, Labels: e.Labels,
		})
	}
	return list, b.Saved, nil
}

func (e *endpoint) problem() string {
	switch {
	case e.Address == "":
		return "no address"
	case e.Weight < 0 || e.Weight > maxWeight:
		return "a weight out of bounds"
	case len(e.Labels) > maxLabels:
		return "too many labels"
	}
	for _, s := range []string{e.Address, e.Group, e.Zone, e.Region, e.Version} {
		if !plain(s) {
			return "a text that is too long or has control characters"
		}
	}
	for k, v := range e.Labels {
		if k == "" || !plain(k) || !plain(v) {
			return "a label that is too long or has control characters"
		}
	}
	return ""
}

func plain(s string) bool {
	return len(s) <= maxText && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// content is what a file is to say of a service. A registry is told apart by where it is, not by its name alone: two
// processes with one folder may each have a registry "main".
func (s *Store) content(r *config.Registry, service string, list []*config.Endpoint) content {
	return content{registry: r.Name + " " + print(r), service: service, scope: s.o.Scope, list: list}
}

// path is where the list of a service is. Names have no @ and no slash; one that is too long for a file is cut.
func (s *Store) path(c *content) string {
	return filepath.Join(s.o.Dir, fileName(c.service, c.registry, c.scope)+suffix)
}

// fileName is the name of a file of something that a registry has, without its ending.
func fileName(name, registry, scope string) string {
	registry, mark, _ := strings.Cut(registry, " ")
	name += "@" + registry
	if escaped := strings.Map(fileRune, name); escaped != name || len(name) > maxName || name[0] == '.' {
		escaped = strings.TrimLeft(escaped, ".") // hidden files are unfinished ones
		sum := sha256.Sum256([]byte(name))
		name = escaped[:min(len(escaped), maxName-17)] + "-" + hex.EncodeToString(sum[:8])
	}
	sum := sha256.Sum256([]byte(mark + "\n" + scope))
	return name + "-" + hex.EncodeToString(sum[:4])
}

// maxName leaves room for what is added to a name, of the 255 bytes that a file's name may have.
const maxName = 200

func fileRune(r rune) rune {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-', r == '@':
		return r
	}
	return '_'
}

// print is what tells one registry from another of the same name.
func print(r *config.Registry) string {
	c := *r
	c.From = config.Origin{}
	sum := sha256.Sum256(plainJSON(c))
	return hex.EncodeToString(sum[:8])
}
