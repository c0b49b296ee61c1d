package proxy

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/internal/meshtest"
)

// TestPriorities: calls that wait are admitted by what they say that they are (S-185, S-186), of one priority in order of arrival, and when
// the queue is full the last of the least gives way.
func TestPriorities(t *testing.T) {
	for name, limit := range map[string]string{
		"service":  "services: {a: {listen: %q, endpoints: [%q], policy: {limit: {in_flight: 1, waiting: 3, priorities: [core, '*', batch]}}}}",
		"bulkhead": "bulkheads: {b: {in_flight: 1, waiting: 3, priorities: [core, '*', batch]}}\nservices: {a: {listen: %q, endpoints: [%q], policy: {limit: {bulkhead: b}}}}",
	} {
		t.Run(name, func(t *testing.T) { admitByPriority(t, limit) })
	}
}

func admitByPriority(t *testing.T, limit string) {
	admitted, proceed := make(chan string), make(chan struct{})
	origin := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		admitted <- r.URL.Path[1:]
		<-proceed
	}))
	defer origin.Close()
	p := newApplied(t)
	at := meshtest.FreeAddress(t)
	p.apply(fmt.Sprintf("listen: {outbound: none}\n"+limit+"\n", at, origin.Listener.Addr()))
	a, _ := p.store.Load().Outbound.Get("a")
	results := make(chan string, 5)
	call := func(name, priority string) {
		q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at+"/"+name, nil)
		if err != nil {
			t.Fatal(err)
		}
		if priority != "" {
			q.Header.Set("X-Priority", priority)
		}
		go func() {
			resp, err := http.DefaultClient.Do(q)
			if err != nil {
				results <- err.Error()
				return
			}
			_ = resp.Body.Close()
			results <- fmt.Sprint(name, " ", resp.StatusCode, " ", resp.Header.Get("X-Sidecar-Reason"))
		}()
	}
	defer http.DefaultClient.CloseIdleConnections()
	waits := func(want int) {
		t.Helper()
		for begin := time.Now(); ; <-time.After(time.Millisecond) {
			if _, waits := a.Rest.Limiter.InUse(); waits == want {
				return
			} else if time.Since(begin) > 10*time.Second {
				t.Fatalf("%d wait, want %d", waits, want)
			}
		}
	}
	next := func(from <-chan string) string {
		t.Helper()
		select {
		case s := <-from:
			return s
		case <-time.After(10 * time.Second):
			t.Fatal("nothing happens")
			return ""
		}
	}

	call("first", "batch")
	order := []string{next(admitted)}
	for i, c := range [][2]string{{"batch1", "batch"}, {"plain", ""}, {"batch2", "batch"}} {
		call(c[0], c[1])
		waits(i + 1)
	}
	call("core", "core")
	if got := next(results); got != "batch2 503 priority_shed" {
		t.Errorf("the one that gave way: %s", got)
	}
	for range 3 {
		proceed <- struct{}{}
		next(results)
		order = append(order, next(admitted))
	}
	proceed <- struct{}{}
	next(results)
	if want := []string{"first", "core", "plain", "batch1"}; !slices.Equal(order, want) {
		t.Errorf("admitted: %q, want %q", order, want)
	}
}
