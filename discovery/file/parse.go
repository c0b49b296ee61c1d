package file

import (
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sidecar-mesh/sidecar/config"
)

// maxWeight is the largest weight; 0 is "no traffic".
const maxWeight = 1_000_000

// parser reads one file and gathers its mistakes.
type parser struct {
	file     string
	source   *config.Source
	services map[string][]*config.Endpoint
	lines    map[string]int
	count    int
	errs     []error
}

// parse reads a document: a map of services, or a list of file_sd groups. All mistakes come back at once, as file:line:col.
//
// Endpoints say which file they come from, but not the line: so a line that is inserted changes no other endpoint.
func parse(file string, data []byte) (*parser, error) {
	p := &parser{
		file:     file,
		source:   &config.Source{Name: file, Rank: config.RankCenter},
		services: make(map[string][]*config.Endpoint),
		lines:    make(map[string]int),
	}
	var doc, more yaml.Node
	dec := yaml.NewDecoder(strings.NewReader(string(data)))
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF) || err == nil && len(doc.Content) == 0:
		return nil, fmt.Errorf("%s:1:1: the document is empty; to say that there is nothing, write {}", file)
	case err != nil:
		return nil, syntax(file, err)
	}
	switch err := dec.Decode(&more); {
	case err == nil:
		p.fail(&more, "a second document; one file holds one")
	case !errors.Is(err, io.EOF):
		return nil, syntax(file, err)
	}
	switch root := doc.Content[0]; root.Kind {
	case yaml.MappingNode:
		p.mapping(root, p.service)
	case yaml.SequenceNode:
		for _, g := range root.Content {
			p.group(g)
		}
	default:
		p.fail(root, "expected services with their endpoints, or a list of {targets, labels}")
	}
	if len(p.errs) > 0 {
		return nil, errors.Join(p.errs...)
	}
	return p, nil
}

// syntax puts the line, which the library says in its text, where a person looks for it.
func syntax(file string, err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if after, ok := strings.CutPrefix(text, "line "); ok {
		if line, what, ok := strings.Cut(after, ": "); ok {
			return fmt.Errorf("%s:%s: %s", file, line, what)
		}
	}
	return fmt.Errorf("%s: %s", file, text)
}

func (p *parser) fail(n *yaml.Node, format string, args ...any) {
	if len(p.errs) < maxErrors {
		p.errs = append(p.errs, fmt.Errorf("%s:%d:%d: %s", p.file, n.Line, n.Column, fmt.Sprintf(format, args...)))
	}
}

// mapping calls each with every key once.
func (p *parser) mapping(n *yaml.Node, each func(key string, at, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		p.fail(n, "expected a map, found %s", kind(n))
		return
	}
	seen := make(map[string]int, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode || k.Value == "" || len(k.Value) > maxText {
			p.fail(k, "expected a name of at most %d bytes", maxText)
			continue
		}
		if line, dup := seen[k.Value]; dup {
			p.fail(k, "%s: given already in line %d", k.Value, line)
			continue
		}
		seen[k.Value] = k.Line
		each(k.Value, k, v)
	}
}

// text reads a scalar; numbers and truth values count as written.
func (p *parser) text(n *yaml.Node, what string) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" || len(n.Value) > maxText {
		p.fail(n, "%s: expected a text of at most %d bytes, found %s", what, maxText, kind(n))
		return "", false
	}
	return n.Value, true
}

func kind(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a map"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias (not supported)"
	case yaml.ScalarNode:
		if n.Tag == "!!null" {
			return "nothing"
		}
		if len(n.Value) > 40 {
			return fmt.Sprintf("%q…", n.Value[:40])
		}
		return strconv.Quote(n.Value)
	default:
		return "nothing"
	}
}

// service reads one service of the configuration's form.
func (p *parser) service(name string, at, list *yaml.Node) {
	p.lines[name] = at.Line
	p.services[name] = []*config.Endpoint{}
	if list.Kind != yaml.SequenceNode {
		p.fail(list, "%s: expected a list of endpoints, found %s", name, kind(list))
		return
	}
	for _, n := range list.Content {
		if e := p.endpoint(n); e != nil {
			p.add(name, n, e)
		}
	}
}

func (p *parser) add(service string, n *yaml.Node, e *config.Endpoint) {
	if p.count++; p.count > maxEndpoints {
		if p.count == maxEndpoints+1 {
			p.fail(n, "more than %d endpoints", maxEndpoints)
		}
		return
	}
	p.services[service] = append(p.services[service], e)
}

// endpoint reads an endpoint as the configuration has it: an address, or a map with one.
func (p *parser) endpoint(n *yaml.Node) *config.Endpoint {
	e := &config.Endpoint{Weight: 1, From: config.Origin{Source: p.source}}
	if n.Kind == yaml.ScalarNode {
		e.Address = p.address(n)
		return e
	}
	given := n.Kind != yaml.MappingNode
	p.mapping(n, func(key string, at, v *yaml.Node) {
		switch key {
		case "address":
			given = true
			e.Address = p.address(v)
		case "labels":
			e.Labels = make(map[string]string)
			p.mapping(v, func(key string, at, v *yaml.Node) {
				if s, ok := p.text(v, key); ok && p.room(at, e.Labels) {
					e.Labels[key] = s
				}
			})
		default:
			if !p.field(e, key, v) {
				p.fail(at, "%s: unknown; known are address, weight, group, zone, region, version, labels", key)
			}
		}
	})
	if !given {
		p.fail(n, "an endpoint needs an address")
	}
	return e
}

func (p *parser) room(at *yaml.Node, labels map[string]string) bool {
	if len(labels) < maxLabels {
		return true
	}
	p.fail(at, "more than %d labels", maxLabels)
	return false
}

// field reads one of the plain fields of an endpoint; it reports whether key is one.
func (p *parser) field(e *config.Endpoint, key string, v *yaml.Node) bool {
	var to *string
	switch key {
	case "weight":
		w, err := strconv.Atoi(v.Value)
		if v.Kind != yaml.ScalarNode || err != nil || w < 0 || w > maxWeight {
			p.fail(v, "weight: expected a whole number from 0 to %d, found %s", maxWeight, kind(v))
		}
		e.Weight = w
		return true
	case "group":
		to = &e.Group
	case "zone":
		to = &e.Zone
	case "region":
		to = &e.Region
	case "version":
		to = &e.Version
	default:
		return false
	}
	*to, _ = p.text(v, key)
	return true
}

// group reads one group of file_sd: {targets: [...], labels: {...}}.
func (p *parser) group(n *yaml.Node) {
	service := strings.TrimSuffix(filepath.Base(p.file), filepath.Ext(p.file))
	common := config.Endpoint{Weight: 1, From: config.Origin{Source: p.source}}
	var targets *yaml.Node
	p.mapping(n, func(key string, at, v *yaml.Node) {
		switch key {
		case "targets":
			targets = v
		case "labels":
			service = p.labels(v, service, &common)
		default:
			p.fail(at, "%s: unknown; known are targets and labels", key)
		}
	})
	if n.Kind != yaml.MappingNode {
		return
	}
	if targets == nil || targets.Kind != yaml.SequenceNode {
		p.fail(n, "targets: expected a list of addresses")
		return
	}
	if p.services[service] == nil {
		p.services[service] = []*config.Endpoint{}
	}
	for _, t := range targets.Content {
		e := common
		if e.Address = p.address(t); e.Address != "" {
			p.add(service, t, &e)
		}
	}
}

// labels reads the labels of a file_sd group into what its endpoints have in common, and returns the service's name.
func (p *parser) labels(n *yaml.Node, service string, e *config.Endpoint) string {
	p.mapping(n, func(key string, at, v *yaml.Node) {
		switch {
		case key == "service":
			if s, ok := p.text(v, key); ok && s != "" {
				service = s
			}
		case strings.HasPrefix(key, "__"): // for Prometheus' own use
		case p.field(e, key, v):
		default:
			if s, ok := p.text(v, key); ok && p.room(at, e.Labels) {
				if e.Labels == nil {
					e.Labels = make(map[string]string)
				}
				e.Labels[key] = s
			}
		}
	})
	return service
}

// address reads and checks an address; it is empty when it was no good.
func (p *parser) address(n *yaml.Node) string {
	a, ok := p.text(n, "address")
	if !ok {
		return ""
	}
	if why := wrong(a); why != "" {
		p.fail(n, "address %q: %s", a, why)
		return ""
	}
	return a
}

// wrong says what is wrong with an address, or nothing.
func wrong(a string) string {
	if strings.ContainsFunc(a, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return "a blank or a control character"
	}
	if path, ok := strings.CutPrefix(a, "unix:"); ok {
		if path == "" {
			return "no path"
		}
		return ""
	}
	if name, ok := strings.CutPrefix(a, "srv:"); ok || strings.HasPrefix(a, "_") && !strings.Contains(a, ":") {
		if name == "" {
			return "no name"
		}
		return ""
	}
	host, port, err := net.SplitHostPort(a)
	if err != nil || host == "" {
		return "expected host:port, [v6]:port, unix:PATH or srv:NAME"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "expected a port from 1 to 65535"
	}
	return ""
}
