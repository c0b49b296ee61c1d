package route

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// part names a part of a match: what did not fit.
type part uint8

const (
	partNone part = iota // everything fits
	partMethod
	partPath
	partHost
	partHeader
	partQuery
	partCookie
	partSegment
	partCaller
	partPercent
)

func (p part) String() string {
	return [...]string{"", "method", "path", "host", "header", "query", "cookie", "segment", "caller", "percent"}[p]
}

// rule is one compiled match.
type rule struct {
	methods []string
	path    Path
	pathRE  *regexp.Regexp
	headers []value
	query   []value
	cookies []value
	parts   []segment
	hosts   *Hosts
	callers []caller
	percent uint64 // a draw below it fits
	partial bool   // percent counts
	salt    uint64
}

// caller is one compiled element of Match.Callers: exactly one of the three.
type caller struct {
	service    string
	net        netip.Prefix
	key, label string
}

func (r *rule) compile(m *Match, salt uint64) error {
	var errs []error
	fail := func(p part, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p, err))
		}
	}
	r.salt = salt
	r.methods, r.path = slices.Clone(m.Methods), m.Path
	fail(partPath, r.compilePath())
	values := func(p part, in []Value) []value {
		out := make([]value, len(in))
		for i := range in {
			fail(p, out[i].compile(&in[i]))
		}
		return out
	}
	r.headers = values(partHeader, m.Headers)
	r.query = values(partQuery, m.Query)
	r.cookies = values(partCookie, m.Cookies)
	for i, v := range values(partSegment, m.Segments) {
		n, err := strconv.Atoi(m.Segments[i].Name)
		if err == nil && n < 1 {
			err = fmt.Errorf("segments count from 1, got %d", n)
		}
		fail(partSegment, err)
		r.parts = append(r.parts, segment{v, n})
	}
	if len(m.Hosts) > 0 {
		patterns := make(map[string]int, len(m.Hosts))
		for _, h := range m.Hosts {
			patterns[h] = 0
		}
		var err error
		r.hosts, err = NewHosts(patterns)
		fail(partHost, err)
	}
	for _, c := range m.Callers {
		compiled, err := compileCaller(c)
		fail(partCaller, err)
		r.callers = append(r.callers, compiled)
	}
	if m.HasPercent {
		fail(partPercent, r.compilePercent(m.Percent))
	}
	return errors.Join(errs...)
}

func (r *rule) compilePath() error {
	switch r.path.Kind {
	case PathAny:
		return nil
	case PathExact, PathPrefix:
		if !strings.HasPrefix(r.path.Value, "/") && r.path.Value != "*" {
			return fmt.Errorf("%q does not begin with a slash", r.path.Value)
		}
	case PathBelow:
		if !strings.HasPrefix(r.path.Value, "/") || !strings.HasSuffix(r.path.Value, "/") {
			return fmt.Errorf("%q does not begin and end with a slash", r.path.Value)
		}
	case PathRegex:
		var err error
		r.pathRE, err = regexp.Compile(r.path.Value)
		return err
	default:
		return fmt.Errorf("unknown kind %d", r.path.Kind)
	}
	return nil
}

func (r *rule) compilePercent(p float64) error {
	if !(p >= 0 && p <= 1) {
		return fmt.Errorf("%v is not between 0 and 1", p)
	}
	r.partial = p < 1
	if r.partial {
		r.percent = uint64(math.Ldexp(p, 64))
	}
	return nil
}

func compileCaller(s string) (caller, error) {
	if s == "" {
		return caller{}, errors.New("empty")
	}
	if k, v, ok := strings.Cut(s, "="); ok {
		if k == "" {
			return caller{}, fmt.Errorf("%q has an empty label name", s)
		}
		return caller{key: k, label: v}, nil
	}
	if a, err := netip.ParseAddr(s); err == nil {
		a = a.Unmap().WithZone("")
		return caller{net: netip.PrefixFrom(a, a.BitLen())}, nil
	}
	if strings.Contains(s, "/") {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return caller{}, fmt.Errorf("%q is not a CIDR", s)
		}
		return caller{net: p.Masked()}, nil
	}
	return caller{service: s}, nil
}

// misses returns the first part that does not fit, or partNone. The order is that of cost; Percent comes last, so that
// it is a share of the requests that fit all the rest.
func (r *rule) misses(f *Facts) part {
	if !r.fitsPath(f.Path) {
		return partPath
	}
	return r.missesRest(f)
}

// missesRest is misses without the path.
func (r *rule) missesRest(f *Facts) part {
	if len(r.methods) > 0 && !slices.Contains(r.methods, f.Method) {
		return partMethod
	}
	if r.hosts != nil {
		if _, ok := r.hosts.Lookup(f.Host); !ok {
			return partHost
		}
	}
	if len(r.callers) > 0 && !r.fitsCaller(&f.Caller) {
		return partCaller
	}
	for i := range r.headers {
		if !r.headers[i].fitsHeader(f.Fields) {
			return partHeader
		}
	}
	for i := range r.query {
		if !r.query[i].fitsQuery(f.Query) {
			return partQuery
		}
	}
	for i := range r.cookies {
		if !r.cookies[i].fitsCookie(f.Fields) {
			return partCookie
		}
	}
	for i := range r.parts {
		if !r.parts[i].fits(f.Path) {
			return partSegment
		}
	}
	if r.partial && mix(f.Hash^r.salt) >= r.percent {
		return partPercent
	}
	return partNone
}

func (r *rule) fitsPath(path string) bool {
	switch r.path.Kind {
	case PathExact:
		return path == r.path.Value
	case PathPrefix, PathBelow:
		return strings.HasPrefix(path, r.path.Value)
	case PathRegex:
		return r.pathRE.MatchString(path)
	}
	return true
}

func (r *rule) fitsCaller(c *Caller) bool {
	for i := range r.callers {
		want := &r.callers[i]
		switch {
		case want.key != "":
			if v, ok := c.Labels[want.key]; ok && v == want.label {
				return true
			}
		case want.net.IsValid():
			if want.net.Contains(c.Addr.Unmap().WithZone("")) {
				return true
			}
		case want.service == c.Service:
			return true
		}
	}
	return false
}

// mix spreads 64 bits: a bijection (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// hashText is FNV-1a: equal on every sidecar and for all time, since shares of traffic hang on it.
func hashText(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// decimalMod returns the decimal number s modulo m; false if s is not all digits. Its length does not matter.
func decimalMod[T string | []byte](s T, m uint64) (uint64, bool) {
	if len(s) == 0 {
		return 0, false
	}
	r := uint64(0)
	for i := range len(s) {
		d := uint64(s[i]) - '0'
		if d > 9 {
			return 0, false
		}
		hi, lo := bits.Mul64(r, 10)
		lo, carry := bits.Add64(lo, d, 0)
		r = bits.Rem64(hi+carry, lo, m)
	}
	return r, true
}
