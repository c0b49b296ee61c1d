package interop

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

const huge = 100 << 20

// TestHugeMessage (GR-012): a message has no limit of ours, and costs us no more memory than a small one.
func TestHugeMessage(t *testing.T) {
	address := through(t, 2, goServer(t, grpc.MaxRecvMsgSize(2*huge), grpc.MaxSendMsgSize(2*huge)))
	cc, err := client(address, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(2*huge), grpc.MaxCallSendMsgSize(2*huge)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cc.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	body := bytes.Repeat([]byte("h"), huge)
	r, err := testgrpc.NewTestServiceClient(cc).UnaryCall(ctx, &testgrpc.SimpleRequest{ResponseSize: huge, Payload: &testgrpc.Payload{Body: body}})
	if err != nil || len(r.GetPayload().GetBody()) != huge {
		t.Errorf("%d bytes, %v", len(r.GetPayload().GetBody()), err)
	}
}

// flood sends messages as long as they are taken.
type flood struct {
	testgrpc.UnimplementedTestServiceServer
	sent atomic.Int64
}

func (f *flood) StreamingOutputCall(_ *testgrpc.StreamingOutputCallRequest, s testgrpc.TestService_StreamingOutputCallServer) error {
	m := &testgrpc.StreamingOutputCallResponse{Payload: &testgrpc.Payload{Body: make([]byte, 64<<10)}}
	for {
		if err := s.Send(m); err != nil {
			return err
		}
		f.sent.Add(64 << 10)
	}
}

// TestSlowReader (GR-010): a client that does not read holds the server up after a few windows, and 256 MiB that it does read
// leave our memory as it was.
func TestSlowReader(t *testing.T) {
	f := &flood{}
	p := sidecartest.Run(t, outbound, serveGRPC(t, func(s *grpc.Server) { testgrpc.RegisterTestServiceServer(s, f) }))
	cc, err := client(p.Outbound, grpc.WithInitialWindowSize(64<<10), grpc.WithInitialConnWindowSize(64<<10))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cc.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := testgrpc.NewTestServiceClient(cc).StreamingOutputCall(ctx, &testgrpc.StreamingOutputCallRequest{})
	if err != nil {
		t.Fatal(err)
	}
	sidecartest.Eventually(t, 10*time.Second, "the server is held up", func() bool {
		before := f.sent.Load()
		<-time.After(300 * time.Millisecond)
		return before > 0 && f.sent.Load() == before
	})
	if n := f.sent.Load(); n > 32<<20 {
		t.Errorf("%d MiB were sent to a client that does not read", n>>20)
	}
	held := p.ResidentKB(t)
	for range 4096 {
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	if now := p.ResidentKB(t); now > held+32<<10 {
		t.Errorf("resident memory grew from %d to %d kB", held, now)
	}
}

// TestHealthDecides (GR-217): an ejected server that says NOT_SERVING stays out, and comes back when it says SERVING.
func TestHealthDecides(t *testing.T) {
	const service = "grpc.testing.TestService"
	h := health.NewServer()
	h.SetServingStatus(service, healthgrpc.HealthCheckResponse_NOT_SERVING)
	var sick atomic.Bool
	sick.Store(true)
	bad := &moody{sick: &sick}
	first := serveGRPC(t, func(s *grpc.Server) {
		testgrpc.RegisterTestServiceServer(s, bad)
		healthgrpc.RegisterHealthServer(s, h)
	})
	p := sidecartest.Run(t, `
services:
  peer:
    protocol: grpc
    hosts: [peer.test]
    endpoints: [%q, %q]
    policy:
      breaker: none
      idempotent: true
      retry: {count: 1, when: ["grpc:unavailable"]}
      outlier: {consecutive_failures: 2, eject_for: 100ms, max_ejected: 50%%, probe: {grpc: grpc.testing.TestService, interval: 50ms}}
`, first, goServer(t))
	l := callers(t, 2, p.Outbound)
	ejected := func() bool { return p.Metric(t, "sidecar_endpoints", `state="usable"`) == 1 }
	sidecartest.Eventually(t, 10*time.Second, "the sick server is ejected", ejected)
	sick.Store(false)
	served := bad.calls.Load()
	sidecartest.Never(t, time.Second, "it is back although it does not serve", func() bool { return !ejected() || bad.calls.Load() > served+2 })
	h.SetServingStatus(service, healthgrpc.HealthCheckResponse_SERVING)
	sidecartest.Eventually(t, 10*time.Second, "it has calls again", func() bool { return bad.calls.Load() > served+10 })
	l.clean(t)
}

// moody answers UNAVAILABLE while it is sick.
type moody struct {
	testgrpc.UnimplementedTestServiceServer
	sick  *atomic.Bool
	calls atomic.Int64
}

func (m *moody) EmptyCall(context.Context, *testgrpc.Empty) (*testgrpc.Empty, error) {
	m.calls.Add(1)
	if m.sick.Load() {
		return nil, status.Error(codes.Unavailable, "sick")
	}
	return &testgrpc.Empty{}, nil
}
