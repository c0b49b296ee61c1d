package route

import (
	"fmt"
	"math"
	"math/rand"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// fits is a match written as simply as possible, to compare with.
func fits(m *Match, f *Facts) bool {
	p := m.Path
	switch {
	case len(m.Methods) > 0 && !slices.Contains(m.Methods, f.Method),
		p.Kind == PathExact && f.Path != p.Value,
		(p.Kind == PathPrefix || p.Kind == PathBelow) && !strings.HasPrefix(f.Path, p.Value),
		p.Kind == PathRegex && !regexp.MustCompile(p.Value).MatchString(f.Path):
		return false
	}
	fields := f.Fields.(FieldList)
	h := http.Header{}
	for _, x := range fields {
		h.Add(x.Name, x.Value)
	}
	query := url.Values{}
	for pair := range strings.SplitSeq(f.Query, "&") {
		if pair != "" {
			k, v, _ := strings.Cut(pair, "=")
			k, _ = url.QueryUnescape(k)
			v, _ = url.QueryUnescape(v)
			query.Add(k, v)
		}
	}
	cookies := url.Values{}
	for _, line := range h.Values("cookie") {
		for pair := range strings.SplitSeq(line, ";") {
			if k, v, ok := strings.Cut(strings.TrimSpace(pair), "="); ok {
				cookies.Add(k, v)
			}
		}
	}
	all := func(values []Value, get func(string) []string) bool {
		return !slices.ContainsFunc(values, func(v Value) bool { return !holdsAny(&v, get(v.Name)) })
	}
	return all(m.Headers, h.Values) && all(m.Query, func(n string) []string { return query[n] }) &&
		all(m.Cookies, func(n string) []string { return cookies[n] })
}

func holdsAny(v *Value, list []string) bool {
	if v.Kind == ValueAbsent {
		return len(list) == 0
	}
	return slices.ContainsFunc(list, func(s string) bool {
		switch v.Kind {
		case ValueExact:
			return s == v.Text
		case ValuePrefix:
			return strings.HasPrefix(s, v.Text)
		case ValueRegex:
			return regexp.MustCompile(v.Text).MatchString(s)
		case ValueIn:
			return slices.Contains(v.In, s)
		case ValueMod:
			n, err := strconv.ParseUint(s, 10, 64)
			return err == nil && slices.Contains(v.Residues, n%v.Mod)
		case ValueMedia:
			return regexp.MustCompile(`(?i)^` + regexp.QuoteMeta(v.Text) + `(\+|;|$)`).MatchString(s)
		}
		return true
	})
}

func linear(matches []Match, f *Facts) int {
	return slices.IndexFunc(matches, func(m Match) bool { return fits(&m, f) })
}

// dice makes random matches and requests out of few words, so that many fit.
type dice struct{ n func(int) int }

func (d dice) word() string { return []string{"", "a", "b", "ab", "a%2Fb", "é"}[d.n(6)] }

func (d dice) path() string {
	s := ""
	for range 1 + d.n(4) {
		s += "/" + d.word()
	}
	return s
}

func (d dice) value() Value {
	v := Value{Name: []string{"a", "b", "X-c"}[d.n(3)], Kind: ValueKind(d.n(8)), Text: d.word()}
	switch v.Kind {
	case ValueRegex:
		v.Text = []string{"^a", "b$", ".", "é?"}[d.n(4)]
	case ValueIn:
		v.In = []string{d.word(), d.word()}
	case ValueMod:
		v.Mod, v.Residues = 3, []uint64{uint64(d.n(3))}
	case ValueMedia:
		v.Text = strings.ToLower(v.Text)
	}
	return v
}

func (d dice) match() Match {
	var m Match
	m.Path.Kind = PathKind(d.n(5))
	switch m.Path.Kind {
	case PathExact, PathPrefix:
		m.Path.Value = d.path()
	case PathBelow:
		m.Path.Value = strings.TrimSuffix(d.path(), "/") + "/"
	case PathRegex:
		m.Path.Value = []string{"^/a.*b", "/b$", "^/ab/?$", "a", "^/(a|b)/", "(?i)^/A", "^/é"}[d.n(7)]
	}
	if d.n(3) == 0 {
		m.Methods = []string{[]string{"GET", "PUT", "get"}[d.n(3)]}
	}
	for _, list := range []*[]Value{&m.Headers, &m.Query, &m.Cookies} {
		if d.n(4) == 0 {
			*list = append(*list, d.value())
		}
	}
	return m
}

func (d dice) facts() *Facts {
	f := &Facts{Method: []string{"GET", "PUT", "get"}[d.n(3)], Path: d.path()}
	value := func() string { return []string{"", "a", "ab", "b", "7", "12", "x1", "é", "A+b", "b;a"}[d.n(10)] }
	var fields FieldList
	for range d.n(4) {
		fields = append(fields, Field{[]string{"A", "b", "x-C"}[d.n(3)], value()})
	}
	for range d.n(3) {
		fields = append(fields, Field{"Cookie", "a=" + value() + "; b=" + value() + ";X-c"})
	}
	for range d.n(4) {
		f.Query += "&" + []string{"a=", "%61=", "b=", "X%2dc="}[d.n(4)] + []string{value(), url.QueryEscape(value()), "%61b"}[d.n(3)]
	}
	f.Fields = fields
	return f
}

func checkDice(t *testing.T, d dice, rules, requests int) {
	t.Helper()
	matches := make([]Match, rules)
	for i := range matches {
		matches[i] = d.match()
	}
	r, err := NewRules(matches)
	if err != nil {
		t.Fatal(err)
	}
	for range requests {
		f := d.facts()
		got, ok := r.Match(f)
		if want := linear(matches, f); got != want || ok != (want >= 0) {
			t.Fatalf("%+v: rule %d, want %d of\n%q", f, got, want, r.texts)
		}
		for i := range min(got, 20) {
			if r.Misses(i, f) == "" {
				t.Fatalf("%+v: rule %d misses nothing", f, i)
			}
		}
		if ok && r.Misses(got, f) != "" {
			t.Fatalf("%+v: rule %d misses %s", f, got, r.Misses(got, f))
		}
	}
}

func TestMatchEqualsLinearScan(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	for range 300 {
		checkDice(t, dice{rnd.Intn}, 1+rnd.Intn(40), 40)
	}
}

func FuzzMatch(f *testing.F) {
	f.Add([]byte("some bytes to draw from, and a few more of them"))
	f.Fuzz(func(t *testing.T, data []byte) {
		d := dice{func(n int) int {
			if len(data) == 0 {
				return 0
			}
			b := data[0]
			data = data[1:]
			return int(b) % n
		}}
		checkDice(t, d, 1+d.n(10), 3)
	})
}

func TestDeepPrefixes(t *testing.T) {
	var matches []Match
	path := ""
	for i := range 200 {
		path += "/a"
		kind := PathPrefix
		if i%2 == 0 {
			kind = PathBelow
		}
		m := Match{Path: Path{kind, path + "/"}}
		if i%3 > 0 {
			m.Headers = []Value{{Name: "depth", Text: strconv.Itoa(i)}}
		}
		matches = append(matches, m)
	}
	slices.Reverse(matches)
	r, err := NewRules(matches)
	if err != nil {
		t.Fatal(err)
	}
	for depth := 0; depth < 210; depth += 7 {
		for _, name := range []string{"0", "31", "64", "130", "197"} {
			f := &Facts{Path: strings.Repeat("/a", depth) + "/", Fields: FieldList{{"Depth", name}}}
			if got, _ := r.Match(f); got != linear(matches, f) {
				t.Fatalf("depth %d: %d, want %d", depth, got, linear(matches, f))
			}
		}
	}
}

func TestOtherParts(t *testing.T) {
	facts := &Facts{
		Method: "GET", Host: "Catalog.internal:80", Path: "/x", Query: "id=12345678901234567890123&n=a+b&%zz=1",
		Fields: FieldList{{"X-Uid", "23"}, {"x-uid", "no"}, {"Cookie", "u=\"q\""}},
		Caller: Caller{Service: "shop", Addr: netip.MustParseAddr("::ffff:10.1.2.3"), Labels: map[string]string{"grey": "true"}},
	}
	for _, c := range []struct {
		m    Match
		want bool
		text string
	}{
		{Match{}, true, "*"},
		{Match{Methods: []string{"GET"}, Path: Path{PathBelow, "/v1/items/"}}, false, "GET /v1/items/*"},
		{Match{Hosts: []string{"*.internal", "b"}}, true, "host=*.internal|b"},
		{Match{Hosts: []string{"b"}}, false, "host=b"},
		{Match{Callers: []string{"cart", "10.0.0.0/8"}}, true, "caller=cart|10.0.0.0/8"},
		{Match{Callers: []string{"10.1.2.3"}}, true, "caller=10.1.2.3"},
		{Match{Callers: []string{"grey=true"}}, true, "caller=grey=true"},
		{Match{Callers: []string{"grey=false", "cart"}}, false, "caller=grey=false|cart"},
		{Match{Callers: []string{"shop"}}, true, "caller=shop"},
		{Match{Headers: []Value{{Name: "x-uid", Kind: ValueMod, Mod: 20, Residues: []uint64{1, 3}}}}, true, "header:x-uid%20=1|3"},
		{Match{Headers: []Value{{Name: "x-uid", Text: "no"}}}, true, "header:x-uid=no"},
		{Match{Headers: []Value{{Name: "x-uid", Kind: ValueAbsent}}}, false, "header:!x-uid"},
		{Match{Headers: []Value{{Name: "accept", Kind: ValueMedia, Text: "text/html"}}}, false, "header:accept:text/html"},
		{Match{Query: []Value{{Name: "id", Kind: ValueMod, Mod: 1000, Residues: []uint64{123}}}}, true, "query:id%1000=123"},
		{Match{Query: []Value{{Name: "n", Text: "a b"}, {Name: "%zz", Kind: ValuePresent}}}, true, "query:n=a b query:%zz"},
		{Match{Cookies: []Value{{Name: "u", Text: `"q"`}}}, true, `cookie:u="q"`},
		{Match{Percent: 1, HasPercent: true}, true, "100%"},
		{Match{Percent: 0, HasPercent: true}, false, "0%"},
	} {
		r, err := NewRules([]Match{c.m})
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := r.Match(facts); ok != c.want {
			t.Errorf("%s: %v", r.Text(0), ok)
		}
		if r.Text(0) != c.text {
			t.Errorf("text %q, want %q", r.Text(0), c.text)
		}
		if _, ok := r.Match(&Facts{}); ok && strings.HasSuffix(r.Text(0), "=no") {
			t.Errorf("%s fits a request without header", c.text)
		}
	}
}

func TestRuleMistakes(t *testing.T) {
	_, err := NewRules([]Match{
		{Path: Path{PathRegex, "("}, Percent: 2, HasPercent: true},
		{},
		{Headers: []Value{{Kind: ValueExact}}, Query: []Value{{Name: "a", Kind: ValueMod}}},
		{Path: Path{PathBelow, "/a"}, Hosts: []string{"a*"}, Callers: []string{"10.0.0.0/99", ""}},
		{Cookies: []Value{{Name: "a", Kind: ValueMod, Mod: 2, Residues: []uint64{2}}, {Name: "r", Kind: ValueRegex, Text: "["}}},
		{Path: Path{PathExact, "a"}, Methods: []string{"GET"}},
	})
	if err == nil {
		t.Fatal("taken")
	}
	if n := strings.Count(err.Error(), "\n") + 1; n != 11 {
		t.Errorf("%d mistakes, want 11:\n%v", n, err)
	}
}

func TestPercent(t *testing.T) {
	m := []Match{
		{Path: Path{PathExact, "/a"}, Percent: 0.3, HasPercent: true},
		{Path: Path{PathExact, "/a"}, Percent: 0.3, HasPercent: true},
		{Path: Path{PathExact, "/a"}, Name: "named", Percent: 0.5, HasPercent: true},
	}
	r, err := NewRules(m)
	if err != nil {
		t.Fatal(err)
	}
	split, err := NewSplit([]int{1, 1})
	if err != nil {
		t.Fatal(err)
	}
	const n = 200_000
	var got [4]int
	inSplit := 0
	for i := range n {
		f := &Facts{Path: "/a", Hash: uint64(i)}
		k, ok := r.Match(f)
		if !ok {
			k = 3
		}
		got[k]++
		if k == 0 {
			inSplit += split.Pick(f.Hash)
		}
	}
	for k, want := range []float64{0.3, 0.7 * 0.3, 0.49 * 0.5, 0.49 * 0.5} {
		if share := float64(got[k]) / n; math.Abs(share-want) > 0.005 {
			t.Errorf("rule %d has %.4f, want %.4f", k, share, want)
		}
	}
	if share := float64(inSplit) / float64(got[0]); math.Abs(share-0.5) > 0.01 {
		t.Errorf("split and percent hang together: %.3f", share)
	}
	// A named rule decides alike wherever it stands.
	moved, err := NewRules([]Match{{Methods: []string{"PUT"}}, m[2]})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		f := &Facts{Path: "/a", Hash: uint64(i)}
		if _, ok := moved.Match(f); ok != (r.Misses(2, f) == "") {
			t.Fatal("the place of a rule matters")
		}
	}
}

func TestSplit(t *testing.T) {
	s, err := NewSplit([]int{90, 0, 10})
	if err != nil {
		t.Fatal(err)
	}
	var got [3]int
	for i := range 100_000 {
		got[s.Pick(uint64(i))]++
	}
	if got[1] != 0 || got[2] < 9700 || got[2] > 10_300 {
		t.Errorf("%v", got)
	}
	many := make([]int, 100)
	many[57] = 1
	if s, err = NewSplit(many); err != nil || s.Pick(5) != 57 {
		t.Error("one of many")
	}
	for _, bad := range [][]int{nil, {0, 0}, {-1, 2}} {
		if _, err := NewSplit(bad); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
	if got := Subset([]map[string]string{{"v": "1"}, {"v": "2", "z": "x"}, nil}, map[string]string{"v": "2"}); !slices.Equal(got, []int{1}) {
		t.Errorf("subset %v", got)
	}
}

func manyRules(n int) []Match {
	out := make([]Match, 0, n)
	for i := range n {
		m := Match{Path: Path{PathBelow, fmt.Sprintf("/svc%d/v%d/", i/7, i%7)}}
		switch i % 10 {
		case 1:
			m.Path.Kind = PathExact
		case 2:
			m.Path = Path{PathRegex, fmt.Sprintf("^/svc%d/re/.*x", i)}
		case 3:
			m.Headers = []Value{{Name: "x-uid", Kind: ValueMod, Mod: 20, Residues: []uint64{3}}}
		}
		out = append(out, m)
	}
	return out
}

func TestMatchDoesNotAllocate(t *testing.T) {
	m := append(manyRules(100), Match{
		Methods: []string{"GET"}, Hosts: []string{"*.internal"}, Callers: []string{"10.0.0.0/8"},
		Path:    Path{PathPrefix, "/"},
		Headers: []Value{{Name: "x-uid", Kind: ValueIn, In: []string{"7", "23"}}},
		Query:   []Value{{Name: "name", Text: "a b"}, {Name: "n", Kind: ValueMod, Mod: 2, Residues: []uint64{1}}},
		Cookies: []Value{{Name: "c", Kind: ValuePrefix, Text: "x"}},
		Percent: 0.999999, HasPercent: true,
	})
	r, err := NewRules(m)
	if err != nil {
		t.Fatal(err)
	}
	f := &Facts{
		Method: "GET", Host: "A.internal:80", Path: "/other/x", Query: "n=%37&name=a%20b", Hash: 9,
		Fields: FieldList{{"X-UID", "1"}, {"x-uid", "23"}, {"cookie", "a=b; c=xy"}},
		Caller: Caller{Addr: netip.MustParseAddr("10.1.1.1")},
	}
	if i, ok := r.Match(f); !ok || i != 100 {
		t.Fatalf("rule %d misses %s", i, r.Misses(100, f))
	}
	if n := testing.AllocsPerRun(100, func() { r.Match(f) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{5, 5000} {
		r, err := NewRules(manyRules(n))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("%d/last", n), func(b *testing.B) {
			f := &Facts{Method: "GET", Path: fmt.Sprintf("/svc%d/v%d/items", (n-1)/7, (n-1)%7), Fields: FieldList{{"x-uid", "23"}}}
			if i, _ := r.Match(f); i != n-1 {
				b.Fatal(i)
			}
			for b.Loop() {
				r.Match(f)
			}
		})
		b.Run(fmt.Sprintf("%d/none", n), func(b *testing.B) {
			f := &Facts{Method: "GET", Path: "/nothing/like/that", Fields: FieldList{{"x-uid", "23"}}}
			for b.Loop() {
				r.Match(f)
			}
		})
	}
	b.Run("compile/5000", func(b *testing.B) {
		m := manyRules(5000)
		for b.Loop() {
			if _, err := NewRules(m); err != nil {
				b.Fatal(err)
			}
		}
	})
}
