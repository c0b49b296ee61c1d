package disk

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sidecar-mesh/sidecar/config"
)

var registry = &config.Registry{Name: "main", DNS: &config.DNSRegistry{Servers: []string{"10.0.0.1:53"}}}

func list(n int) []*config.Endpoint {
	var all []*config.Endpoint
	for i := range n {
		all = append(all, &config.Endpoint{
			Address: fmt.Sprintf("10.0.0.%d:80", i), Weight: i, Zone: "z", Version: "v", Group: "g", Region: "r",
			Labels: map[string]string{"a": "b\u2028\"<"},
		})
	}
	return all
}

// keep writes a list and returns the path of its file.
func keep(t *testing.T, o Options, service string, endpoints []*config.Endpoint) string {
	t.Helper()
	s := New(o)
	s.Save(registry, service, endpoints)
	s.write(time.Now(), true)
	c := s.content(registry, service, nil)
	return s.path(&c)
}

// TestSweep: what a killed process has left half written goes, but not what another one is writing.
func TestSweep(t *testing.T) {
	o := Options{Dir: t.TempDir()}
	kept := keep(t, o, "a", list(1))
	old, fresh := filepath.Join(o.Dir, ".123"+suffix), filepath.Join(o.Dir, ".456"+suffix)
	for _, name := range []string{old, fresh} {
		if err := os.WriteFile(name, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	for _, name := range []string{old, kept} {
		if err := os.Chtimes(name, now, now.Add(-2*abandoned)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := New(o).Run(ctx); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{old: false, fresh: true, kept: true} {
		if _, err := os.Stat(name); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	o := Options{Dir: filepath.Join(t.TempDir(), "made", "here")}
	long := strings.Repeat("x", 253)
	for i, service := range []string{"a", "a:80", "srv:_http._tcp.b.internal", "..", "a/../../b", long, long[:252] + ":", "é"} {
		path := keep(t, o, service, list(i+1))
		if filepath.Dir(path) != o.Dir || len(filepath.Base(path)) > 255 {
			t.Errorf("%s is kept at %s", service, path)
		}
		got, saved, err := New(o).Load(registry, service)
		if err != nil || time.Since(saved) > time.Minute || cmp.Diff(list(i+1), got) != "" {
			t.Errorf("%s: %v, %v %s", service, err, saved, cmp.Diff(list(i+1), got))
		}
	}
	if left, _ := filepath.Glob(filepath.Join(o.Dir, ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	keep(t, o, "a", nil)
	if got, _, err := New(o).Load(registry, "a"); len(got) > 0 || err != nil {
		t.Errorf("forgotten, and still there: %v %v", got, err)
	}
	if got, _, err := New(Options{}).Load(registry, "a"); len(got) > 0 || err != nil {
		t.Errorf("without a folder: %v %v", got, err)
	}
}

// TestForeign: a list of another registry, or another environment, is not ours.
func TestForeign(t *testing.T) {
	o := Options{Dir: t.TempDir(), Scope: "prod"}
	path := keep(t, o, "a", list(1))
	other := *registry
	other.DNS = &config.DNSRegistry{Servers: []string{"10.0.0.2:53"}}
	for name, load := range map[string]func() ([]*config.Endpoint, time.Time, error){
		"registry": func() ([]*config.Endpoint, time.Time, error) { return New(o).Load(&other, "a") },
		"scope": func() ([]*config.Endpoint, time.Time, error) {
			return New(Options{Dir: o.Dir, Scope: "test"}).Load(registry, "a")
		},
	} {
		if got, _, err := load(); len(got) > 0 || err != nil {
			t.Errorf("another %s: %v %v", name, got, err)
		}
	}
	s := New(o)
	c := s.content(registry, "b", nil)
	if err := os.Rename(path, s.path(&c)); err != nil {
		t.Fatal(err)
	}
	if got, _, err := s.Load(registry, "b"); len(got) > 0 || err == nil || !strings.Contains(err.Error(), "foreign") {
		t.Errorf("put in place of another: %v %v", got, err)
	}
}

// TestDamaged: a file with any bit turned, or cut off anywhere, is an error and no list.
func TestDamaged(t *testing.T) {
	c := content{registry: "r", service: "s", list: list(2)}
	good := c.encode(time.Unix(1, 0))
	if got, _, err := decode(good, &c); err != nil || len(got) != 2 {
		t.Fatal(err)
	}
	for i := range good {
		bad := slices.Clone(good)
		bad[i] ^= 0x10
		if _, _, err := decode(bad, &c); err == nil {
			t.Errorf("a bit of byte %d is not missed", i)
		}
		if _, _, err := decode(good[:i], &c); err == nil {
			t.Errorf("what is behind byte %d is not missed", i)
		}
	}
	for _, text := range []string{"", "\n", "sidecar-endpoints 2 x\n{}", strings.Repeat("x", 1<<16)} {
		if _, _, err := decode([]byte(text), &c); err == nil {
			t.Errorf("%.20q is a list", text)
		}
	}
}

// TestNotWritable: it is told, tried again, and told when it is over.
func TestNotWritable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // a file where the folder should be
		t.Fatal(err)
	}
	var failed, well atomic.Int32
	s := New(Options{Dir: dir, MinGap: time.Nanosecond, Failed: func(error) { failed.Add(1) }, Well: func() { well.Add(1) }})
	s.Save(registry, "a", list(1))
	s.write(time.Now(), false)
	if failed.Load() != 1 || well.Load() != 0 {
		t.Errorf("%d failures, %d times well", failed.Load(), well.Load())
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	s.write(time.Now().Add(time.Second), false)
	if failed.Load() != 1 || well.Load() != 1 {
		t.Errorf("%d failures, %d times well", failed.Load(), well.Load())
	}
	if got, _, err := s.Load(registry, "a"); len(got) != 1 {
		t.Errorf("%v %v", got, err)
	}
}

// TestFlapping: a list that changes ten times a second for a minute is written once a gap, and the last one at the end.
func TestFlapping(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Dir: dir})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		c := s.content(registry, "a", nil)
		path, writes := s.path(&c), 0
		var last time.Time
		for i := range 600 {
			s.Save(registry, "a", list(1+i%3))
			synctest.Wait()
			if st, err := os.Stat(path); err == nil {
				s.mu.Lock()
				if at := s.written[path]; !at.Equal(last) {
					last = at
					writes++
				}
				s.mu.Unlock()
				_ = st
			}
			time.Sleep(100 * time.Millisecond)
		}
		s.Save(registry, "a", list(7))
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		s.Flush()
		if writes < 11 || writes > 13 {
			t.Errorf("%d writes in a minute", writes)
		}
	})
	if got, _, err := New(Options{Dir: dir}).Load(registry, "a"); len(got) != 7 {
		t.Errorf("%d endpoints, %v", len(got), err)
	}
}

func FuzzDecode(f *testing.F) {
	c := content{registry: "r", service: "s", scope: "x", list: list(3)}
	f.Add(c.encode(time.Unix(1, 0)), false)
	f.Add([]byte(`{"registry":"r","service":"s","scope":"x","endpoints":[{"address":"a:1","weight":-1}]}`), true)
	f.Add([]byte(`{"registry":"r","service":"s","scope":"x","endpoints":[{"address":"a\u0000:1"}]}`), true)
	f.Fuzz(func(t *testing.T, data []byte, signed bool) {
		if signed { // what a checksum cannot tell
			data = sign(magic, data)
		}
		got, _, err := decode(data, &c)
		if err != nil && got != nil {
			t.Fatal("a list and an error")
		}
		for _, e := range got {
			if e.Address == "" || e.Weight < 0 || e.Weight > maxWeight || !plain(e.Address) || len(e.Labels) > maxLabels {
				t.Fatalf("%+v", e)
			}
		}
		if again, _, err := decode((&content{registry: "r", service: "s", scope: "x", list: got}).encode(time.Unix(1, 0)), &c); err != nil || cmp.Diff(got, again) != "" && len(got) > 0 {
			t.Fatalf("not the same again: %v %s", err, cmp.Diff(got, again))
		}
	})
}
