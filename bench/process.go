//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sidecar-mesh/sidecar/bench/load"
	"github.com/sidecar-mesh/sidecar/internal/loopback"
)

// process is a program that we started, and its children.
type process struct {
	cmd     *exec.Cmd
	exited  chan struct{}
	address string // where it serves
	admin   string // the sidecar's admin API
	output  string // file with what it said
}

// spawn starts argv on a core with stdout and stderr in files; only stdout has a name of its own when to is not empty.
func (b *bench) spawn(core, name, to string, env, argv []string) (*process, error) {
	output := filepath.Join(b.dir, name+".out")
	stderr, err := os.Create(output)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stderr.Close() }()
	cmd := exec.Command("taskset", append([]string{"-c", core}, argv...)...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = b.root, append(os.Environ(), env...), stderr, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if to != "" {
		stdout, err := os.Create(to)
		if err != nil {
			return nil, err
		}
		defer func() { _ = stdout.Close() }()
		cmd.Stdout = stdout
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, exited: make(chan struct{}), output: output}
	go func() {
		_ = cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// stop asks the process to end, and makes it after three seconds.
func (p *process) stop() {
	children := p.tree()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(3 * time.Second):
		for _, pid := range children {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		<-p.exited
	}
}

// await calls probe until it succeeds, at most ten seconds.
func (p *process) await(ctx context.Context, probe func() error) error {
	deadline := time.Now().Add(10 * time.Second)
	for {
		err := probe()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.exited:
			return fmt.Errorf("ended: %s", p.said())
		case <-time.After(10 * time.Millisecond):
			if time.Now().After(deadline) {
				return fmt.Errorf("not ready after 10 s: %w: %s", err, p.said())
			}
		}
	}
}

// said returns the end of what the process wrote.
func (p *process) said() string {
	text, _ := os.ReadFile(p.output)
	return strings.TrimSpace(string(text[max(0, len(text)-500):]))
}

// awaitHTTP waits until a request is answered with 200.
func (p *process) awaitHTTP(ctx context.Context, request []byte) error {
	return p.await(ctx, func() error {
		status, _, err := load.Once(p.address, request, 2*time.Second)
		if err == nil && status != 200 {
			err = fmt.Errorf("status %d", status)
		}
		return err
	})
}

// awaitHTTP2 is awaitHTTP by prior knowledge.
func (p *process) awaitHTTP2(ctx context.Context) error {
	return p.await(ctx, func() error {
		status, err := load.OnceHTTP2(p.address, "bench", "/", 2*time.Second)
		if err == nil && status != 200 {
			err = fmt.Errorf("status %d", status)
		}
		return err
	})
}

// awaitTCP waits until a connection is accepted.
func (p *process) awaitTCP(ctx context.Context) error {
	return p.await(ctx, func() error {
		nc, err := net.DialTimeout("tcp", p.address, time.Second)
		if err == nil {
			err = nc.Close()
		}
		return err
	})
}

// stat is a line of /proc/PID/stat behind the name: state, parent, ….
func stat(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	_, rest, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')'):]), " ")
	if fields := strings.Fields(rest); len(fields) > 20 {
		return fields
	}
	return nil
}

// tree lists the process and all below it.
func (p *process) tree() []int {
	parents := map[int]int{}
	names, _ := filepath.Glob("/proc/[0-9]*")
	for _, name := range names {
		pid, _ := strconv.Atoi(filepath.Base(name))
		if fields := stat(pid); fields != nil {
			parents[pid], _ = strconv.Atoi(fields[1])
		}
	}
	var all []int
	for pid := range parents {
		for up := pid; up > 1; up = parents[up] {
			if up == p.cmd.Process.Pid {
				all = append(all, pid)
				break
			}
		}
	}
	return all
}

// cpu is the time that all its threads have had a core, to the nanosecond.
func (p *process) cpu() (d time.Duration) {
	for _, pid := range p.tree() {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		for _, file := range files {
			text, _ := os.ReadFile(file)
			var ns int64
			_, _ = fmt.Sscan(string(text), &ns)
			d += time.Duration(ns)
		}
	}
	return d
}

// wrote is how many octets all its processes have written.
func (p *process) wrote() (octets float64) {
	for _, pid := range p.tree() {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
		for line := range strings.Lines(string(text)) {
			var n float64
			if k, _ := fmt.Sscanf(line, "wchar: %g", &n); k == 1 {
				octets += n
			}
		}
	}
	return octets
}

// rss is the resident memory of all its processes in octets.
func (p *process) rss() float64 {
	var pages int64
	for _, pid := range p.tree() {
		if fields := stat(pid); fields != nil {
			n, _ := strconv.ParseInt(fields[21], 10, 64)
			pages += n
		}
	}
	return float64(pages) * float64(os.Getpagesize())
}

// descriptors counts open files of all its processes.
func (p *process) descriptors() (n int) {
	for _, pid := range p.tree() {
		fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		n += len(fds)
	}
	return n
}

// given are the last addresses of freeAddress: the system may give one again before it is used.
var given []string

// freeAddress is a loopback address that was free a moment ago.
func freeAddress() string {
	for range 100 {
		address, err := loopback.Free("127.0.0.1", "0")
		if err != nil {
			break
		}
		if !slices.Contains(given, address) {
			given = append(given[max(0, len(given)-50):], address)
			return address
		}
	}
	return "127.0.0.1:0" // whoever uses it will say what is wrong
}
