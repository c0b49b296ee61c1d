package consul

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/internal/loopback"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What is asked, and how.
func TestQuery(t *testing.T) {
	srv := scripted(t, instances(5, "10.0.0.1:80"))
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, "secret\n")
	reg := registry("http://" + srv.address())
	reg.TokenFile, reg.Datacenter, reg.Namespace, reg.Near, reg.Filter = file, "dc2", "team", "_agent", `Service.Meta.a == "b"`
	r := start(t, reg, "web-app")
	r.expect("10.0.0.1:80")
	eventually(t, "the next query", func() bool { return len(srv.asked()) == 2 })
	first, second := srv.asked()[0], srv.asked()[1]
	if first.path != "/v1/health/service/web-app" || first.token != "secret" || first.index != "" {
		t.Errorf("%+v", first)
	}
	for _, q := range []string{"dc=dc2", "ns=team", "near=_agent", "stale=", "filter=Service.Meta.a"} {
		if !strings.Contains(first.query, q) {
			t.Errorf("no %s in %s", q, first.query)
		}
	}
	if second.index != "5" || !strings.Contains(second.query, "wait=60000ms") {
		t.Errorf("%+v", second)
	}
	// A new token counts from the next query on; a file that is gone for a moment takes nothing away.
	write(t, file, "other")
	denied := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "ACL not found", http.StatusForbidden) }
	srv.becomes(denied)
	r.failure()
	r.failure()
	if got := srv.asked()[0].token; got != "other" {
		t.Errorf("token %q", got)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	srv.becomes(denied)
	r.failure()
	if e, want := r.failure(), "; the token is the one before, token_file: open "+file+": no such file or directory"; !strings.HasSuffix(e.Text, want) {
		t.Errorf("%q does not say %q", e.Text, want)
	}
	if got := srv.asked()[0].token; got != "other" {
		t.Errorf("token %q", got)
	}
}

// A token's file that was never there is named where it is missed.
func TestNoTokenFile(t *testing.T) {
	srv := scripted(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "ACL not found", http.StatusForbidden) })
	reg := registry("http://" + srv.address())
	reg.TokenFile = filepath.Join(t.TempDir(), "token")
	e := start(t, reg, "a").failure()
	if want := "; token_file: open " + reg.TokenFile + ": no such file or directory"; e.Kind != Forbidden || !strings.HasSuffix(e.Text, want) {
		t.Errorf("%q does not say %q", e.Text, want)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Instances of all kinds: by hand, by Registrator, by a sidecar; unfit ones too.
func TestEndpoints(t *testing.T) {
	srv := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("index") == "3" {
			hold(w, r)
			return
		}
		body(w, 3, `[
{"Node": {"Address": "10.0.0.9"}, "Service": {"Port": 81}},
{"Node": {"Address": "10.0.0.9"}, "Service": {"Address": "fd00::1", "Port": 82, "Tags": ["v1", "zone=z2", "team=a"], "Weights": {"Passing": 10, "Warning": 2}},
 "Checks": [{"CheckID": "serfHealth", "Status": "passing"}, {"CheckID": "c", "Status": "warning"}]},
{"Service": {"Address": "10.0.0.3", "Port": 83, "Meta": {"group": "core", "version": "v3", "zone": "z1", "region": "r1", "weight": "7", "protocol": "grpc"}, "Tags": ["zone=z2"], "Weights": {"Passing": 1, "Warning": 1}},
 "Checks": [{"CheckID": "serfHealth", "Status": "critical"}]},
{"Service": {"Address": "10.0.0.4", "Port": 84, "Locality": {"Region": "r2", "Zone": "z3"}}, "Checks": [{"CheckID": "_service_maintenance:x", "Status": "critical"}]},
{"Service": {"SocketPath": "/run/app.sock"}},
{"Service": {"Address": "10.0.0.6", "Port": 0}}]`)
	})
	r := start(t, registry(srv.address()), "web")
	u := r.next()
	want := []config.Endpoint{
		{Address: "10.0.0.3:83", Weight: 7, Group: "core", Version: "v3", Zone: "z1", Region: "r1", Health: config.HealthCritical},
		{Address: "10.0.0.4:84", Weight: 1, Zone: "z3", Region: "r2", Health: config.HealthMaintenance},
		{Address: "10.0.0.9:81", Weight: 1},
		{Address: "[fd00::1]:82", Weight: 2, Zone: "z2", Health: config.HealthWarning},
		{Address: "unix:/run/app.sock", Weight: 1},
	}
	if u.Err != nil || len(u.Endpoints) != len(want) {
		t.Fatalf("%v %v", show(u), u.Err)
	}
	for i, w := range want {
		g := *u.Endpoints[i]
		g.Labels, g.From = nil, config.Origin{}
		if got := g; got.Address != w.Address || got.Weight != w.Weight || got.Group != w.Group || got.Version != w.Version ||
			got.Zone != w.Zone || got.Region != w.Region || got.Health != w.Health {
			t.Errorf("%+v, want %+v", got, w)
		}
	}
	if l := u.Endpoints[3].Labels; l["v1"] != "true" || l["team"] != "a" {
		t.Errorf("labels of tags: %v", l)
	}
	if l := u.Endpoints[0].Labels; l["protocol"] != "grpc" || l["zone"] != "z1" {
		t.Errorf("labels of metadata: %v", l)
	}
	if s := u.Endpoints[0].From.Source; s == nil || s.Name != "registry main" {
		t.Errorf("from %v", s)
	}
}

// Only instances with the wanted tags and metadata count.
func TestFilters(t *testing.T) {
	srv := scripted(t, func(w http.ResponseWriter, _ *http.Request) {
		body(w, 3, `[{"Service": {"Address": "10.0.0.1", "Port": 80, "Tags": ["a", "b"], "Meta": {"env": "prod"}}},
{"Service": {"Address": "10.0.0.2", "Port": 80, "Tags": ["a"], "Meta": {"env": "prod"}}},
{"Service": {"Address": "10.0.0.3", "Port": 80, "Tags": ["b", "a"], "Meta": {"env": "test"}}}]`)
	})
	reg := registry(srv.address())
	reg.Tags, reg.Meta = []string{"a", "b"}, map[string]string{"env": "prod"}
	start(t, reg, "web").expect("10.0.0.1:80")
}

// A wake-up that changed nothing useful is told as such, whatever else the answer says.
func TestUnchanged(t *testing.T) {
	srv := scripted(t, instances(5, "10.0.0.1:80"))
	r := start(t, registry(srv.address()), "web")
	r.expect("10.0.0.1:80")
	eventually(t, "the next query", func() bool { return len(srv.asked()) == 2 })
	srv.becomes(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("index") == "6" {
			hold(w, r)
			return
		}
		body(w, 6, strings.Replace(list("10.0.0.1:80"), `"CheckID":"x"`, `"CheckID":"x","Output":"took 3 ms"`, 1))
	})
	if u := r.next(); !u.Unchanged || u.Err != nil {
		t.Errorf("%+v", u)
	}
}

// Plain polling: no query waits.
func TestPoll(t *testing.T) {
	srv := scripted(t, func(w http.ResponseWriter, _ *http.Request) { body(w, 5, list("10.0.0.1:80")) })
	reg := registry(srv.address())
	reg.Poll = 500 * time.Millisecond
	r := start(t, reg, "web")
	r.expect("10.0.0.1:80")
	for range 2 {
		if u := r.next(); !u.Unchanged {
			t.Errorf("%+v", u)
		}
	}
	for _, a := range srv.asked() {
		if a.index != "" || strings.Contains(a.query, "wait=") {
			t.Errorf("%+v", a)
		}
	}
}

// free is an address at which nobody listens, and nobody else will.
func free(t *testing.T) string {
	t.Helper()
	address, err := loopback.Free(loopback.Own(), "0")
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// The second address answers where the first one cannot, and the first one again when it is back.
func TestFailover(t *testing.T) {
	second := scripted(t, instances(50, "10.0.0.2:80"))
	dead := free(t)
	reg := registry(dead, second.address())
	reg.Wait, reg.Timeout = time.Second, time.Second
	r := start(t, reg, "web")
	until := func(want string) { // a busy machine may let a query run into its limit meanwhile
		for u := r.next(); show(u) != want; u = r.next() {
		}
	}
	until("10.0.0.2:80")
	l, err := net.Listen("tcp", dead)
	if err != nil {
		t.Fatal(err)
	}
	back := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { body(w, 7, list("10.0.0.1:80")) }), ReadHeaderTimeout: patience}
	go func() { _ = back.Serve(l) }()
	t.Cleanup(func() { _ = back.Close() })
	until("10.0.0.1:80")
}

// Of many watches one alone tries an agent that is down; all go on at once when it is back.
func TestDownAgent(t *testing.T) {
	address := free(t)
	var names []string
	for i := range 40 {
		names = append(names, "s"+string(rune('A'+i)))
	}
	slices.Sort(names)
	reg := registry(address)
	reg.Timeout = time.Second // there are fewer connections than names: each waits for the turn of another
	r := start(t, reg, names...)
	for range names { // each one is told of once
		if e := r.failure(); e.Kind != Unreachable {
			t.Errorf("%v", e)
		}
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: instances(7, "10.0.0.1:80"), ReadHeaderTimeout: patience}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	for heard := map[string]bool{}; len(heard) < len(names); {
		if u := r.next(); u.Err == nil {
			heard[u.Service] = true
		}
	}
}

// After a failure the next query does not wait for a change: that the registry is back is known although nothing changed.
func TestBackUnchanged(t *testing.T) {
	srv := scripted(t, instances(5, "10.0.0.1:80"))
	r := start(t, registry(srv.address()), "web")
	r.expect("10.0.0.1:80")
	srv.becomes(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "No cluster leader", http.StatusInternalServerError)
	})
	r.failure()
	srv.becomes(instances(5, "10.0.0.1:80"))
	u := r.next()
	for u.Err != nil {
		u = r.next()
	}
	if !u.Unchanged {
		t.Errorf("%+v", u)
	}
}

// More services than connections take turns, and each is heard.
func TestTurns(t *testing.T) {
	srv := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("index") != "" {
			wait, _ := time.ParseDuration(r.URL.Query().Get("wait"))
			if wait > 2*time.Second {
				t.Errorf("a query waits for %v", wait)
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-r.Context().Done():
			}
		}
		body(w, 5, list("10.0.0.1:80"))
	})
	reg := registry(srv.address())
	reg.MaxConnections = 2
	names := strings.Split("a b c d e f g h i j", " ")
	r := start(t, reg, names...)
	count := map[string]int{}
	for len(count) < len(names) || slices.Min(values(count)) < 2 {
		count[r.next().Service]++
	}
}

func values(m map[string]int) []int {
	var all []int
	for _, v := range m {
		all = append(all, v)
	}
	return all
}

// A service that is no longer wanted is no longer asked for; the others go on.
func TestWant(t *testing.T) {
	srv := scripted(t, instances(5, "10.0.0.1:80"))
	r := start(t, registry(srv.address()), "a")
	r.expect("10.0.0.1:80")
	r.want <- []string{"b"}
	if u := r.next(); u.Service != "b" {
		t.Errorf("%+v", u)
	}
}

func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: instances(7, "10.0.0.1:80"), ReadHeaderTimeout: patience}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	start(t, registry("unix:"+path), "web").expect("10.0.0.1:80")
}

func TestPace(t *testing.T) {
	p := pace{tempo: usual()}
	now := time.Unix(1000, 0)
	for i, want := range []time.Duration{0, 0, time.Second} {
		if d := p.next(now); d != want {
			t.Errorf("turn %d: %v, want %v", i, d, want)
		}
	}
	now = now.Add(time.Minute)
	var last time.Duration
	for i := range 12 {
		p.failed(now, 0, 1)
		d := p.next(now)
		if d < last || d > usual().max {
			t.Errorf("after %d failures %v, before %v", i+1, d, last)
		}
		last = d
		now = now.Add(d)
	}
	if last != usual().max {
		t.Errorf("%v", last)
	}
	p.failed(now, time.Hour, 0)
	if d := p.next(now); d != maxAfter {
		t.Errorf("%v", d)
	}
	p.succeeded()
	if d := p.next(now.Add(time.Hour)); d != 0 {
		t.Errorf("%v", d)
	}
}

func TestCursor(t *testing.T) {
	var c cursor
	for _, step := range []struct{ answer, next uint64 }{{0, 1}, {0, 0}, {7, 7}, {7, 7}, {3, 0}, {3, 3}, {1<<64 - 1, 1<<64 - 1}, {5, 0}} {
		c.answered(step.answer)
		if c.index != step.next {
			t.Errorf("after %d: %d, want %d", step.answer, c.index, step.next)
		}
	}
}

// While the gate is closed nothing is pulled that was delivered before; the first answer is not held up.
func TestGate(t *testing.T) {
	srv := scripted(t, func(w http.ResponseWriter, _ *http.Request) { body(w, 0, list("10.0.0.1:80")) })
	reg := registry(srv.address())
	s, err := New(&config.Registry{Name: "main", Consul: &reg})
	if err != nil {
		t.Fatal(err)
	}
	open := make(chan struct{})
	asked := make(chan struct{}, 100)
	s.Gate(func(ctx context.Context) error {
		asked <- struct{}{}
		select {
		case <-open:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	r := run(t, s, "web")
	r.expect("10.0.0.1:80")
	<-asked
	if n := len(srv.asked()); n != 1 {
		t.Errorf("%d queries", n)
	}
	close(open)
	if u := r.next(); !u.Unchanged {
		t.Errorf("%+v", u)
	}
}
