package disk

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
)

const (
	documentsMagic  = "sidecar-documents"
	documentsSuffix = ".documents"
	maxDocuments    = 100_000
	maxDocument     = 512 << 10 // what a store takes as one value
)

// documents is what a prefix of the config centre held when it was in force.
type documents struct {
	registry, prefix, scope string
	list                    []config.Document // immutable
}

// documentsBody is what its file says.
type documentsBody struct {
	Registry  string     `json:"registry"`
	Prefix    string     `json:"prefix"`
	Scope     string     `json:"scope"`
	Saved     time.Time  `json:"saved"`
	Documents []document `json:"documents"`
}

type document struct {
	Name     string `json:"name"`
	Place    string `json:"place"`
	Revision uint64 `json:"revision"`
	Data     []byte `json:"data"`
}

func (d *documents) named() string { return "documents below " + d.prefix }
func (d *documents) empty() bool   { return len(d.list) == 0 }

func (d *documents) encode(now time.Time) []byte {
	b := documentsBody{Registry: d.registry, Prefix: d.prefix, Scope: d.scope, Saved: now.UTC(), Documents: make([]document, 0, len(d.list))}
	for _, one := range d.list {
		b.Documents = append(b.Documents, document{one.Name, one.Place, one.Revision, one.Data})
	}
	return sign(documentsMagic, plainJSON(b))
}

// decodeDocuments reads a file that is to be of want. What the texts say is for the reader of documents to judge.
func decodeDocuments(data []byte, want *documents) ([]config.Document, time.Time, error) {
	none := time.Time{}
	text, err := open(documentsMagic, "documents", data)
	if err != nil {
		return nil, none, err
	}
	var b documentsBody
	if err := json.Unmarshal(text, &b); err != nil {
		return nil, none, fmt.Errorf("damaged: %w", err)
	}
	if b.Registry != want.registry || b.Prefix != want.prefix || b.Scope != want.scope {
		return nil, none, fmt.Errorf("foreign: it is of prefix %q of registry %q", b.Prefix, b.Registry)
	}
	if len(b.Documents) > maxDocuments {
		return nil, none, fmt.Errorf("more than %d documents", maxDocuments)
	}
	list := make([]config.Document, 0, len(b.Documents))
	seen := make(map[string]bool, len(b.Documents))
	for i := range b.Documents {
		d := &b.Documents[i]
		if d.Name == "" || seen[d.Name] || !plain(d.Name) || !plain(d.Place) || len(d.Data) > maxDocument {
			return nil, none, fmt.Errorf("document %d: a name or a text that no store has", i)
		}
		seen[d.Name] = true
		list = append(list, config.Document{Name: d.Name, Place: d.Place, Revision: d.Revision, Data: d.Data})
	}
	return list, b.Saved, nil
}

// LoadDocuments returns what an earlier run saved of a prefix, and when; none without an error when nothing was.
func (s *Store) LoadDocuments(registry *config.Registry, prefix string) ([]config.Document, time.Time, error) {
	if s.o.Dir == "" {
		return nil, time.Time{}, nil
	}
	d := s.documents(registry, prefix, nil)
	path := s.documentsPath(d)
	data, err := read(path)
	if err != nil || data == nil {
		return nil, time.Time{}, err
	}
	list, saved, err := decodeDocuments(data, d)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("%s: %w: ignored", path, err)
	}
	return list, saved, nil
}

// SaveDocuments notes the documents of a prefix for later; none are forgotten. It does not block.
func (s *Store) SaveDocuments(registry *config.Registry, prefix string, list []config.Document) {
	if s.o.Dir == "" {
		return
	}
	d := s.documents(registry, prefix, list)
	s.note(s.documentsPath(d), d)
}

func (s *Store) documents(r *config.Registry, prefix string, list []config.Document) *documents {
	return &documents{registry: r.Name + " " + print(r), prefix: prefix, scope: s.o.Scope, list: list}
}

func (s *Store) documentsPath(d *documents) string {
	return filepath.Join(s.o.Dir, fileName(strings.TrimSuffix(d.prefix, "/"), d.registry, d.scope)+documentsSuffix)
}
