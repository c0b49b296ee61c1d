package interop

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// TestKilledServer: two sidecars stand between a Python client and a server that is killed in the middle of the list. What
// may be repeated does not fail, what was cut says so, and log and explain tell what happened.
func TestKilledServer(t *testing.T) {
	servers := []stack{{name: "go", command: []string{os.Args[0]}, env: []string{peerVariable + "=1"}}}
	list := stacks(t)
	if all() {
		servers = append(servers, list[2])
	}
	for _, server := range servers {
		t.Run(server.name, func(t *testing.T) {
			kill := map[string]func(){} // by the address of the server's sidecar
			var far []any
			for range 2 {
				address, end := server.start(t)
				p := sidecartest.Run(t, "inbound: [{service: peer, app: %q, protocol: grpc, policy: {connect_timeout: 10s}}]", address)
				kill[p.Inbound] = end
				far = append(far, p.Inbound)
			}
			// All calls go to one of the two, so that the list can ask it about what it saw.
			p := sidecartest.Run(t, `
node: {service: shop}
services:
  peer:
    protocol: grpc
    hosts: [peer.test]
    endpoints: [%q, %q]
    policy:
      lb: {consistent_hash: source_ip}
      idempotent: true
      retry: {count: 2, when: [connect, refused, reset, "grpc:unavailable"], budget: {ratio: 100%%, min_per_second: 100}}
    routes:
      - match: {grpc: interop.Peer/Unary}
      - match: {grpc: interop.Peer/*}
`, far...)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			cmd := list[0].run(ctx, "client", p.Outbound, "cut")
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd.Stderr = os.Stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			victim := ""
			var said []string
			for lines := bufio.NewScanner(out); lines.Scan(); {
				said = append(said, lines.Text())
				if lines.Text() == "load begins" {
					victim = p.Record(t, "/interop.Peer/Unary").Endpoint
					kill[victim]()
				}
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v\n%s", err, strings.Join(said, "\n"))
			}
			again, cut := 0, 0
			for _, r := range p.Records(t, 10) {
				switch {
				case r.Path == "/interop.Peer/Unary" && r.Attempts > 1:
					if again++; r.GRPCStatus != "ok" && !strings.HasPrefix(r.GRPCStatus, "failed_precondition") || r.Method != "POST" || r.Route != "grpc:interop.Peer/Unary" || r.Endpoint == victim {
						t.Errorf("a call that was repeated: %+v", r)
					}
				case r.Path == "/interop.Peer/Chat" && r.GRPCStatus == "unavailable":
					cut++
				}
			}
			if again == 0 || cut == 0 {
				t.Errorf("%d calls were repeated, %d streams cut, according to the log", again, cut)
			}
			explained, err := exec.Command(sidecartest.Build(t), "explain", "--admin", p.Admin, "-X", "POST", "-H", "content-type: application/grpc",
				"http://peer.test/interop.Peer/Unary").CombinedOutput()
			for _, want := range []string{"grpc:interop.Peer/Unary", "grpc:unavailable", victim} {
				if err != nil || !strings.Contains(string(explained), want) {
					t.Errorf("explain does not say %q: %v\n%s", want, err, explained)
				}
			}
			t.Logf("\n%s\n%d calls were repeated\n%s", strings.Join(said, "\n"), again, explained)
		})
	}
}

// peerVariable makes this binary the Go peer of the stacks: see python/peer.py, which does the same.
const peerVariable = "INTEROP_PEER"

// bytesCodec takes messages as they are.
type bytesCodec struct{}

func (bytesCodec) Name() string                  { return "bytes" }
func (bytesCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (bytesCodec) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = slices.Clone(b)
	return nil
}

func servePeer() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	var cancelled atomic.Int64
	s := grpc.NewServer(grpc.ForceServerCodec(bytesCodec{}), grpc.MaxRecvMsgSize(1<<30), grpc.MaxHeaderListSize(1<<20),
		grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error { return servePeerCall(stream, &cancelled) }))
	fmt.Println(l.Addr().(*net.TCPAddr).Port)
	_ = s.Serve(l)
}

func servePeerCall(s grpc.ServerStream, cancelled *atomic.Int64) error {
	name, _ := grpc.MethodFromServerStream(s)
	var m []byte
	if name == "/interop.Peer/Chat" || name == "/interop.Peer/Total" {
		n, size := 0, 0
		for {
			if err := s.RecvMsg(&m); err == io.EOF { //nolint:errorlint // it is the end as it is
				break
			} else if err != nil {
				return err
			}
			n, size = n+1, size+len(m)
			if name == "/interop.Peer/Chat" {
				if err := s.SendMsg(&m); err != nil {
					return err
				}
			}
		}
		if name == "/interop.Peer/Chat" {
			return nil
		}
		m = fmt.Appendf(nil, "%d %d", n, size)
		return s.SendMsg(&m)
	}
	if err := s.RecvMsg(&m); err != nil {
		return err
	}
	md, _ := metadata.FromIncomingContext(s.Context())
	asked := func(name string) string { return strings.Join(md.Get(name), "") }
	switch name {
	case "/interop.Peer/Unary":
		if size, _ := strconv.Atoi(asked("x-trailer")); size > 0 {
			s.SetTrailer(metadata.Pairs("x-blob", strings.Repeat("t", size), "details-bin", strings.Repeat("\x00\xff", size/2)))
		}
		if fail := asked("x-fail"); fail != "" {
			size, _ := strconv.Atoi(asked("x-details"))
			s.SetTrailer(metadata.Pairs("grpc-status-details-bin", strings.Repeat("\xfe", size)))
			return status.Error(codes.FailedPrecondition, "no % ✓ "+fail)
		}
		return s.SendMsg(&m)
	case "/interop.Peer/Count":
		var n, size int
		_, _ = fmt.Sscan(string(m), &n, &size)
		for i := range n {
			b := slices.Repeat([]byte{byte(i % 251)}, size)
			if err := s.SendMsg(&b); err != nil {
				return err
			}
		}
		return nil
	case "/interop.Peer/Sleep":
		_ = s.SendHeader(nil)
		<-s.Context().Done()
		cancelled.Add(1)
		return status.FromContextError(s.Context().Err()).Err() // the deadline may be seen here first
	case "/interop.Peer/Cancels":
		m = strconv.AppendInt(nil, cancelled.Load(), 10)
		return s.SendMsg(&m)
	}
	return status.Error(codes.Unimplemented, name)
}
