package telemetry

import (
	"flag"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sidecar-mesh/sidecar/resilience"
)

func TestMain(m *testing.M) {
	flag.Bool("update", false, "write the golden files")
	flag.Parse()
	goleak.VerifyTestMain(m)
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s differs; got:\n%s", path, got)
	}
}

// day is a fixed moment, not on a minute's edge.
func day() time.Time { return time.Date(2026, 3, 4, 5, 6, 7, 89_000_000, time.UTC) }

func newTest(t testing.TB, o Options) *Recorder {
	t.Helper()
	if o.Now == nil {
		o.Now = day
	}
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return r
}

// sampleOutcome is an ordinary exchange.
func sampleOutcome(s *Series) Outcome {
	return Outcome{
		Series: s, Protocol: "HTTP/1.1", Service: "catalog", Route: "items", Caller: "127.0.0.1:40112",
		Method: "GET", Host: "catalog.internal:80", Path: "/v1/items/42?full=1", Status: 200, Attempts: 2, Retries: 1,
		Endpoint: "10.0.0.1:8080", RequestID: "0b0e2e0e-9d9a-4a51-8c22-7fb6cc7f2f01",
		TraceID: "4bf92f3577b34da6a3ce929d0e0e4736", Start: day(), Queue: 40 * time.Microsecond,
		Connect: 310 * time.Microsecond, FirstByte: 2_500_123 * time.Nanosecond, Total: 3_250_999 * time.Nanosecond,
		BytesIn: 120, BytesOut: 5120, Reason: resilience.None,
	}
}
