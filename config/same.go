package config

import (
	"crypto/sha256"
	"encoding/binary"
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
	return in == other || in != nil && other != nil && fingerprint(in) == fingerprint(other)
}

// SamePolicies tells whether the named policies and the defaults say the same: only then does a service that did not
// change have the policies it had before.
func (c *Config) SamePolicies(other *Config) bool {
	if len(c.Policies) != len(other.Policies) || fingerprint(&c.Defaults) != fingerprint(&other.Defaults) {
		return false
	}
	for name, p := range c.Policies {
		q := other.Policies[name]
		if p != q && (p == nil || q == nil || fingerprint(p) != fingerprint(q)) {
			return false
		}
	}
	return true
}

// SameBulkheads tells whether the bulkheads are the same.
func (c *Config) SameBulkheads(other *Config) bool {
	return maps.EqualFunc(c.Bulkheads, other.Bulkheads, func(a, b *Bulkhead) bool {
		return a.InFlight == b.InFlight && a.Waiting == b.Waiting && a.Wait == b.Wait && slices.Equal(a.Priorities, b.Priorities)
	})
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
	return layouts{}.prints(s)
}

// fingerprint hashes the exported fields of a value, origins left out.
func fingerprint[T any](v *T) digest {
	w := writer{layouts: layouts{}}
	w.value(reflect.ValueOf(v).Elem())
	return sha256.Sum256(w.content)
}

// layouts remembers how the types of one load are hashed, since asking a type for its fields is slow.
type layouts map[reflect.Type]layout

// layout is how a struct is hashed.
type layout struct {
	optional bool  // an Opt: one that is not set is one zero, whatever else it holds
	origin   bool  // where something is written
	fields   []int // of any other: those that are exported
}

func (l layouts) of(t reflect.Type) layout {
	known, ok := l[t]
	if ok {
		return known
	}
	where := reflect.TypeFor[Origin]()
	known.origin = t == where
	known.optional = t.NumField() == 3 && t.Field(2).Type == where
	for i := range t.NumField() {
		if t.Field(i).IsExported() {
			known.fields = append(known.fields, i)
		}
	}
	l[t] = known
	return known
}

// prints computes both fingerprints of a service in one walk.
func (l layouts) prints(s *Service) prints {
	w := writer{layouts: l}
	w.value(reflect.ValueOf(s).Elem())
	return prints{content: sha256.Sum256(w.content), placed: sha256.Sum256(append(w.places, w.content...))}
}

// writer writes down a value, each part with its length, so that no two values look alike; and apart from it the places.
type writer struct {
	layouts         layouts
	content, places []byte
}

func (w *writer) number(n uint64) { w.content = binary.AppendUvarint(w.content, n) }

func (w *writer) text(s string) {
	w.number(uint64(len(s)))
	w.content = append(w.content, s...)
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
	case reflect.Int, reflect.Int64:
		w.number(uint64(v.Int()))
	case reflect.Uint8, reflect.Uint64:
		w.number(v.Uint())
	case reflect.Float64:
		w.number(math.Float64bits(v.Float()))
	}
}

func (w *writer) fields(v reflect.Value) {
	l := w.layouts.of(v.Type())
	switch {
	case l.origin:
		w.place(v)
	case l.optional && !v.Field(1).Bool():
		w.number(0)
	case l.optional:
		w.number(1)
		w.value(v.Field(0))
		w.place(v.Field(2))
	default:
		for _, i := range l.fields {
			w.value(v.Field(i))
		}
	}
}

// place writes an origin.
func (w *writer) place(v reflect.Value) {
	if source := v.Field(0); !source.IsNil() {
		name := source.Elem().Field(0).String()
		w.places = append(binary.AppendUvarint(w.places, uint64(len(name))), name...)
	}
	w.places = binary.AppendUvarint(w.places, uint64(v.Field(1).Int()))
	w.places = binary.AppendUvarint(w.places, uint64(v.Field(2).Int()))
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
