// Package conformance tests the HTTP/1 codec from outside, octet by octet: it starts the real sidecar and lets the wire
// runner of this folder judge it by the cases of http1.jsonl. README.md says how cases are judged.
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

// document forwards every host to the runner's origin. The origin misbehaves on purpose, which must not open a breaker.
const document = `
services:
  any:
    hosts: ["*"]
    endpoints: ["127.0.0.1:%s"]
    policy: {timeout: 20s, breaker: none, outlier: none}
`

// TestHTTP1 fails for each case that fails and is not explained in deviations.txt.
func TestHTTP1(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal("the wire runner needs python3: make setup")
	}
	known := deviations(t)
	origin := sidecartest.FreePort(t)
	// One thread gives the sharpest look at the pool: what one exchange leaves behind meets the next at once.
	p := sidecartest.Start(t, sidecartest.Build(t), fmt.Sprintf(document, origin), "GOMAXPROCS=1")

	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	report := filepath.Join(t.TempDir(), "report.json")
	run := exec.CommandContext(ctx, python, "run.py", "--proxy", p.Outbound, "--origin-port", origin,
		"--cases", "http1.jsonl", "--json", report, "--patience", patience(), "--only", os.Getenv("WIRE_ONLY"))
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
				t.Logf("%s passes: take it out of deviations.txt", r.ID)
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
	fmt.Printf("%d passed, %d failed, %d skipped\n", passed, failed, excused)
}

// patience is the factor on the runner's waiting times: WIRE_PATIENCE=3 suits a slow machine.
func patience() string {
	if p := os.Getenv("WIRE_PATIENCE"); p != "" {
		return p
	}
	return "1"
}

// deviations reads the cases that we fail on purpose: an id and the reason on each line.
func deviations(t *testing.T) map[string]string {
	t.Helper()
	file, err := os.Open("deviations.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	cases, err := os.ReadFile("http1.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]string{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, reason, _ := strings.Cut(line, " ")
		if strings.TrimSpace(reason) == "" {
			t.Errorf("deviations.txt: %s has no reason", id)
		}
		if !strings.Contains(string(cases), `"`+id+`"`) {
			t.Errorf("deviations.txt: there is no case %s", id)
		}
		known[id] = strings.TrimSpace(reason)
	}
	return known
}
