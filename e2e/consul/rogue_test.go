package consul

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// rogue is a registry that answers as it is told to.
type rogue struct {
	*httptest.Server
	mu      sync.Mutex
	answer  http.HandlerFunc // nil: the good one, guarded by mu
	queries int              // guarded by mu
	changed chan struct{}    // closed when the answer is another one, guarded by mu
}

// newRogue starts one that is good at first.
func newRogue(t *testing.T, good http.HandlerFunc) *rogue {
	t.Helper()
	r := &rogue{changed: make(chan struct{})}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		r.queries++
		answer, changed := r.answer, r.changed
		r.mu.Unlock()
		if answer == nil && q.URL.Query().Get("index") == "50" { // there is nothing new
			select {
			case <-changed:
			case <-q.Context().Done():
				return
			}
			r.mu.Lock()
			answer = r.answer
			r.mu.Unlock()
		}
		if answer == nil {
			answer = good
		}
		answer(w, q)
	}))
	t.Cleanup(func() {
		r.CloseClientConnections()
		r.Close()
	})
	return r
}

func (r *rogue) become(answer http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *rogue) asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.queries
}

// says answers with an index and a body.
func says(index int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Consul-Index", fmt.Sprint(index))
		w.Header().Set("X-Consul-Lastcontact", "0")
		_, _ = fmt.Fprint(w, body)
	}
}

// Whatever a registry answers, the last good list stays in use without a failed call, the registry is not asked more than twice a
// second, and the metrics say what is wrong; then it is heard again.
func TestRogueRegistry(t *testing.T) {
	t.Parallel()
	origin := who(t, "good")
	host, port, _ := strings.Cut(origin.Address, ":")
	good := fmt.Sprintf(`[{"Node":{"Address":%q},"Service":{"Address":%q,"Port":%s}}]`, host, host, port)
	reg := newRogue(t, says(50, good))
	p := sidecartest.Run(t, `
registries: {main: {consul: {address: %q, timeout: 500ms, max_answer: 1MiB}}}
services: {web: {from: main, policy: {retry: 0}}}
telemetry: {access_log: {format: none}}`, reg.Listener.Addr())
	seen(t, p, "web", soon, "good")
	load := sidecartest.Steady(t, sidecartest.Call{Address: p.Outbound, Host: "web", Path: "/", Callers: 2, Pause: 5 * time.Millisecond})
	failed := func(reason string) float64 {
		return p.Metric(t, "sidecar_discovery_failures_total", `source="main"`, `reason="`+reason+`"`)
	}
	lasts := 2 * time.Second
	if soak {
		lasts = 15 * time.Second
	}
	for _, c := range []struct {
		name, reason string
		answer       http.HandlerFunc
	}{
		{"403", "forbidden", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "ACL not found", http.StatusForbidden) }},
		{"429", "rate_limited", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }},
		{"500", "server_error", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "No cluster leader", http.StatusInternalServerError)
		}},
		{"garbage", "bad_answer", says(51, "<html>hello</html>")},
		{"2 MB", "too_large", says(51, "["+strings.Repeat(good[1:len(good)-1]+",", 2<<20/len(good))+good[1:])},
		{"backwards", "", says(3, good)},
		{"trickle", "timeout", func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				_, _ = w.Write([]byte(" "))
				_ = http.NewResponseController(w).Flush()
				<-time.After(50 * time.Millisecond)
			}
		}},
		{"cut short", "bad_answer", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "4000")
			_, _ = w.Write([]byte(good[:20]))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}},
	} {
		was, before, began := 0.0, reg.asked(), time.Now()
		if c.reason != "" {
			was = failed(c.reason)
		}
		reg.become(c.answer)
		<-time.After(lasts)
		took, n := time.Since(began), reg.asked()-before
		if most := 2*took.Seconds() + 2; float64(n) > most || n == 0 {
			t.Errorf("%s: %d queries in %v", c.name, n, took)
		}
		if c.reason != "" && failed(c.reason) <= was {
			t.Errorf("%s: %s is not named", c.name, c.reason)
		}
		if got := ask(t, p, "web"); got != "good" {
			t.Errorf("%s: %s", c.name, got)
		}
		t.Logf("%s: %d queries in %v", c.name, n, took.Round(time.Millisecond))
		reg.become(nil)
		sidecartest.Eventually(t, 40*time.Second, "it is heard again after "+c.name, func() bool {
			return p.Metric(t, "sidecar_discovery_failing", `source="main"`) == 0
		})
	}
	load.Stop()
	if calls, bad := load.Count(); bad > 0 || calls < 500 {
		t.Errorf("%d of %d calls failed: %v", bad, calls, load.Failures)
	}
}
