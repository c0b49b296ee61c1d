package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	cases := []struct {
		name, in string
		want     map[string][]*config.Endpoint
		bad      []string // all must be in the error
	}{
		{
			name: "services", in: "catalog: [10.0.0.1:8080, {address: '[::1]:81', weight: 3, zone: z, labels: {a: 1}}]\nempty: []\n",
			want: map[string][]*config.Endpoint{
				"catalog": {{Address: "10.0.0.1:8080", Weight: 1}, {Address: "[::1]:81", Weight: 3, Zone: "z", Labels: map[string]string{"a": "1"}}},
				"empty":   {},
			},
		},
		{
			name: "json", in: "{\n\t\"a\": [\"unix:/run/a.sock\", {\"address\": \"srv:_http._tcp.a\", \"group\": \"g\"}, \"_http._tcp.b\"]\n}",
			want: map[string][]*config.Endpoint{"a": {
				{Address: "unix:/run/a.sock", Weight: 1},
				{Address: "srv:_http._tcp.a", Weight: 1, Group: "g"},
				{Address: "_http._tcp.b", Weight: 1},
			}},
		},
		{
			name: "file_sd", in: `[{"targets": ["h1.internal:80", "10.0.0.2:80"], "labels": {"service": "s", "weight": "5", "region": "r", "job": "j", "__x": "y"}},
			{"targets": ["10.0.0.3:80"], "labels": {"service": "s"}}, {"targets": ["10.0.0.4:80"]}, {"targets": []}]`,
			want: map[string][]*config.Endpoint{
				"s": {
					{Address: "h1.internal:80", Weight: 5, Region: "r", Labels: map[string]string{"job": "j"}},
					{Address: "10.0.0.2:80", Weight: 5, Region: "r", Labels: map[string]string{"job": "j"}},
					{Address: "10.0.0.3:80", Weight: 1},
				},
				"file": {{Address: "10.0.0.4:80", Weight: 1}},
			},
		},
		{name: "nothing", in: "{}", want: map[string][]*config.Endpoint{}},
		{name: "empty", in: "# only this\n", bad: []string{"dir/file.yaml:1:1: the document is empty"}},
		{name: "syntax", in: "a:\n  - x\n b: [\n", bad: []string{"dir/file.yaml:2: did not find"}},
		{name: "scalar", in: "x", bad: []string{"file.yaml:1:1: expected services"}},
		{name: "all at once", in: "a: [10.0.0.1, 10.0.0.1:0, {adress: x}, {address: 'a b:1'}]\na: []\nb: {}\nc: [{address: x:1, weight: -1}]\nd: [[]]\ne: ~\n", bad: []string{
			`1:5: address "10.0.0.1": expected host:port`, `1:15: address "10.0.0.1:0": expected a port`, "1:28: adress: unknown",
			"1:27: an endpoint needs an address", `1:50: address "a b:1": a blank`, "2:1: a: given already in line 1", "3:4: b: expected a list of endpoints, found a map",
			"4:28: weight: expected", "5:5: expected a map, found a list", "6:4: e: expected a list of endpoints, found nothing",
		}},
		{name: "groups", in: "- {targets: x}\n- {labels: {}}\n- 1\n- {targets: [], other: 1}\n", bad: []string{
			"1:3: targets: expected a list", "2:3: targets: expected a list", "3:3: expected a map", "4:17: other: unknown",
		}},
		{name: "aliases", in: "a: &x [10.0.0.1:1]\nb: *x\n", bad: []string{"2:4: b: expected a list of endpoints, found an alias (not supported)"}},
		{name: "two documents", in: "a: []\n---\nb: []\n", bad: []string{"a second document"}},
		{name: "two documents, the other bad", in: "a: []\n---\nb: [\n", want: nil, bad: []string{"file.yaml"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p, err := parse("dir/file.yaml", []byte(c.in))
			if len(c.bad) > 0 {
				if err == nil {
					t.Fatal("no error")
				}
				for _, b := range c.bad {
					if !strings.Contains(err.Error(), b) {
						t.Errorf("%q is not in\n%v", b, err)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, p.services, cmpopts.IgnoreFields(config.Endpoint{}, "From")); d != "" {
				t.Error(d)
			}
			for _, list := range p.services {
				for _, e := range list {
					if e.From.Source == nil || e.From.Source.Name != "dir/file.yaml" {
						t.Errorf("%s does not say where it comes from", e.Address)
					}
				}
			}
		})
	}
}

// script is a watch that a test moves by hand.
type script struct{ change chan struct{} }

func (s *script) watch(string) func(context.Context, func()) error {
	return func(ctx context.Context, changed func()) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case _, ok := <-s.change:
				if !ok {
					return errors.New("no more events")
				}
				changed()
			}
		}
	}
}

// rig runs a source over a folder.
type rig struct {
	*script
	t       *testing.T
	dir     string
	want    chan []string
	updates chan discovery.Update
	done    chan error
}

func start(t *testing.T, path string) *rig {
	t.Helper()
	r := &rig{
		script: &script{change: make(chan struct{})}, t: t, dir: path,
		want: make(chan []string, 1), updates: make(chan discovery.Update, 100), done: make(chan error, 1),
	}
	src, err := New(&config.Registry{Name: "old", File: &config.FileRegistry{Path: path}}, r.watch)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { r.done <- src.Run(ctx, r.want, func(u discovery.Update) { r.updates <- u }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-r.done; err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) put(name, content string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(content), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// next gives the next answer as text.
func (r *rig) next() string {
	r.t.Helper()
	select {
	case u := <-r.updates:
		if u.Err != nil {
			return fmt.Sprintf("%s: error %v", u.Service, u.Err)
		}
		var all []string
		for _, e := range u.Endpoints {
			all = append(all, e.Address)
		}
		return u.Service + ": " + strings.Join(all, " ")
	case <-time.After(time.Minute):
		r.t.Fatal("no answer")
		return ""
	}
}

func (r *rig) expect(want ...string) {
	r.t.Helper()
	for _, w := range want {
		got := r.next()
		if prefix, ok := strings.CutSuffix(w, "*"); ok && strings.HasPrefix(got, prefix) {
			continue
		}
		if got != w {
			r.t.Errorf("got %q, want %q", got, w)
		}
	}
}

func TestFolder(t *testing.T) {
	r := &rig{t: t, dir: t.TempDir()}
	r.put("a.yaml", "a: [10.0.0.1:1]\n")
	r.put("b.json", `[{"targets": ["10.0.0.2:1"], "labels": {"service": "b"}}]`)
	r.put(".hidden.yaml", "nonsense")
	r.put("notes.txt", "nonsense")
	r = start(t, r.dir)
	r.want <- []string{"a", "b", "c"}
	r.expect("a: 10.0.0.1:1", "b: 10.0.0.2:1", "c: ")

	// A bad file keeps what it said, and the others go on.
	r.put("a.yaml", "a: [10.0.0.1:1, oops]\n")
	r.put("b.json", `[{"targets": ["10.0.0.3:1"], "labels": {"service": "b"}}]`)
	r.change <- struct{}{}
	r.expect("a: error "+filepath.Join(r.dir, "a.yaml")+":1:17: address*", "b: 10.0.0.3:1", "c: error "+r.dir+"*")
	r.put("a.yaml", "a: [10.0.0.4:1]\n")
	r.change <- struct{}{}
	r.expect("a: 10.0.0.4:1", "c: ") // nothing new about b

	// Given twice: an error for that service, nothing for its neighbours.
	r.put("c.yaml", "a: [10.0.0.9:1]\nc: [10.0.0.5:1]\n")
	r.change <- struct{}{}
	r.expect("a: error "+filepath.Join(r.dir, "c.yaml")+":1: a stands already at "+filepath.Join(r.dir, "a.yaml")+":1", "c: 10.0.0.5:1")
	if err := os.Remove(filepath.Join(r.dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	r.change <- struct{}{}
	r.expect("a: 10.0.0.9:1")

	// A bad file where every wanted service stands in another one disturbs none of them, and is told of, once, as is its end.
	r.put("bad.yaml", "a: [10.0.0.8:1")
	r.change <- struct{}{}
	r.expect(": error " + filepath.Join(r.dir, "bad.yaml") + ":1*")
	r.put("c.yaml", "a: [10.0.0.10:1]\nc: [10.0.0.5:1]\n")
	r.change <- struct{}{}
	r.expect("a: 10.0.0.10:1", "c: 10.0.0.5:1")
	if err := os.Remove(filepath.Join(r.dir, "bad.yaml")); err != nil {
		t.Fatal(err)
	}
	r.change <- struct{}{}
	r.expect(": ")

	// Only what is newly wanted is answered anew.
	r.want <- []string{"a", "d"}
	r.expect("d: ")
	// The folder as a whole gone is a failure, not an empty answer.
	if err := os.RemoveAll(r.dir); err != nil {
		t.Fatal(err)
	}
	r.change <- struct{}{}
	r.expect("a: error*", "d: error*")
}

// A file whose stamp is as it was is not read, unless something must have changed that no stamp tells of.
func TestReadAgain(t *testing.T) {
	r := &rig{t: t, dir: t.TempDir()}
	r.put("a.yaml", "a: [10.0.0.1:1]\n")
	r.put("b.yaml", "b: [10.0.0.2:1]\n")
	src, err := New(&config.Registry{Name: "old", File: &config.FileRegistry{Path: r.dir}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Hour)
	if !src.read(later, true) || src.read(later, false) || src.read(later, true) {
		t.Error("a change where there was none, or none where there was one")
	}
	path := filepath.Join(r.dir, "a.yaml")
	before := src.files[path]
	before.sum[0]++ // as if the content had changed
	if runtime.GOOS == "linux" && src.read(later, false) {
		t.Error("an unchanged file was read again")
	}
	if !src.read(later, true) || src.files[path] == before {
		t.Error("a file was not read again although all were to be")
	}
	r.put("a.yaml", "a: [10.0.0.3:1]\n")                                    // in place, as long as before
	if at := time.Now().Add(time.Second); os.Chtimes(path, at, at) != nil { // the clock of a file system may stand still meanwhile
		t.Fatal("no time of its own")
	}
	said := src.said
	if !src.read(later, false) || src.same(&said, "a") || !src.same(&said, "b") {
		t.Error("a changed file was not read again, or changed its neighbour")
	}
}

func TestAbsentFile(t *testing.T) {
	r := start(t, filepath.Join(t.TempDir(), "none.yaml"))
	r.want <- []string{"a"}
	r.expect("a: error*")
	if err := os.WriteFile(r.dir, []byte("a: [10.0.0.1:1]"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.change <- struct{}{}
	r.expect("a: 10.0.0.1:1")
}

func TestWatchThatEnds(t *testing.T) {
	s := &script{change: make(chan struct{})}
	close(s.change)
	src, err := New(&config.Registry{File: &config.FileRegistry{Path: t.TempDir()}}, s.watch)
	if err != nil {
		t.Fatal(err)
	}
	if err := src.Run(t.Context(), nil, func(discovery.Update) {}); err == nil {
		t.Error("no error")
	}
	if _, err := New(&config.Registry{DNS: &config.DNSRegistry{}}, nil); err == nil {
		t.Error("a DNS registry was taken")
	}
}

func TestBounds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "big.yaml")
	if err := os.WriteFile(path, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := slurp(path); err == nil {
		t.Error("too large a file was read")
	}
	if _, err := slurp(filepath.Dir(path)); err == nil {
		t.Error("a folder was read")
	}
	pipe := filepath.Join(t.TempDir(), "pipe.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := slurp(pipe); err == nil { // and nobody writes to it: it is not waited for
		t.Error("a pipe was read")
	}
	var b strings.Builder
	b.WriteString("a: [{address: x:1, labels: {")
	for i := range maxLabels + 1 {
		fmt.Fprintf(&b, "l%d: x, ", i)
	}
	b.WriteString("}}]")
	if _, err := parse("f", []byte(b.String())); err == nil || !strings.Contains(err.Error(), "labels") {
		t.Errorf("too many labels: %v", err)
	}
	if _, err := parse("f", []byte(strings.Repeat("- 1\n", 1000))); err == nil || strings.Count(err.Error(), "\n") >= maxErrors {
		t.Error("errors are not bounded")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("catalog: [10.0.0.1:8080, {address: 'a.b:1', weight: 3, labels: {a: b}}]")
	f.Add(`[{"targets": ["h:80"], "labels": {"service": "s", "weight": "5"}}]`)
	f.Add("a: &x [b:1]\nc: *x")
	f.Add("? [a]\n: b\n---\n- ~")
	f.Fuzz(func(t *testing.T, in string) {
		p, err := parse("f.yaml", []byte(in))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f.yaml") {
				t.Errorf("an error without a place: %v", err)
			}
			return
		}
		for name, list := range p.services {
			for _, e := range list {
				if name == "" || wrong(e.Address) != "" || e.Weight < 0 || e.Weight > maxWeight || len(e.Labels) > maxLabels {
					t.Errorf("%q: %+v", name, e)
				}
			}
		}
	})
}
