// Package conformance tests the HTTP codecs from outside, octet by octet: it starts the real sidecar and lets the wire
// runner of this folder judge it by the cases of http1.jsonl and http2.jsonl. README.md says how cases are judged.
package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// document forwards every host to one endpoint of a protocol. The origin misbehaves on purpose, which must not open a breaker.
const document = `
services:
  any:
    hosts: ["*"]
    protocol: %s
    endpoints: ["%s"]
    policy: {timeout: 20s, breaker: none, outlier: none}
`

// serve starts a sidecar that forwards to an address. One thread gives the sharpest look at the pool: what one exchange
// leaves behind meets the next at once.
func serve(t *testing.T, protocol, address string) *sidecartest.Process {
	t.Helper()
	return sidecartest.Start(t, sidecartest.Build(t), fmt.Sprintf(document, protocol, address), "GOMAXPROCS=1")
}

// TestHTTP1 sends the HTTP/1 cases through one sidecar.
func TestHTTP1(t *testing.T) {
	t.Parallel()
	origin := sidecartest.FreeAddress(t)
	p := serve(t, "http", origin)
	judge(t, "http1.jsonl", "deviations.txt", "--proxy", p.Outbound, "--origin", origin)
}

// TestHTTP2 sends the HTTP/2 cases to the same port.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	origin := sidecartest.FreeAddress(t)
	p := serve(t, "http", origin)
	judge(t, "http2.jsonl", "deviations.txt", "--proxy", p.Outbound, "--h2-proxy", p.Outbound, "--origin", origin)
}

// TestHTTP1OverHTTP2 sends the HTTP/1 cases through two sidecars that speak HTTP/2 to each other, so that each message is
// translated there and back.
func TestHTTP1OverHTTP2(t *testing.T) {
	t.Parallel()
	origin := sidecartest.FreeAddress(t)
	far := serve(t, "http", origin)
	near := serve(t, "http2", far.Outbound)
	judge(t, "http1.jsonl", "deviations-translated.txt", "--proxy", near.Outbound, "--origin", origin)
}

// TestHTTP2OverHTTP2 sends the HTTP/2 cases through two sidecars.
func TestHTTP2OverHTTP2(t *testing.T) {
	t.Parallel()
	origin := sidecartest.FreeAddress(t)
	far := serve(t, "http", origin)
	near := serve(t, "http2", far.Outbound)
	judge(t, "http2.jsonl", "deviations-translated.txt", "--proxy", near.Outbound, "--h2-proxy", near.Outbound, "--origin", origin)
}

// judge runs the cases of a file, and fails for each that fails and is not explained in the list of deviations.
func judge(t *testing.T, cases, list string, args ...string) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal("the wire runner needs python3: make setup")
	}
	known := deviations(t, list)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	report := filepath.Join(t.TempDir(), "report.json")
	args = append([]string{"run.py", "--cases", cases, "--json", report, "--patience", patience(), "--only", os.Getenv("WIRE_ONLY")}, args...)
	run := exec.CommandContext(ctx, python, args...)
	run.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	output, err := run.CombinedOutput()
	text, readErr := os.ReadFile(report)
	if readErr != nil {
		t.Fatalf("the runner did not finish: %v\n%s", err, output)
	}
	var results []struct {
		ID       string            `json:"id"`
		Failures map[string]string `json:"failures"`
	}
	if err := json.Unmarshal(text, &results); err != nil {
		t.Fatal(err)
	}
	lines := map[string]string{} // what the runner says of a case
	for line := range strings.Lines(string(output)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "FAIL" {
			lines[words[1]] = strings.TrimSpace(line)
		}
	}

	passed, failed, excused := 0, 0, 0
	for _, r := range results {
		reason, isKnown := known[r.ID]
		switch {
		case len(r.Failures) == 0:
			passed++
			if isKnown {
				t.Logf("%s passes: take it out of %s", r.ID, list)
			}
		case isKnown:
			excused++
			t.Logf("%s deviates: %s", r.ID, reason)
		default:
			failed++
			t.Error(lines[r.ID])
		}
	}
	if len(results) == 0 {
		t.Errorf("no case ran\n%s", output)
	}
	fmt.Printf("%s: %d passed, %d failed, %d skipped\n", t.Name(), passed, failed, excused)
}

// patience is the factor on the runner's waiting times: WIRE_PATIENCE=3 suits a slow machine.
func patience() string {
	if p := os.Getenv("WIRE_PATIENCE"); p != "" {
		return p
	}
	return "1"
}

// deviations reads the cases that we fail on purpose: an id and the reason on each line.
func deviations(t *testing.T, name string) map[string]string {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var cases []byte
	for _, name := range []string{"http1.jsonl", "http2.jsonl"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		cases = append(cases, text...)
	}
	known := map[string]string{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, reason, _ := strings.Cut(line, " ")
		if strings.TrimSpace(reason) == "" {
			t.Errorf("%s: %s has no reason", name, id)
		}
		if !strings.Contains(string(cases), `"`+id+`"`) {
			t.Errorf("%s: there is no case %s", name, id)
		}
		known[id] = strings.TrimSpace(reason)
	}
	return known
}
