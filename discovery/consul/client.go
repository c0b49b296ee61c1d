package consul

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/sidecar-mesh/sidecar/config"
)

// client speaks to the agents of one registry.
type client struct {
	reg       *config.ConsulRegistry
	tempo     tempo
	transport *http.Transport
	plain     *plain
	agents    []*agent
	slots     chan struct{} // one for each query under way
	services  atomic.Int64  // that are watched

	mu    sync.Mutex
	token string // as it was read last, guarded by mu
	// tokenErr is why its file could not be read now; guarded by mu.
	tokenErr error
	up       chan struct{} // closed when an agent is back, guarded by mu
}

// agent is one address of a registry.
type agent struct {
	api   *api.Client
	tempo tempo

	mu    sync.Mutex
	down  time.Time // nobody is to try it before; zero: it is not down
	fails int
}

// readBuffer and writeBuffer are those of a connection: a watch is idle nearly always, and there may be many.
const (
	readBuffer  = 2 << 10
	writeBuffer = 1 << 10
)

const (
	maxHeader = 64 << 10         // bytes of the head of an answer
	idleFor   = 30 * time.Second // a connection that nobody used for longer is closed
)

// newClient prepares what is needed; nothing is opened yet.
func newClient(reg *config.ConsulRegistry, t tempo) (*client, error) {
	c := &client{reg: reg, tempo: t, slots: make(chan struct{}, max(reg.MaxConnections, 1)), up: make(chan struct{})}
	secure, err := tlsConfig(reg.TLS)
	if err != nil {
		return nil, &Error{Kind: Unreachable, Text: err.Error()}
	}
	// A peer that is gone without a word is noticed in half a minute, though a query may wait for much longer.
	dialer := &net.Dialer{Timeout: reg.Timeout, KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3,
	}}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if path, ok := socketOf(address); ok {
			network, address = "unix", path
		}
		return dialer.DialContext(ctx, network, address)
	}
	c.plain = &plain{dial: dial, maxHeader: maxHeader, idleFor: idleFor}
	c.transport = &http.Transport{
		DialContext:     dial,
		TLSClientConfig: secure, TLSHandshakeTimeout: reg.Timeout, ForceAttemptHTTP2: true,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second},
		MaxIdleConns:        cap(c.slots),
		MaxIdleConnsPerHost: cap(c.slots), IdleConnTimeout: idleFor,
		ReadBufferSize: readBuffer, WriteBufferSize: writeBuffer, MaxResponseHeaderBytes: maxHeader,
		DisableCompression: true, // the buffers of a decompressor outweigh a list
	}
	for _, address := range reg.Addresses {
		scheme := "http"
		switch {
		case strings.HasPrefix(address, "unix:"):
			address = socketHost(strings.TrimPrefix(address, "unix:"))
		case strings.Contains(address, "://"):
			scheme, address, _ = strings.Cut(address, "://")
		case reg.TLS != nil:
			scheme = "https"
		}
		a, err := api.NewClient(&api.Config{
			Address: address, Scheme: scheme, Datacenter: reg.Datacenter, Namespace: reg.Namespace,
			HttpClient: &http.Client{Transport: &bounded{plain: c.plain, other: c.transport, limit: reg.MaxAnswer, time: reg.Timeout}},
		})
		if err != nil {
			return nil, fmt.Errorf("address %q: %w", address, err)
		}
		c.agents = append(c.agents, &agent{api: a, tempo: t})
	}
	return c, nil
}

func (c *client) close() {
	c.plain.closeIdle()
	c.transport.CloseIdleConnections()
}

// watched notes how many services share the connections.
func (c *client) watched(n int) { c.services.Store(int64(n)) }

// turn is how long a service waits for its next turn, about, where there are more of them than connections.
const turn = 10 * time.Second

// wait is how long one query may wait for a change: as configured, or less where services take turns.
func (c *client) wait() time.Duration {
	n := int(c.services.Load())
	if n <= cap(c.slots) {
		return c.reg.Wait
	}
	return min(max(turn*time.Duration(cap(c.slots))/time.Duration(n), time.Second), c.reg.Wait)
}

// ask is one query to one agent; it returns the index of the answer.
type ask func(ctx context.Context, a *api.Client, q *api.QueryOptions) (uint64, error)

// watch asks again and again until ctx ends, each time for what comes after the last answer. turn is called before each query
// and may wait; false ends the watch. failed is told of every failure.
func (c *client) watch(ctx context.Context, turn func() bool, query ask, failed func(error)) {
	w := watch{client: c, query: query, pace: pace{tempo: c.tempo}, avoid: make([]time.Time, len(c.agents))}
	told := false // that no agent takes connections
	for pause(ctx, w.pace.next(time.Now())) && turn() {
		index, err := w.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			w.cursor = cursor{} // the next answer is not to wait for a change: it tells that the registry is back
			e := classify(err)
			if !e.down || !told {
				failed(e)
			}
			told = true
			if e.down || refused(err) {
				c.await(ctx)
			} else {
				w.pace.failed(time.Now(), e.after, rand.Float64())
			}
			continue
		}
		told = false
		w.pace.succeeded()
		w.cursor.answered(index)
		if c.reg.Poll > 0 {
			w.cursor = cursor{}
			if !pause(ctx, c.reg.Poll+rand.N(c.reg.Poll/10+1)) {
				return
			}
		}
	}
}

// watch is the state of one.
type watch struct {
	client *client
	query  ask
	pace   pace
	cursor cursor
	at     int         // the agent asked last
	avoid  []time.Time // by agent: it failed this watch, and is not asked before unless there is no other
}

// avoidFor is how long a watch leaves an agent alone that failed it, where there are others.
const avoidFor = 30 * time.Second

// once asks one agent after the other until one answers.
func (w *watch) once(ctx context.Context) (uint64, error) {
	c := w.client
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	var last error
	for range c.agents {
		i, ok := w.choose(time.Now())
		if !ok {
			break
		}
		if i != w.at {
			w.at, w.cursor = i, cursor{} // the history of another agent may be another one
		}
		index, err := w.try(ctx, c.agents[i])
		if err == nil || ctx.Err() != nil {
			return index, err
		}
		last = err
		w.avoid[i] = time.Now().Add(avoidFor)
	}
	if last == nil {
		last = &Error{Kind: Unreachable, Text: "no agent takes connections", down: true}
	}
	return 0, last
}

// choose returns the first agent that is not down, those last that failed this watch.
func (w *watch) choose(now time.Time) (int, bool) {
	for _, avoided := range []bool{false, true} {
		for i, a := range w.client.agents {
			if now.Before(w.avoid[i]) == avoided && a.open(now) {
				return i, true
			}
		}
	}
	return 0, false
}

// try sends the query to an agent.
func (w *watch) try(ctx context.Context, a *agent) (uint64, error) {
	c := w.client
	q := &api.QueryOptions{AllowStale: c.reg.Stale, Token: c.readToken()}
	limit := 2 * c.reg.Timeout // to connect, and to answer
	if w.cursor.index > 0 {
		q.WaitIndex, q.WaitTime = w.cursor.index, c.wait()
		limit += q.WaitTime + q.WaitTime/16 // the server adds up to a sixteenth
	}
	qctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var said headers
	index, err := w.query(withHeaders(qctx, &said), a.api, q)
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if a.note(time.Now(), refused(err)) {
		c.woken()
	}
	if err == nil || refused(err) {
		return index, err
	}
	e := classify(err)
	if e.Kind == Forbidden {
		e.Text += c.unread()
	}
	e.after = said.retryAfter
	return 0, e
}

// await waits until an agent that is down may be tried again, or until another watch got through.
func (c *client) await(ctx context.Context) {
	c.mu.Lock()
	up := c.up
	c.mu.Unlock()
	first := time.Time{}
	for _, a := range c.agents {
		if d := a.downUntil(); d.IsZero() {
			return
		} else if first.IsZero() || d.Before(first) {
			first = d
		}
	}
	t := time.NewTimer(time.Until(first))
	defer t.Stop()
	select {
	case <-up:
	case <-t.C:
	case <-ctx.Done():
	}
}

// woken tells who waits that an agent is back.
func (c *client) woken() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.up)
	c.up = make(chan struct{})
}

// open reports whether the agent may be tried now. Of one that is down, one try is let through after each pause.
func (a *agent) open(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.down.IsZero():
		return true
	case now.Before(a.down):
		return false
	}
	a.fails++
	a.down = now.Add(a.pause())
	return true
}

// note takes in whether the agent refused a connection, and reports whether it is back.
func (a *agent) note(now time.Time, refused bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if refused {
		if a.down.Before(now) { // else another one said so already
			a.down = now.Add(a.pause())
		}
		return false
	}
	back := !a.down.IsZero()
	a.down, a.fails = time.Time{}, 0
	return back
}

// pause is how long an agent that is down is left alone: at most 8 s. One watch tries it then, on behalf of all.
func (a *agent) pause() time.Duration { return a.tempo.backoff(min(a.fails, 4), rand.Float64()) }

func (a *agent) downUntil() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.down
}

// refused reports whether no connection came about.
func refused(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// readToken reads the file anew: whoever renews tokens need not tell us.
func (c *client) readToken() string {
	if c.reg.TokenFile == "" {
		return os.Getenv(api.HTTPTokenEnvName)
	}
	data, err := os.ReadFile(c.reg.TokenFile)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tokenErr = err; err == nil {
		c.token = strings.TrimSpace(string(data))
	}
	return c.token
}

// unread says, to be put behind a refusal, that the token's file could not be read; empty: it could.
func (c *client) unread() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.tokenErr == nil:
		return ""
	case c.token == "":
		return "; token_file: " + c.tokenErr.Error()
	}
	return "; the token is the one before, token_file: " + c.tokenErr.Error()
}

func tlsConfig(t *config.ConsulTLS) (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName, InsecureSkipVerify: t.SkipVerify}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, err
		}
		if out.RootCAs = x509.NewCertPool(); !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate", t.CAFile)
		}
	}
	if t.CertFile != "" {
		out.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
			return &pair, err
		}
	}
	return out, nil
}

// socketHost stands for the path of a socket where a URL wants a host.
func socketHost(path string) string { return hex.EncodeToString([]byte(path)) + socketSuffix }

const socketSuffix = ".socket.invalid"

// socketOf is the path that a dialled address stands for.
func socketOf(address string) (string, bool) {
	host, _, _ := strings.Cut(address, ":")
	coded, ok := strings.CutSuffix(host, socketSuffix)
	if !ok {
		return "", false
	}
	path, err := hex.DecodeString(coded)
	return string(path), err == nil
}
