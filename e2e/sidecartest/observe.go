package sidecartest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Eventually waits until holds does, and fails the test when it does not within a time. It asks every few milliseconds.
func Eventually(t testing.TB, within time.Duration, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !holds(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

// Never watches for a time that holds does not, and fails the test when it does.
func Never(t testing.TB, during time.Duration, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(during); time.Now().Before(end); <-time.After(5 * time.Millisecond) {
		if holds() {
			t.Fatalf("within %v: %s", during, what)
		}
	}
}

// Record is a line of the access log.
type Record struct {
	Direction, Protocol, Service, Route, Method, Path, Reason, Detail, Endpoint string
	Status, Attempts, Retries, Replays                                          int
	TotalMS                                                                     float64 `json:"total_ms"`
	GRPCStatus                                                                  string  `json:"grpc_status"`
}

// Records waits until the access log has at least n records, and returns it. The log is written with a delay.
func (p *Process) Records(t testing.TB, n int) []Record {
	t.Helper()
	var list []Record
	Eventually(t, patience, "the access log is written", func() bool {
		list = p.records(t)
		return len(list) >= n
	})
	return list
}

func (p *Process) records(t testing.TB) []Record {
	t.Helper()
	var list []Record
	for line := range strings.Lines(p.stdout.String()) {
		if !strings.HasSuffix(line, "\n") || !strings.HasPrefix(line, "{") {
			continue
		}
		var r Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("access log: %v in %q", err, line)
		}
		list = append(list, r)
	}
	return list
}

// Record waits for the first record of a path.
func (p *Process) Record(t testing.TB, path string) Record {
	t.Helper()
	var found Record
	Eventually(t, patience, "an access log record of "+path, func() bool {
		for _, r := range p.records(t) {
			if r.Path == path {
				found = r
				return true
			}
		}
		return false
	})
	return found
}

// Metric returns the sum of the samples of a metric whose labels contain all given texts, like `reason="timeout"`; 0 where
// there is none, as a series begins with its first event.
func (p *Process) Metric(t testing.TB, name string, labels ...string) float64 {
	t.Helper()
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + p.Metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	sum := 0.0
	lines := bufio.NewScanner(io.LimitReader(resp.Body, 64<<20))
	lines.Buffer(nil, 1<<20)
next:
	for lines.Scan() {
		line := lines.Text()
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue next
			}
		}
		v, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			t.Fatalf("metric line %q: %v", line, err)
		}
		sum += v
	}
	return sum
}

// Refuses reports whether an address takes no connection.
func Refuses(address string) bool {
	c, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err == nil {
		_ = c.Close()
	}
	return err != nil
}

// ResidentKB returns how much memory the process has, in kB.
func (p *Process) ResidentKB(t testing.TB) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		var kB int
		if n, _ := fmt.Sscanf(line, "VmRSS: %d kB", &kB); n == 1 {
			return kB
		}
	}
	t.Fatal("no VmRSS in the status")
	return 0
}

// OpenFiles returns how many descriptors the process has.
func (p *Process) OpenFiles(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// Says waits until the process has written all parts to standard error: what it does shows before what it says of it does.
func (p *Process) Says(t testing.TB, parts ...string) {
	t.Helper()
	for _, part := range parts {
		Eventually(t, patience, "it says "+part, func() bool { return strings.Contains(p.Said(), part) })
	}
}

// Reload puts a document in the place of the configuration and waits until it is in force.
func (p *Process) Reload(t testing.TB, document string, args ...any) {
	t.Helper()
	before, failed := p.Metric(t, "sidecar_reloads_total", `result="ok"`), p.Metric(t, "sidecar_reloads_total", `result="failed"`)
	p.Write(t, document, args...)
	Eventually(t, patience, "the new configuration is in force", func() bool {
		if p.Metric(t, "sidecar_reloads_total", `result="failed"`) > failed {
			t.Fatalf("the configuration was refused: %s", tail(p.Said()))
		}
		return p.Metric(t, "sidecar_reloads_total", `result="ok"`) > before
	})
}

// CPU returns how much processor time the process has used.
func (p *Process) CPU(t testing.TB) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // behind the name
	f := strings.Fields(rest)
	const user, system, tick = 11, 12, 10 * time.Millisecond // proc_pid_stat(5), counted from 0 behind the name
	var sum int
	for _, i := range []int{user, system} {
		n, err := strconv.Atoi(f[i])
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return time.Duration(sum) * tick
}
