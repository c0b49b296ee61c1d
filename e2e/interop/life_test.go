package interop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// endpoint is a server of the suite that can be ended and started again at its address.
type endpoint struct {
	address string
	server  *grpc.Server
	done    chan struct{}
}

func newEndpoint(t *testing.T) *endpoint {
	e := &endpoint{address: sidecartest.FreeAddress(t)}
	e.start(t)
	t.Cleanup(func() { e.end(true) })
	return e
}

func (e *endpoint) start(t *testing.T) {
	t.Helper()
	l := sidecartest.Listen(t, e.address)
	e.server, e.done = grpc.NewServer(), make(chan struct{})
	testgrpc.RegisterTestServiceServer(e.server, interop.NewTestServer())
	go func(s *grpc.Server, done chan struct{}) {
		defer close(done)
		_ = s.Serve(l)
	}(e.server, e.done)
}

// end ends the server, at once or when its calls are over.
func (e *endpoint) end(hard bool) {
	if hard {
		e.server.Stop()
	} else {
		e.server.GracefulStop()
	}
	<-e.done
}

// load is what callers of a unary method saw.
type load struct {
	calls, failed atomic.Int64
	first         sync.Map // failures, by their text
	stop          chan struct{}
	work          sync.WaitGroup
}

// callers make calls of a unary method, one after the other.
func callers(t *testing.T, n int, address string) *load {
	t.Helper()
	return caller(t, n, address, func(ctx context.Context, tc testgrpc.TestServiceClient) error {
		_, err := tc.EmptyCall(ctx, &testgrpc.Empty{})
		return err
	})
}

// talkers make calls in which 20 messages go both ways in turn. A call that is cut where it may be counts as done.
func talkers(t *testing.T, n int, address string, mayCut bool) *load {
	t.Helper()
	return caller(t, n, address, func(ctx context.Context, tc testgrpc.TestServiceClient) error {
		call, err := tc.FullDuplexCall(ctx)
		if err != nil {
			return err
		}
		s := &stream{TestService_FullDuplexCallClient: call}
		for i := range 20 {
			if err := s.ping(); err != nil {
				if c := status.Code(err); mayCut && i > 0 && (c == codes.Unavailable || c == codes.Internal) {
					return nil
				}
				return fmt.Errorf("message %d: %w", i, err)
			}
		}
		if err := s.CloseSend(); err != nil {
			return err
		}
		if _, err = s.Recv(); !errors.Is(err, io.EOF) && !mayCut {
			return fmt.Errorf("the end: %w", err)
		}
		return nil
	})
}

func caller(t *testing.T, n int, address string, call func(context.Context, testgrpc.TestServiceClient) error) *load {
	t.Helper()
	l := &load{stop: make(chan struct{})}
	for range n {
		cc, err := client(address)
		if err != nil {
			t.Fatal(err)
		}
		tc := testgrpc.NewTestServiceClient(cc)
		l.work.Go(func() {
			defer func() { _ = cc.Close() }()
			for {
				select {
				case <-l.stop:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				err := call(ctx, tc)
				cancel()
				l.calls.Add(1)
				if err != nil {
					l.failed.Add(1)
					l.first.LoadOrStore(err.Error(), true)
				}
			}
		})
	}
	t.Cleanup(l.end)
	return l
}

func (l *load) end() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.work.Wait()
}

// more waits until so many more calls have ended.
func (l *load) more(t *testing.T, n int64) {
	t.Helper()
	want := l.calls.Load() + n
	sidecartest.Eventually(t, 20*time.Second, fmt.Sprintf("%d more calls", n), func() bool { return l.calls.Load() >= want })
}

// clean ends the load and fails the test when a call failed.
func (l *load) clean(t *testing.T) {
	t.Helper()
	l.end()
	if n := l.failed.Load(); n > 0 {
		l.first.Range(func(text, _ any) bool {
			t.Error(text)
			return true
		})
		t.Errorf("%d of %d calls failed", n, l.calls.Load())
	}
	t.Logf("%d calls", l.calls.Load())
}

// TestRollingRestart restarts servers one by one under load, in order and as by kill -9: no idempotent call fails, and no
// stream is cut by a server that ends in order.
func TestRollingRestart(t *testing.T) {
	for name, hard := range map[string]bool{"in order": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			list := []*endpoint{newEndpoint(t), newEndpoint(t), newEndpoint(t)}
			p := sidecartest.Run(t, `
services:
  peer:
    protocol: grpc
    hosts: [peer.test]
    endpoints: [%q, %q, %q]
    policy: {idempotent: true, retry: {count: 3, when: [connect, refused, reset, "grpc:unavailable"], budget: {min_per_second: 100}}}
`, list[0].address, list[1].address, list[2].address)
			l, talk := callers(t, 8, p.Outbound), talkers(t, 4, p.Outbound, hard)
			l.more(t, 200)
			for range 2 {
				for _, e := range list {
					e.end(hard)
					l.more(t, 100)
					talk.more(t, 8)
					e.start(t)
					l.more(t, 100)
				}
			}
			l.clean(t)
			talk.clean(t)
		})
	}
}

// TestConnectionAge: a server that ends its connections all the time costs no call.
func TestConnectionAge(t *testing.T) {
	server := goServer(t, grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: 100 * time.Millisecond, MaxConnectionAgeGrace: time.Second}))
	p := sidecartest.Run(t, outbound, server)
	l := callers(t, 8, p.Outbound)
	opened := func() float64 { return p.Metric(t, "sidecar_upstream_connects_total") }
	sidecartest.Eventually(t, 30*time.Second, "ten connections were used up", func() bool { return opened() >= 10 })
	l.clean(t)
}

// stream is a call that is open both ways.
type stream struct {
	testgrpc.TestService_FullDuplexCallClient
	cc *grpc.ClientConn
}

func openStream(t *testing.T, address string) *stream {
	t.Helper()
	cc, err := client(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	s, err := testgrpc.NewTestServiceClient(cc).FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &stream{s, cc}
}

// ping sends a message and waits for the answer.
func (s *stream) ping() error {
	one := &testgrpc.StreamingOutputCallRequest{ResponseParameters: []*testgrpc.ResponseParameters{{Size: 1}}}
	if err := s.Send(one); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	_, err := s.Recv()
	return err
}

// TestDrain ends the sidecar under streams and load: streams go on until the drain time is over, and no call fails, as the
// callers go to the other sidecar in time.
func TestDrain(t *testing.T) {
	server := goServer(t)
	p := sidecartest.Run(t, "limits: {drain_grace: 0s, drain_timeout: 6s}\n"+outbound, server)
	var streams []*stream
	for range 5 {
		s := openStream(t, p.Outbound)
		if err := s.ping(); err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	short := openStream(t, p.Outbound)
	if err := short.ping(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	p.Signal(t, syscall.SIGTERM)
	sidecartest.Eventually(t, 5*time.Second, "new connections are refused", func() bool { return !sidecartest.Dials(p.Outbound) })
	for time.Since(began) < 2*time.Second {
		for _, s := range slices.Concat(streams, []*stream{short}) {
			if err := s.ping(); err != nil {
				t.Fatalf("a stream was cut %v after SIGTERM: %v", time.Since(began), err)
			}
		}
	}
	// One that ends by itself ends in order.
	if err := short.CloseSend(); err != nil {
		t.Error(err)
	}
	if _, err := short.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the end of a stream: %v", err)
	}
	for _, s := range streams {
		if _, err := s.Recv(); status.Code(err) != codes.Unavailable && status.Code(err) != codes.Internal {
			t.Errorf("a stream that was open at the end: %v", err)
		}
	}
	if took := time.Since(began); took < 5500*time.Millisecond || took > 12*time.Second {
		t.Errorf("the drain took %v", took)
	}
}

// TestDrainUnderLoad ends one of two sidecars under load: no call fails, since its callers are asked to go and do, and open
// streams go on until its drain time is over.
func TestDrainUnderLoad(t *testing.T) {
	server := goServer(t)
	far := []*sidecartest.Process{}
	for range 2 {
		far = append(far, sidecartest.Run(t, "limits: {drain_timeout: 9s}\ninbound: [{service: peer, app: %q, protocol: grpc}]", server))
	}
	p := sidecartest.Run(t, `
services:
  peer:
    protocol: grpc
    hosts: [peer.test]
    endpoints: [%q, %q]
    policy: {retry: {count: 2, when: [connect, refused]}}
`, far[0].Inbound, far[1].Inbound)
	l := callers(t, 8, p.Outbound)
	l.more(t, 200)
	var streams []*stream
	for range 6 { // on either sidecar
		s := openStream(t, p.Outbound)
		if err := s.ping(); err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	began := time.Now()
	far[0].Signal(t, syscall.SIGTERM)
	for time.Since(began) < 4*time.Second {
		for _, s := range streams {
			if err := s.ping(); err != nil {
				t.Fatalf("a stream was cut %v after SIGTERM: %v", time.Since(began), err)
			}
		}
	}
	for _, s := range streams {
		if err := s.CloseSend(); err != nil {
			t.Error(err)
		}
		if _, err := s.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("the end of a stream: %v", err)
		}
	}
	if code := far[0].Wait(t, 20*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	l.more(t, 200)
	l.clean(t)
}

// TestRefusals: what the sidecar answers itself has the status that docs/grpc.md says.
func TestRefusals(t *testing.T) {
	silent := sidecartest.Serve(t, func(c *sidecartest.Conn) { _, _ = io.Copy(io.Discard, c) })
	p := sidecartest.Run(t, `
services:
  peer:
    protocol: grpc
    hosts: [peer.test]
    endpoints: [%q]
    routes:
      - {match: {grpc: grpc.testing.TestService/EmptyCall}, to: {service: gone}}
      - {match: {grpc: "*/UnaryCall"}, to: {service: nowhere}}
      - {match: {grpc: grpc.testing.TestService/*}, policy: {timeout: 300ms, connect_timeout: 200ms}}
  gone: {protocol: grpc, endpoints: [%q]}
  nowhere: {protocol: grpc, endpoints: [{address: "127.0.0.1:1", labels: {a: b}}], routes: [{to: {labels: {no: such}}}]}
`, silent.Address, sidecartest.FreeAddress(t))
	cc, err := client(p.Outbound)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cc.Close() }()
	tc := testgrpc.NewTestServiceClient(cc)
	_, err = tc.EmptyCall(t.Context(), &testgrpc.Empty{})
	want(t, err, codes.Unavailable, "connect_failed")
	_, err = tc.UnaryCall(t.Context(), &testgrpc.SimpleRequest{})
	want(t, err, codes.Unavailable, "")
	_, err = tc.CacheableUnaryCall(t.Context(), &testgrpc.SimpleRequest{})
	if c := status.Code(err); c != codes.Unavailable && c != codes.DeadlineExceeded {
		t.Error(err)
	}
	other, err := grpc.NewClient("passthrough:///"+p.Outbound, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("unknown.test"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	_, err = testgrpc.NewTestServiceClient(other).EmptyCall(t.Context(), &testgrpc.Empty{})
	want(t, err, codes.Unimplemented, "no_route")
}

func want(t *testing.T, err error, code codes.Code, text string) {
	t.Helper()
	if s, _ := status.FromError(err); s.Code() != code || len(s.Message()) < len(text) || s.Message()[:len(text)] != text {
		t.Errorf("got %v, want %s with %s", err, code, text)
	}
}
