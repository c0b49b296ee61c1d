package telemetry

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// safeBuffer is a sink that tests can read meanwhile.
type safeBuffer struct {
	mu     sync.Mutex
	b      bytes.Buffer
	writes int
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// gate is a sink that holds writers until it is opened.
type gate struct {
	safeBuffer
	open chan struct{}
}

func (g *gate) Write(p []byte) (int, error) {
	<-g.open
	return g.safeBuffer.Write(p)
}

func TestLogIsWrittenInPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out safeBuffer
		r, err := New(Options{AccessLog: AccessLog{To: "stdout"}, Stdout: &out, Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		o := sampleOutcome(nil)
		for range 10 {
			r.Record(&o)
		}
		synctest.Wait()
		if out.String() != "" {
			t.Error("written at once")
		}
		time.Sleep(flushEvery)
		synctest.Wait()
		if n := strings.Count(out.String(), "\n"); n != 10 || out.writes != 1 {
			t.Errorf("%d lines in %d writes", n, out.writes)
		}
		for range 200 { // more than 64 KiB: does not wait
			r.Record(&o)
		}
		synctest.Wait()
		if n := strings.Count(out.String(), "\n"); n < 100 {
			t.Errorf("%d lines while the buffer was full", n)
		}
		time.Sleep(time.Minute) // gives up its buffers
		r.Record(&o)
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if n := strings.Count(out.String(), "\n"); n != 211 {
			t.Errorf("%d lines after Close", n)
		}
		r.Record(&o)
		if err := r.SetAccessLog(AccessLog{To: "stderr"}); err == nil {
			t.Error("a closed log was opened")
		}
	})
}

func TestStalledSinkDropsAndCounts(t *testing.T) {
	out := &gate{open: make(chan struct{})}
	r := newTest(t, Options{AccessLog: AccessLog{To: "stdout"}, Stdout: out})
	const n = 10_000
	start := time.Now()
	for range n {
		o := sampleOutcome(nil)
		r.Record(&o)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("a stalled sink held the data path for %v", took)
	}
	r.log.mu.Lock()
	held := r.log.queued + len(r.log.pending)
	r.log.mu.Unlock()
	if held > defaultBuffer {
		t.Errorf("%d bytes wait", held)
	}
	if r.log.dropped.Load() == 0 {
		t.Error("nothing was dropped")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := r.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close of a stalled log: %v", err)
	}
	close(out.open)
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got := r.log.dropped.Load() + r.log.lines.Load(); got != n {
		t.Errorf("%d lines accounted for, %d recorded", got, n)
	}
	if got := strings.Count(out.String(), "\n"); uint64(got) != r.log.lines.Load() {
		t.Errorf("%d lines written, %d counted", got, r.log.lines.Load())
	}
}

// Swapping format and destination under load loses no line and mixes none.
func TestSwapLosesNothing(t *testing.T) {
	dir := t.TempDir()
	var out safeBuffer
	r := newTest(t, Options{AccessLog: AccessLog{To: "stdout", Buffer: 64 << 20}, Stdout: &out})
	const workers, each = 4, 3000
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				r.Record(&Outcome{Path: fmt.Sprintf("/%d/%d", w, i), Start: day()})
			}
		})
	}
	for i := range 200 {
		c := AccessLog{To: "stdout", Buffer: 64 << 20, Format: []string{"json", "text"}[i%2]}
		if i%3 == 0 {
			c.To = "file:" + filepath.Join(dir, "text.log")
			c.Format = "text"
		}
		if err := r.SetAccessLog(c); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join(dir, "text.log"))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(file, []byte("{")) {
		t.Error("JSON in a text file")
	}
	seen := map[string]bool{}
	for line := range strings.Lines(out.String() + string(file)) {
		if json.Valid([]byte(line)) {
			var v struct{ Path string }
			_ = json.Unmarshal([]byte(line), &v)
			seen[v.Path] = true
		} else if _, path, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " path="); ok {
			seen[path] = true
		}
	}
	if len(seen) != workers*each || r.log.dropped.Load() != 0 {
		t.Errorf("%d of %d lines, %d dropped", len(seen), workers*each, r.log.dropped.Load())
	}
}

// lines reads a file of log lines.
func lines(t *testing.T, path string) (list []string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		list = append(list, s.Text())
	}
	return list
}

func TestFileIsFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	var l accessLog
	s, err := l.open("file:" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	now := time.Now()
	write := func(text string) {
		t.Helper()
		now = now.Add(2 * movedEvery)
		if err := s.follow(now); err != nil {
			t.Error(err)
		}
		if _, err := s.write([]byte(text + "\n")); err != nil {
			t.Error(err)
		}
	}
	write("a")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	write("b")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	write("c")
	if got := fmt.Sprint(lines(t, path+".1"), lines(t, path)); got != "[a] [c]" {
		t.Errorf("moved away: %s", got)
	}
	if err := os.Rename(path, path+".2"); err != nil {
		t.Fatal(err)
	}
	s.reopen.Store(true)
	if _, err := s.write([]byte("d\n")); err != nil {
		t.Error(err)
	}
	if got := fmt.Sprint(lines(t, path+".2"), lines(t, path)); got != "[c] [d]" {
		t.Errorf("reopened: %s", got)
	}
}

func TestReopenByHand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	r := newTest(t, Options{AccessLog: AccessLog{To: "file:" + path, Format: "text"}})
	o := sampleOutcome(nil)
	r.Record(&o)
	r.Reopen()
	r.Record(&o)
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(lines(t, path)); n != 2 {
		t.Errorf("%d lines", n)
	}
}

// failing takes a few bytes of each write.
type failing struct {
	b     bytes.Buffer
	fails int
}

func (f *failing) Write(p []byte) (int, error) {
	if f.fails == 0 {
		return f.b.Write(p)
	}
	f.fails--
	n, _ := f.b.Write(p[:min(5, len(p))])
	return n, errors.New("no space left on device")
}

func TestTornLine(t *testing.T) {
	f := &failing{fails: 1}
	s := sink{w: f}
	if n, err := s.write([]byte("first line\n")); n != 5 || err == nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := s.write([]byte("second line\n")); err != nil {
		t.Error(err)
	}
	if f.b.String() != "first\nsecond line\n" {
		t.Errorf("%q", f.b.String())
	}
}

// A disk without room is told, once a minute at most.
func TestLogFailureIsAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := New(Options{Stdout: &failing{fails: 1 << 20}, AccessLog: AccessLog{To: "stdout"}, Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		o := sampleOutcome(nil)
		for range 3 {
			r.Record(&o)
			time.Sleep(flushEvery)
			synctest.Wait()
		}
		all := r.Events().Snapshot()
		if len(all) != 1 || all[0].Kind != EventAccessLog || all[0].To != "failing" || all[0].Detail != "no space left on device" {
			t.Errorf("%+v", all)
		}
		time.Sleep(time.Minute)
		r.Record(&o)
		_ = r.Close(t.Context())
		if all := r.Events().Snapshot(); len(all) != 2 {
			t.Errorf("%d events", len(all))
		}
	})
}

func TestSetAccessLogRefuses(t *testing.T) {
	r := newTest(t, Options{AccessLog: AccessLog{To: "none"}})
	for _, c := range []AccessLog{
		{To: "syslog"},
		{To: "file:"},
		{To: "stdout", Format: "xml"},
		{To: "file:/nowhere/to/be/found"},
	} {
		if err := r.SetAccessLog(c); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
	if _, err := New(Options{AccessLog: AccessLog{To: "syslog"}}); err == nil {
		t.Error("New took it")
	}
}

// A reader who leaves is an error that is counted, not the end of the process.
func TestBrokenPipe(t *testing.T) {
	rd, wr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer wr.Close()
	s := sink{to: "pipe"}
	if err := s.dup(int(wr.Fd())); err != nil {
		t.Fatal(err)
	}
	defer s.close()
	rd.Close()
	if _, err := s.write([]byte("x\n")); err == nil {
		t.Error("a broken pipe took a line")
	}
}
