package discovery

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"math"
	"reflect"
	"slices"

	"github.com/sidecar-mesh/sidecar/config"
)

// revision is a short hash of what a configuration says: without where it is written and without who we are, so that it
// is the same in all sidecars of a fleet with the same configuration.
func revision(cfg *config.Config) string {
	c := *cfg
	c.Node, c.Warnings = config.Node{}, nil
	d := digest{Hash: sha256.New(), skip: reflect.TypeFor[config.Origin]()}
	d.value(reflect.ValueOf(c))
	return hex.EncodeToString(d.Sum(nil)[:6])
}

type digest struct {
	hash.Hash
	skip reflect.Type
	buf  [8]byte
}

func (d *digest) number(n uint64) {
	binary.LittleEndian.PutUint64(d.buf[:], n)
	_, _ = d.Write(d.buf[:]) // a hash never fails
}

func (d *digest) text(s string) {
	d.number(uint64(len(s)))
	_, _ = d.Write([]byte(s))
}

// value adds v and everything below it. Configuration is a tree of plain data; what else there is counts as nothing.
func (d *digest) value(v reflect.Value) {
	if v.Type() == d.skip {
		return
	}
	switch v.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Float32,
		reflect.Float64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.String:
		d.scalar(v)
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			d.number(0)
			return
		}
		d.number(1)
		d.value(v.Elem())
	case reflect.Slice, reflect.Array:
		d.number(uint64(v.Len()))
		for i := range v.Len() {
			d.value(v.Index(i))
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) })
		d.number(uint64(len(keys)))
		for _, k := range keys {
			d.text(k.String())
			d.value(v.MapIndex(k))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				d.value(v.Field(i))
			}
		}
	default:
	}
}

func (d *digest) scalar(v reflect.Value) {
	switch {
	case v.CanInt():
		d.number(uint64(v.Int()))
	case v.CanUint():
		d.number(v.Uint())
	case v.CanFloat():
		d.number(math.Float64bits(v.Float()))
	case v.Kind() == reflect.Bool && v.Bool():
		d.number(1)
	case v.Kind() == reflect.Bool:
		d.number(0)
	default:
		d.text(v.String())
	}
}
