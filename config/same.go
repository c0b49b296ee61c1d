package config

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
)

// digest is the fingerprint of a value, origins left out.
type digest [sha256.Size]byte

// prints are the fingerprints of a service: of what it says, and of that together with where it says it.
type prints struct{ content, placed digest }

// Same tells whether two services say the same, wherever it is written. Named policies count by name only: what `use`
// stands for is not part of the service. A service must not be changed after it was loaded.
func (s *Service) Same(t *Service) bool {
	return s == t || s != nil && t != nil && s.prints().content == t.prints().content
}

// Same tells whether two inbound services say the same, wherever it is written.
func (in *Inbound) Same(other *Inbound) bool {
	return in == other || in != nil && other != nil && fingerprint(in, false) == fingerprint(other, false)
}

// SamePolicies tells whether the named policies and the defaults say the same: only then does a service that did not
// change have the policies it had before.
func (c *Config) SamePolicies(other *Config) bool {
	if len(c.Policies) != len(other.Policies) || fingerprint(&c.Defaults, false) != fingerprint(&other.Defaults, false) {
		return false
	}
	for name, p := range c.Policies {
		q := other.Policies[name]
		if p != q && (p == nil || q == nil || fingerprint(p, false) != fingerprint(q, false)) {
			return false
		}
	}
	return true
}

// Keep puts the services of an earlier configuration in place of those that say the same at the same place, so that what
// did not change is known by its pointer. A service that only moved within its file gets a new pointer, for its origins
// are others; Same knows it still.
func (c *Config) Keep(earlier *Config) {
	for name, s := range c.Services {
		if e := earlier.Services[name]; e != nil && e.prints().placed == s.prints().placed {
			c.Services[name] = e
		}
	}
}

// prints gives what was computed at load, or computes it for a service that was made by hand.
func (s *Service) prints() prints {
	if s.sums != (prints{}) {
		return s.sums
	}
	return prints{content: fingerprint(s, false), placed: fingerprint(s, true)}
}

// fingerprint hashes the exported fields of a value; with origins only when placed.
func fingerprint[T any](v *T, placed bool) digest {
	w := writer{hash: sha256.New(), origin: reflect.TypeFor[Origin](), placed: placed}
	w.value(reflect.ValueOf(v).Elem())
	w.flush()
	return digest(w.hash.Sum(nil))
}

// writer feeds a value into a hash, each part with its length, so that no two values look alike.
type writer struct {
	hash   hash.Hash
	buf    []byte
	origin reflect.Type
	placed bool
}

func (w *writer) flush() {
	w.hash.Write(w.buf)
	w.buf = w.buf[:0]
}

func (w *writer) number(n uint64) {
	const enough = 4096
	if w.buf = binary.AppendUvarint(w.buf, n); len(w.buf) > enough {
		w.flush()
	}
}

func (w *writer) text(s string) {
	w.number(uint64(len(s)))
	w.buf = append(w.buf, s...)
}

func (w *writer) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		w.fields(v)
	case reflect.Pointer:
		if v.IsNil() {
			w.number(0)
			return
		}
		w.number(1)
		w.value(v.Elem())
	case reflect.Slice:
		w.number(uint64(v.Len()))
		for i := range v.Len() {
			w.value(v.Index(i))
		}
	case reflect.Map:
		w.mapOf(v)
	case reflect.String:
		w.text(v.String())
	case reflect.Bool:
		n := uint64(0)
		if v.Bool() {
			n = 1
		}
		w.number(n)
	case reflect.Int, reflect.Int32, reflect.Int64:
		w.number(uint64(v.Int()))
	case reflect.Uint8, reflect.Uint64:
		w.number(v.Uint())
	case reflect.Float64:
		w.number(math.Float64bits(v.Float()))
	}
}

// fields writes a struct. A value that is not set is one zero, whatever else it holds.
func (w *writer) fields(v reflect.Value) {
	t := v.Type()
	if t == w.origin {
		w.place(v)
		return
	}
	if t.NumField() == 3 && t.Field(2).Type == w.origin {
		w.value(v.Field(1))
		if v.Field(1).Bool() {
			w.value(v.Field(0))
			w.place(v.Field(2))
		}
		return
	}
	for i := range t.NumField() {
		if t.Field(i).IsExported() {
			w.value(v.Field(i))
		}
	}
}

// place writes an origin, where origins count.
func (w *writer) place(v reflect.Value) {
	if !w.placed {
		return
	}
	if source := v.Field(0); !source.IsNil() {
		w.text(source.Elem().Field(0).String())
	}
	w.number(uint64(v.Field(1).Int()))
	w.number(uint64(v.Field(2).Int()))
}

func (w *writer) mapOf(v reflect.Value) {
	m, ok := v.Interface().(map[string]string)
	if !ok {
		return
	}
	w.number(uint64(len(m)))
	for _, k := range slices.SortedFunc(maps.Keys(m), strings.Compare) {
		w.text(k)
		w.text(m[k])
	}
}
