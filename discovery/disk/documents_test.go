package disk

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-mesh/sidecar/config"
)

var written = []config.Document{
	{Name: "services/web", Place: "kv main:sidecar/services/web", Revision: 7, Data: []byte("from: main\n# \xff no text\n")},
	{Name: "switches/off", Place: "kv main:sidecar/switches/off", Revision: 9, Data: []byte("{}")},
}

// TestDocuments: what was kept is there for the next run, of this prefix alone, until there is nothing to keep.
func TestDocuments(t *testing.T) {
	o := Options{Dir: filepath.Join(t.TempDir(), "made"), Scope: "prod"}
	s := New(o)
	s.SaveDocuments(registry, "sidecar/", written)
	s.Flush()
	got, saved, err := New(o).LoadDocuments(registry, "sidecar/")
	if err != nil || time.Since(saved) > time.Minute || cmp.Diff(written, got) != "" {
		t.Errorf("%v %v %s", saved, err, cmp.Diff(written, got))
	}
	other := *registry
	other.Name = "other"
	for name, load := range map[string]func() ([]config.Document, time.Time, error){
		"prefix":   func() ([]config.Document, time.Time, error) { return New(o).LoadDocuments(registry, "mesh/") },
		"registry": func() ([]config.Document, time.Time, error) { return New(o).LoadDocuments(&other, "sidecar/") },
		"scope": func() ([]config.Document, time.Time, error) {
			return New(Options{Dir: o.Dir, Scope: "test"}).LoadDocuments(registry, "sidecar/")
		},
		"folder": func() ([]config.Document, time.Time, error) {
			return New(Options{}).LoadDocuments(registry, "sidecar/")
		},
	} {
		if got, _, err := load(); len(got) > 0 || err != nil {
			t.Errorf("another %s: %v %v", name, got, err)
		}
	}
	path := s.documentsPath(s.documents(registry, "sidecar/", nil))
	if err := os.Rename(path, s.documentsPath(s.documents(registry, "mesh/", nil))); err != nil {
		t.Fatal(err)
	}
	if got, _, err := s.LoadDocuments(registry, "mesh/"); len(got) > 0 || err == nil || !strings.Contains(err.Error(), "foreign") {
		t.Errorf("put in place of another: %v %v", got, err)
	}
	s.SaveDocuments(registry, "mesh/", nil)
	s.Flush()
	if left, err := os.ReadDir(o.Dir); len(left) > 0 || err != nil {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// TestDamagedDocuments: a file with any bit turned, or cut off anywhere, is an error and no documents.
func TestDamagedDocuments(t *testing.T) {
	d := documents{registry: "r", prefix: "p/", list: written}
	good := d.encode(time.Unix(1, 0))
	if got, _, err := decodeDocuments(good, &d); err != nil || len(got) != 2 {
		t.Fatal(err)
	}
	for i := range good {
		bad := slices.Clone(good)
		bad[i] ^= 0x10
		if _, _, err := decodeDocuments(bad, &d); err == nil {
			t.Errorf("a bit of byte %d is not missed", i)
		}
		if _, _, err := decodeDocuments(good[:i], &d); err == nil {
			t.Errorf("what is behind byte %d is not missed", i)
		}
	}
}

func FuzzDecodeDocuments(f *testing.F) {
	d := documents{registry: "r", prefix: "p/", list: written}
	f.Add(d.encode(time.Unix(1, 0)), false)
	f.Add([]byte(`{"registry":"r","prefix":"p/","documents":[{"name":"a"},{"name":"a"}]}`), true)
	f.Fuzz(func(t *testing.T, data []byte, signed bool) {
		if signed { // what a checksum cannot tell
			data = sign(documentsMagic, data)
		}
		got, _, err := decodeDocuments(data, &d)
		if err != nil && got != nil {
			t.Fatal("documents and an error")
		}
		again, _, err2 := decodeDocuments((&documents{registry: "r", prefix: "p/", list: got}).encode(time.Unix(1, 0)), &d)
		if err == nil && (err2 != nil || len(again) != len(got)) {
			t.Fatalf("not the same again: %v", err2)
		}
	})
}
