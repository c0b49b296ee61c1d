// Package interop lets gRPC stacks of others talk through the real binary: the interoperability suite of gRPC for Go,
// Python, Node, and servers that come and go meanwhile. It consists of tests alone, and is a module of its own so that
// what only these tests need stays out of the sidecar's go.mod.
package interop

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// The suite ends its process when a case fails, so each case is a process of its own: this binary again.
const (
	caseVariable    = "INTEROP_CASE"
	addressVariable = "INTEROP_ADDRESS"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(caseVariable); name != "" {
		runCase(name, os.Getenv(addressVariable))
		return
	}
	if os.Getenv(peerVariable) != "" {
		servePeer()
		return
	}
	sidecartest.Main(m)
}

// host is what the callers call the service.
const host = "peer.test"

// client connects to an address, where the service is known as host.
func client(address string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority(host))
	return grpc.NewClient("passthrough:///"+address, opts...)
}

// cases are those of the suite that need no credentials.
var cases = []string{
	"empty_unary", "large_unary", "client_streaming", "server_streaming", "ping_pong", "empty_stream",
	"timeout_on_sleeping_server", "cancel_after_begin", "cancel_after_first_response", "status_code_and_message",
	"special_status_message", "custom_metadata", "unimplemented_method", "unimplemented_service", "rpc_soak", "channel_soak",
}

// runCase is the client of the suite.
func runCase(name, address string) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cc, err := client(address)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer func() { _ = cc.Close() }()
	tc := testgrpc.NewTestServiceClient(cc)
	soak := interop.SoakTestConfig{
		RequestSize: 271828, ResponseSize: 314159, PerIterationMaxAcceptableLatency: 5 * time.Second,
		OverallTimeout: 25 * time.Second, ServerAddr: address, NumWorkers: 4,
	}
	call := map[string]func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption){
		"empty_unary": interop.DoEmptyUnaryCall, "large_unary": interop.DoLargeUnaryCall,
		"client_streaming": interop.DoClientStreaming, "server_streaming": interop.DoServerStreaming,
		"ping_pong": interop.DoPingPong, "empty_stream": interop.DoEmptyStream,
		"timeout_on_sleeping_server": interop.DoTimeoutOnSleepingServer, "cancel_after_begin": interop.DoCancelAfterBegin,
		"cancel_after_first_response": interop.DoCancelAfterFirstResponse,
		"status_code_and_message":     interop.DoStatusCodeAndMessage, "special_status_message": interop.DoSpecialStatusMessage,
		"custom_metadata": interop.DoCustomMetadata,
	}
	switch {
	case call[name] != nil:
		call[name](ctx, tc)
	case name == "unimplemented_method":
		interop.DoUnimplementedMethod(ctx, cc)
	case name == "unimplemented_service":
		interop.DoUnimplementedService(ctx, testgrpc.NewUnimplementedServiceClient(cc))
	case name == "rpc_soak":
		soak.Iterations, soak.ChannelForTest = 200, func() (*grpc.ClientConn, func()) { return cc, func() {} }
		interop.DoSoakTest(ctx, soak)
	case name == "channel_soak":
		soak.Iterations, soak.ChannelForTest = 60, func() (*grpc.ClientConn, func()) {
			fresh, err := client(address)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return fresh, func() { _ = fresh.Close() }
		}
		interop.DoSoakTest(ctx, soak)
	default:
		fmt.Fprintln(os.Stderr, "no case", name)
		os.Exit(1)
	}
}

// goServer is the server of the suite.
func goServer(t *testing.T, opts ...grpc.ServerOption) string {
	t.Helper()
	return serveGRPC(t, func(s *grpc.Server) { testgrpc.RegisterTestServiceServer(s, interop.NewTestServer()) }, opts...)
}

// serveGRPC serves what register registers, and returns its address.
func serveGRPC(t *testing.T, register func(*grpc.Server), opts ...grpc.ServerOption) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(opts...)
	register(s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		s.Stop()
		<-done
	})
	return l.Addr().String()
}

// outbound is a sidecar that calls endpoints for its app.
const outbound = `
services:
  peer:
    protocol: grpc
    hosts: [peer.test]
    endpoints: [%q]
    policy: {outlier: none, breaker: none, connect_timeout: 10s}
`

// through starts a sidecar in front of a server, or two: that of the caller and that of the server. It returns where a
// caller calls.
func through(t *testing.T, sidecars int, server string) string {
	t.Helper()
	if sidecars == 2 {
		server = sidecartest.Run(t, `inbound: [{service: peer, app: %q, protocol: grpc, policy: {connect_timeout: 10s}}]`, server).Inbound
	}
	return sidecartest.Run(t, outbound, server).Outbound
}

// TestSuite runs the suite through one sidecar and through two.
func TestSuite(t *testing.T) {
	for sidecars, name := range map[int]string{1: "one sidecar", 2: "two sidecars"} {
		t.Run(name, func(t *testing.T) {
			address := through(t, sidecars, goServer(t))
			for _, c := range cases {
				t.Run(c, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					cmd := exec.CommandContext(ctx, os.Args[0])
					cmd.Env = append(os.Environ(), caseVariable+"="+c, addressVariable+"="+address)
					if out, err := cmd.CombinedOutput(); err != nil {
						t.Errorf("%v\n%s", err, out)
					}
				})
			}
		})
	}
}
