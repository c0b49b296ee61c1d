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

// Same tells whether two services say the same, wherever it is written. Named policies count by name only: what `use`
// stands for is not part of the service. A service must not be changed after it was loaded.
func (s *Service) Same(t *Service) bool {
	return s == t || s != nil && t != nil && s.digest() == t.digest()
}

// Same tells whether two inbound services say the same, wherever it is written.
func (in *Inbound) Same(other *Inbound) bool {
	return in == other || in != nil && other != nil && fingerprint(in) == fingerprint(other)
}

// digest gives what was computed at load, or computes it for a service that was made by hand.
func (s *Service) digest() digest {
	if s.sum != (digest{}) {
		return s.sum
	}
	return fingerprint(s)
}

// fingerprint hashes the exported fields of a value.
func fingerprint[T any](v *T) digest {
	w := writer{hash: sha256.New(), origin: reflect.TypeFor[Origin]()}
	w.value(reflect.ValueOf(v).Elem())
	w.flush()
	return digest(w.hash.Sum(nil))
}

// writer feeds a value into a hash, each part with its length, so that no two values look alike.
type writer struct {
	hash   hash.Hash
	buf    []byte
	origin reflect.Type
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
	case reflect.Int, reflect.Int64:
		w.number(uint64(v.Int()))
	case reflect.Uint8, reflect.Uint64:
		w.number(v.Uint())
	case reflect.Float64:
		w.number(math.Float64bits(v.Float()))
	}
}

// fields writes a struct. A value that is not set is one zero, whatever else it holds; origins do not count.
func (w *writer) fields(v reflect.Value) {
	t := v.Type()
	if t.NumField() == 3 && t.Field(2).Type == w.origin {
		w.value(v.Field(1))
		if v.Field(1).Bool() {
			w.value(v.Field(0))
		}
		return
	}
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() && f.Type != w.origin {
			w.value(v.Field(i))
		}
	}
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
