package consul

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery"
)

// patience bounds every wait of a test.
const patience = time.Minute

// script is a registry that answers as a test says.
type script struct {
	*httptest.Server
	mu       sync.Mutex
	answer   http.HandlerFunc // guarded by mu
	changed  chan struct{}    // closed when answer changes, guarded by mu
	requests []request        // guarded by mu
}

type request struct {
	at          time.Time
	path, query string
	token       string
	index       string
}

func scripted(t *testing.T, answer http.HandlerFunc) *script {
	t.Helper()
	s := &script{answer: answer, changed: make(chan struct{})}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		f := s.answer
		s.requests = append(s.requests, request{
			at: time.Now(), path: r.URL.Path, query: r.URL.RawQuery, token: r.Header.Get("X-Consul-Token"), index: r.URL.Query().Get("index"),
		})
		s.mu.Unlock()
		f(w, r.WithContext(context.WithValue(r.Context(), scriptKey{}, s)))
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func (s *script) address() string { return s.Listener.Addr().String() }

type scriptKey struct{}

// hold waits for another answer and gives that, as a query that waits for a change does.
func hold(w http.ResponseWriter, r *http.Request) {
	s, ok := r.Context().Value(scriptKey{}).(*script)
	if !ok { // a server that changes nothing
		<-r.Context().Done()
		return
	}
	s.mu.Lock()
	changed := s.changed
	s.mu.Unlock()
	select {
	case <-changed:
		s.mu.Lock()
		f := s.answer
		s.mu.Unlock()
		f(w, r)
	case <-r.Context().Done():
	}
}

// becomes changes what is answered from now on, and forgets what was asked.
func (s *script) becomes(answer http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer, s.requests = answer, nil
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *script) asked() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[:len(s.requests):len(s.requests)]
}

// instances is the answer of a service with these addresses at an index: at once where the query does not wait for
// more than that, never otherwise.
func instances(index uint64, addresses ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("index") == fmt.Sprint(index) {
			hold(w, r)
			return
		}
		body(w, index, list(addresses...))
	}
}

func list(addresses ...string) string {
	var parts []string
	for _, a := range addresses {
		host, port, _ := net.SplitHostPort(a)
		parts = append(parts, fmt.Sprintf(`{"Node":{"Address":"10.9.9.9"},"Service":{"Address":%q,"Port":%s},"Checks":[{"CheckID":"x","Status":"passing"}]}`, host, port))
	}
	return "[" + strings.Join(parts, ",") + "]"
}

func body(w http.ResponseWriter, index uint64, text string) {
	w.Header().Set("X-Consul-Index", fmt.Sprint(index))
	w.Header().Set("X-Consul-Lastcontact", "0")
	_, _ = w.Write([]byte(text))
}

// rig is a source that runs, and what it reported.
type rig struct {
	t    *testing.T
	want chan []string
	all  chan discovery.Update

	source *Source
}

func start(t *testing.T, reg config.ConsulRegistry, names ...string) *rig {
	t.Helper()
	s, err := New(&config.Registry{Name: "main", Consul: &reg})
	if err != nil {
		t.Fatal(err)
	}
	return run(t, s, names...)
}

// run runs a source, fast.
func run(t *testing.T, s *Source, names ...string) *rig {
	t.Helper()
	s.tempo = tempo{refill: 100 * time.Millisecond, min: 50 * time.Millisecond, max: 400 * time.Millisecond}
	r := &rig{t: t, want: make(chan []string, 1), all: make(chan discovery.Update), source: s}
	r.want <- names
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- s.Run(ctx, r.want, func(u discovery.Update) {
			select {
			case r.all <- u:
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("the source ended: %v", err)
			}
		case <-time.After(patience):
			t.Error("the source does not end")
		}
	})
	return r
}

// registry is a configuration whose queries have time: a busy machine is no failure of the answer.
func registry(addresses ...string) config.ConsulRegistry {
	return config.ConsulRegistry{
		Addresses: addresses, Stale: true, Wait: time.Minute, Timeout: patience,
		MaxConnections: 16, MaxAnswer: 1 << 20,
	}
}

func (r *rig) next() discovery.Update {
	r.t.Helper()
	select {
	case u := <-r.all:
		return u
	case <-time.After(patience):
		r.t.Fatal("nothing was reported")
		return discovery.Update{}
	}
}

// expect waits for an answer with these addresses.
func (r *rig) expect(addresses ...string) {
	r.t.Helper()
	u := r.next()
	if u.Err != nil || u.Unchanged || show(u) != strings.Join(addresses, " ") {
		r.t.Fatalf("%q %v, unchanged: %v; want %v", show(u), u.Err, u.Unchanged, addresses)
	}
}

func (r *rig) failure() *Error {
	r.t.Helper()
	for {
		if u := r.next(); u.Err != nil {
			return classify(u.Err)
		}
	}
}

func show(u discovery.Update) string {
	var all []string
	for _, e := range u.Endpoints {
		all = append(all, e.Address)
	}
	return strings.Join(all, " ")
}

// Whatever a registry answers: the failure is told as one and named, there is no hot loop, and the good answer that comes
// after it counts.
func TestRogueAnswers(t *testing.T) {
	status := func(code int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, code) }
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		kind   Kind
	}{
		"403": {status(403, "ACL not found"), Forbidden},
		"429": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(429)
		}, RateLimited},
		"500":             {status(500, "rpc error: No cluster leader"), ServerError},
		"500 of a filter": {status(500, "Failed to create boolean expression evaluator for filter"), Rejected},
		"400":             {status(400, `Invalid query parameter: "ns"`), Rejected},
		"302":             {status(302, "elsewhere"), BadAnswer},
		"garbage":         {func(w http.ResponseWriter, _ *http.Request) { body(w, 7, "<html>hello</html>") }, BadAnswer},
		"another type":    {func(w http.ResponseWriter, _ *http.Request) { body(w, 7, `{"a": 1}`) }, BadAnswer},
		"nothing":         {func(w http.ResponseWriter, _ *http.Request) { body(w, 7, "") }, BadAnswer},
		"2 MB": {func(w http.ResponseWriter, _ *http.Request) {
			var many []string
			for i := range 20_000 {
				many = append(many, fmt.Sprintf("10.0.%d.%d:80", i/250, i%250))
			}
			body(w, 7, list(many...))
		}, TooLarge},
		"cut short": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "4000")
			body(w, 7, `[{"Node": {`)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, BadAnswer},
		"trickle": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Consul-Index", "7")
			for {
				select {
				case <-r.Context().Done():
					return
				case <-time.After(50 * time.Millisecond):
					_, _ = w.Write([]byte(" "))
					_ = http.NewResponseController(w).Flush()
				}
			}
		}, TimedOut},
		"silence": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, TimedOut},
		"reset":   {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, Unreachable},
		"empty by access control": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Consul-Default-Acl-Policy", "deny")
			body(w, 7, "[]")
		}, Forbidden},
		"filtered by access control": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Consul-Results-Filtered-By-Acls", "true")
			body(w, 7, "[]")
		}, Forbidden},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := scripted(t, c.answer)
			reg := registry(srv.address())
			if c.kind == TimedOut {
				reg.Timeout = 500 * time.Millisecond
			}
			r := start(t, reg, "web")
			began := time.Now()
			for range 3 {
				if e := r.failure(); e.Kind != c.kind {
					t.Errorf("%v, want %v", e, c.kind)
				}
			}
			asked := srv.asked()
			if perSecond := float64(len(asked)-1) / time.Since(began).Seconds(); perSecond > 30 {
				t.Errorf("%d queries in %v", len(asked), time.Since(began))
			}
			srv.becomes(instances(9, "10.0.0.1:80"))
			for {
				u := r.next()
				if u.Err != nil {
					continue
				}
				if show(u) != "10.0.0.1:80" {
					t.Errorf("%+v", u)
				}
				break
			}
		})
	}
}

// An answer at once, for ever: the pace is bounded, and what did not change is told as such.
func TestNoHotLoop(t *testing.T) {
	srv := scripted(t, func(w http.ResponseWriter, _ *http.Request) { body(w, 0, list("10.0.0.1:80")) })
	began := time.Now()
	r := start(t, registry(srv.address()), "web")
	r.expect("10.0.0.1:80")
	for range 5 {
		if u := r.next(); !u.Unchanged || u.Err != nil {
			t.Errorf("%+v", u)
		}
	}
	asked := srv.asked()
	for i := 2; i < len(asked); i++ { // two at once, then one each 100 ms; some may come late, none early
		if d := asked[i].at.Sub(began); d < time.Duration(i-1)*95*time.Millisecond {
			t.Errorf("%d queries within %v", i+1, d)
		}
	}
	if asked[1].index != "1" {
		t.Errorf("after index 0, index %q was waited for", asked[1].index)
	}
}

// An index that falls begins anew, and the answer that came with it counts (99a).
func TestIndexBackwards(t *testing.T) {
	srv := scripted(t, instances(100, "10.0.0.1:80"))
	r := start(t, registry(srv.address()), "web")
	r.expect("10.0.0.1:80")
	eventually(t, "the next query", func() bool { return len(srv.asked()) == 2 })
	srv.becomes(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("index") == "40" {
			hold(w, r)
			return
		}
		body(w, 40, list("10.0.0.2:80"))
	})
	r.expect("10.0.0.2:80") // to the query that waited for more than 100
	if u := r.next(); !u.Unchanged {
		t.Errorf("%+v", u)
	}
	eventually(t, "the next query", func() bool { return len(srv.asked()) == 2 })
	if asked := srv.asked(); asked[0].index != "" || asked[1].index != "40" {
		t.Errorf("%+v", asked)
	}
}

// The largest index is taken as it is.
func TestLargeIndex(t *testing.T) {
	const index = 18164065382700804514
	srv := scripted(t, instances(index, "10.0.0.1:80"))
	r := start(t, registry(srv.address()), "web")
	r.expect("10.0.0.1:80")
	eventually(t, "the next query", func() bool { return len(srv.asked()) == 2 })
	if got := srv.asked()[1].index; got != fmt.Sprint(uint64(index)) {
		t.Errorf("index %s", got)
	}
}

// A query that is never answered ends, and its connection with it (99d).
func TestSilentWait(t *testing.T) {
	srv := scripted(t, instances(5, "10.0.0.1:80"))
	reg := registry(srv.address())
	reg.Wait, reg.Timeout = time.Second, time.Second
	r := start(t, reg, "web")
	r.expect("10.0.0.1:80")
	if e := r.failure(); e.Kind != TimedOut {
		t.Errorf("%v", e)
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); <-time.After(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}
