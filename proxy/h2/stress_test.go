package h2_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// pattern is a body that tells which one it is, and where.
type pattern struct{ seed, n, at int }

// Read implements io.Reader.
func (p *pattern) Read(b []byte) (int, error) {
	if p.at == p.n {
		return 0, io.EOF
	}
	b = b[:min(len(b), p.n-p.at)]
	for i := range b {
		b[i] = byte(p.seed + (p.at+i)*7)
	}
	p.at += len(b)
	return len(b), nil
}

// check reads a body and compares it with a pattern.
func check(r io.Reader, seed, n int, slow bool) error {
	want, buf, expect := &pattern{seed: seed, n: n}, make([]byte, 8<<10), make([]byte, 8<<10)
	for {
		m, err := r.Read(buf)
		_, _ = io.ReadFull(want, expect[:m])
		if string(expect[:m]) != string(buf[:m]) {
			return fmt.Errorf("%w in body %d", errWrong, seed)
		}
		if errors.Is(err, io.EOF) {
			if want.at != n {
				return fmt.Errorf("%w: body %d has %d of %d bytes", errWrong, seed, want.at, n)
			}
			return nil
		}
		if err != nil {
			return err
		}
		if slow {
			<-time.After(time.Millisecond)
		}
	}
}

// errWrong is what must not happen, be the network as bad as it may.
var errWrong = errors.New("wrong bytes")

// stressOrigin serves /KIND/SEED/BYTES.
func stressOrigin(w http.ResponseWriter, q *http.Request) {
	parts := strings.Split(q.URL.Path, "/")
	seed, _ := strconv.Atoi(parts[2])
	n, _ := strconv.Atoi(parts[3])
	w.Header().Set("X-Seed", parts[2])
	w.Header().Set("X-Cookie", q.Header.Get("Cookie"))
	switch parts[1] {
	case "up":
		if err := check(q.Body, seed, n, seed%3 == 0); errors.Is(err, errWrong) {
			w.WriteHeader(418)
			return
		} else if err != nil {
			panic(http.ErrAbortHandler)
		}
	case "down":
		_, _ = io.Copy(w, &pattern{seed: seed, n: n})
	case "echo":
		w.Header().Set("Trailer", "X-End")
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		buf := make([]byte, 4<<10)
		for {
			m, err := q.Body.Read(buf)
			if _, failed := w.Write(buf[:m]); failed != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				panic(http.ErrAbortHandler)
			}
		}
		w.Header().Set("X-End", parts[2])
	case "early":
		w.WriteHeader(200)
	case "abort":
		_, _ = io.CopyN(w, &pattern{seed: seed, n: n}, int64(n/2))
		panic(http.ErrAbortHandler)
	case "refuse":
		panic(http.ErrAbortHandler)
	}
}

// stresser sends all kinds of requests and gives up some of them.
type stresser struct {
	client *http.Client
	base   string
	calm   bool // nothing is cut: what is not given up must succeed
	ok     atomic.Int64
	seeds  atomic.Int64
}

func (s *stresser) one(t *testing.T, rnd *rand.Rand) {
	kind := []string{"get", "up", "down", "echo", "early", "abort", "refuse", "down", "up"}[rnd.IntN(9)]
	seed := int(s.seeds.Add(1)) + 10_000_000 // all are as long: what one leaves behind must not show in another
	n := []int{0, 1, 100, 5000, 70_000, 300_000}[rnd.IntN(6)]
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	givesUp := rnd.IntN(4) == 0
	if givesUp {
		timer := time.AfterFunc(time.Duration(rnd.IntN(8000))*time.Microsecond, cancel)
		defer timer.Stop()
	}
	method, body := http.MethodGet, io.Reader(nil)
	if kind == "up" || kind == "echo" || kind == "early" {
		method, body = http.MethodPost, &pattern{seed: seed, n: n}
	}
	q, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("%s/%s/%d/%d", s.base, kind, seed, n), body)
	if err != nil {
		t.Error(err)
		return
	}
	if body != nil && seed%2 == 0 {
		q.ContentLength = int64(n)
	}
	q.Host = "svc"
	q.Header.Set("Cookie", fmt.Sprintf("secret=%d", seed))
	resp, err := s.client.Do(q)
	if err == nil {
		err = s.judge(resp, kind, seed, n)
		_ = resp.Body.Close()
	}
	switch {
	case errors.Is(err, errWrong):
		t.Error(err)
	case errors.Is(err, context.DeadlineExceeded):
		t.Errorf("%s %d of %d bytes hangs", kind, seed, n)
	case errors.Is(err, context.Canceled):
		// Given up, or net/http gave its connection to this request at the moment another one gave up.
	case err == nil:
		s.ok.Add(1)
	case s.calm && !givesUp && kind != "abort" && kind != "refuse":
		t.Errorf("%s %d of %d bytes: %v", kind, seed, n, err)
	}
}

func (s *stresser) judge(resp *http.Response, kind string, seed, n int) error {
	if resp.StatusCode >= 500 {
		return fmt.Errorf("%s: %s", resp.Status, resp.Header.Get("X-Sidecar-Reason"))
	}
	if got, cookie := resp.Header.Get("X-Seed"), resp.Header.Get("X-Cookie"); resp.StatusCode != 200 ||
		got != strconv.Itoa(seed) || cookie != "secret="+got {
		return fmt.Errorf("%w: %s with %q, %q for %d", errWrong, resp.Status, got, cookie, seed)
	}
	if kind != "down" && kind != "echo" && kind != "abort" {
		n = 0
	}
	err := check(resp.Body, seed, n, seed%5 == 0)
	if err == nil && kind == "abort" && n > 1 {
		return fmt.Errorf("%w: a body that was cut came complete", errWrong)
	}
	if end := resp.Trailer.Get("X-End"); err == nil && kind == "echo" && end != strconv.Itoa(seed) {
		return fmt.Errorf("%w: trailer %q for %d", errWrong, end, seed)
	}
	if kind == "abort" && errors.Is(err, errWrong) && n > 1 && strings.Contains(err.Error(), "bytes") {
		return fmt.Errorf("%w: cut, and as if it were complete", errWrong)
	}
	return err
}

// protocols is what a transport or server speaks.
func protocols(two bool) *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(two)
	p.SetHTTP1(!two)
	return p
}

// serveHTTP runs a net/http server until the test ends.
func serveHTTP(t testing.TB, two bool, h http.HandlerFunc) (string, *conns) {
	t.Helper()
	cs := new(conns)
	ln := watched{listenTCP(t), cs}
	srv := &http.Server{Handler: h, Protocols: protocols(two), ReadHeaderTimeout: patience}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(ln)
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
		cs.mu.Lock()
		defer cs.mu.Unlock()
		for _, nc := range cs.list {
			_ = nc.Close()
		}
	})
	return ln.Addr().String(), cs
}

// newClient is a net/http client.
func newClient(t testing.TB, two bool) (*http.Client, *conns) {
	cs := new(conns)
	tr := &http.Transport{
		Protocols: protocols(two), DisableCompression: true, MaxIdleConnsPerHost: 100,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err == nil {
				cs.add(nc)
			}
			return nc, err
		},
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}, cs
}

// TestStress mixes everything at once over all four hops, first with connections that stay, then with connections that
// are cut: what arrives is right, nothing hangs, and nothing is left behind.
func TestStress(t *testing.T) {
	for _, hop := range []struct {
		name     string
		down, up bool
	}{{"2 to 2", true, true}, {"2 to 1", true, false}, {"1 to 2", false, true}} {
		for _, calm := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s calm=%v", hop.name, calm), func(t *testing.T) {
				stress(t, hop.down, hop.up, calm)
			})
		}
	}
}

func stress(t *testing.T, down, up, calm bool) {
	origin, origins := serveHTTP(t, up, stressOrigin)
	text := plain2
	if !up {
		text = plain1
	}
	r := newRig(t, setup{config: text, origins: []string{origin}})
	client, clients := newClient(t, down)
	s := &stresser{client: client, base: "http://" + r.address(), calm: calm}
	callers, calls := 16, 40
	if testing.Short() || raceEnabled {
		calls = 20
	}
	var wg, cutter sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 1))
			for range calls {
				s.one(t, rnd)
			}
		})
	}
	over := make(chan struct{})
	if !calm {
		cutter.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				case <-time.After(20 * time.Millisecond):
				}
				if n%2 == 0 {
					origins.cut(n)
				} else {
					clients.cut(n)
				}
			}
		})
	}
	wg.Wait()
	close(over)
	cutter.Wait()
	if n := s.ok.Load(); n == 0 {
		t.Error("nothing succeeded")
	} else {
		t.Logf("%d of %d succeeded", n, callers*calls)
	}
	r.settled()
	drained(t, r, client)
}

// drained lets clients go: none of them may stay.
func drained(t *testing.T, r *rig, client *http.Client) {
	r.server.Drain()
	r.http1.Drain()
	if !eventually(func() bool { return r.server.CloseIdle(time.Now(), time.Second) == 0 }) {
		t.Error("connections stay though they are drained")
	}
	client.CloseIdleConnections()
}
