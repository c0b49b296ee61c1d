//go:build linux

// Command bench compares the sidecar with nginx, haproxy, Envoy, nghttpx and net/http's ReverseProxy on loopback under equal
// conditions: one core for the proxy, another for load and origin, peers in turn, several rounds. It writes its findings
// with the machine and the versions as Markdown and JSON. Its parts that judge are tested; the measurements are not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Cores: the proxy under test has one to itself.
const (
	proxyCore = "0"
	loadCore  = "1"
)

// bench is one run of the benchmark.
type bench struct {
	root    string // of the module
	dir     string // for configurations and logs, removed at the end
	rounds  int
	seconds time.Duration // of one measurement
	peers   []*peer       // those that are here
	origin  *process
	cpu     *table // of the cpu row, once it has run
	profile string // file for CPU profiles of the sidecar, merged; "": none
}

// row is one kind of measurement.
type row struct {
	name string
	run  func(*bench, context.Context) (*table, error)
}

// rows lists the measurements in their order. Soak runs only when asked for.
func rows() []row {
	return []row{
		{"cpu", (*bench).cpuRow},
		{"latency", (*bench).latencyRow},
		{"one", (*bench).oneRow},
		{"rss", (*bench).rssRow},
		{"conns", (*bench).connsRow},
		{"log", (*bench).logRow},
		{"tcp", (*bench).tcpRow},
		{"h2", (*bench).http2Row},
		{"h2h1", (*bench).http2ToHTTP1Row},
		{"h2stream", (*bench).streamRow},
		{"grpc", (*bench).grpcRow},
		{"h2bulk", (*bench).http2BulkRow},
		{"h2beside", (*bench).besideRow},
		{"h2conns", (*bench).http2ConnsRow},
		{"links", (*bench).linksRow},
		{"idle", (*bench).idleRow},
		{"growth", (*bench).growthRow},
		{"soak", (*bench).soakRow},
	}
}

func main() {
	if err := pin(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// pin puts this process and all that it starts on the load core, by starting it anew under taskset.
func pin() error {
	const mark = "BENCH_PINNED"
	if os.Getenv(mark) != "" {
		return nil
	}
	if runtime.NumCPU() < 2 {
		return errors.New("needs two cores: one for the proxy, one for load and origin")
	}
	taskset, err := exec.LookPath("taskset")
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return syscall.Exec(taskset, append([]string{"taskset", "-c", loadCore, self}, os.Args[1:]...), append(os.Environ(), mark+"=1"))
}

func run(ctx context.Context) error {
	var names []string
	for _, r := range rows() {
		names = append(names, r.name)
	}
	only := flag.String("only", "", "`rows` to run, with commas: "+strings.Join(names, ", "))
	peerList := flag.String("peers", "", "`peers` to run, with commas (default all)")
	rounds := flag.Int("rounds", 3, "rounds through all peers")
	seconds := flag.Float64("seconds", 5, "length of one measurement; of the whole soak")
	out := flag.String("out", "", "`path` of the results without extension (default bench/results/latest, or partial with -only or -peers)")
	profile := flag.String("profile", "", "`file` to put a CPU profile of the sidecar into, taken during all rows")
	flag.Parse()
	chosen, err := choose(names, *only)
	if err != nil {
		return err
	}
	if *out == "" {
		*out = "bench/results/latest"
		if *only != "" || *peerList != "" {
			*out = "bench/results/partial"
		}
	}

	b := &bench{profile: *profile, rounds: max(*rounds, 1), seconds: time.Duration(*seconds * float64(time.Second))}
	if b.root, err = moduleRoot(); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "bench"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(b.dir) }()
	if err := os.Chmod(b.dir, 0o777); err != nil { // nginx's worker is another user when started by root
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Hour+b.seconds)
	defer cancel()

	rep := newReport(ctx, b, *peerList)
	if b.origin, err = b.startOrigin(ctx, freeAddress(), false); err != nil {
		return err
	}
	defer b.origin.stop()

	var failed error
	for _, r := range rows() {
		if !slices.Contains(chosen, r.name) || ctx.Err() != nil {
			continue
		}
		fmt.Fprintf(os.Stderr, "== %s\n", r.name)
		t, err := r.run(b, ctx)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", r.name, err))
		}
		if t != nil {
			rep.Tables = append(rep.Tables, t)
			fmt.Fprint(os.Stderr, t.markdown())
		}
	}
	if !filepath.IsAbs(*out) {
		*out = filepath.Join(b.root, *out)
	}
	if err := rep.write(*out); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "wrote %s.md and .json\n", *out)
	if b.profile != "" {
		failed = errors.Join(failed, b.mergeProfiles(ctx))
	}
	return errors.Join(failed, ctx.Err())
}

// choose turns the -only flag into names; without it, all but soak.
func choose(names []string, only string) ([]string, error) {
	if only == "" {
		return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "soak" }), nil
	}
	chosen := strings.Split(only, ",")
	for _, c := range chosen {
		if !slices.Contains(names, c) {
			return nil, fmt.Errorf("no row %q; there are %s", c, strings.Join(names, ", "))
		}
	}
	return chosen, nil
}

// moduleRoot finds the folder with go.mod upwards from here.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("run it inside the module")
}
