package reported

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// attacks are what hostile clients of HTTP/2 do again and again, n counting from 0 on each connection. After an error they leave
// it for another.
var attacks = map[string]func(f *http2.Framer, n int) error{
	noAttack: func(f *http2.Framer, n int) error { return open(f, n, true, request) },
	"rapid reset": func(f *http2.Framer, n int) error {
		_ = open(f, n, true, request)
		return f.WriteRSTStream(uint32(2*n+1), http2.ErrCodeCancel)
	},
	"come and go": func(f *http2.Framer, n int) error { // before anything can be done about the connection
		if n == 2 {
			return io.EOF
		}
		_ = open(f, n, true, request)
		return f.WriteRSTStream(uint32(2*n+1), http2.ErrCodeCancel)
	},
	"made to reset": func(f *http2.Framer, n int) error {
		_ = open(f, n, true, request)
		return f.WriteWindowUpdate(uint32(2*n+1), 0)
	},
	"continuations": func(f *http2.Framer, n int) error {
		if n == 0 {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: request})
		}
		return f.WriteContinuation(1, false, nil)
	},
	"settings": func(f *http2.Framer, _ int) error { return f.WriteSettings(setting(http2.SettingInitialWindowSize, 1)) },
	"pings":    func(f *http2.Framer, _ int) error { return f.WritePing(false, [8]byte{}) },
	"empty DATA": func(f *http2.Framer, n int) error {
		if n == 0 {
			return open(f, n, false, request)
		}
		return f.WriteData(1, false, nil)
	},
	"closed window": func(f *http2.Framer, n int) error {
		if n == 0 {
			_ = f.WriteSettings(setting(http2.SettingInitialWindowSize, 0))
		}
		if n < 90 {
			return open(f, n, true, request)
		}
		<-time.After(5 * time.Millisecond)
		return f.WriteWindowUpdate(0, 1)
	},
	"many fields": func(f *http2.Framer, n int) error { return open(f, n, true, indexed(12000)) },
	"large fields": func(f *http2.Framer, n int) error {
		return open(f, n, true, append(append([]byte(nil), request...), append([]byte{0x40, 1, 'a', 0x7f, 0xc1, 0x1d}, make([]byte, 3904)...)...))
	},
}

var request = []byte{0x82, 0x86, 0x84, 0x01, 3, 's', 'v', 'c'}

// indexed is a head with one small field many times.
func indexed(n int) []byte {
	b := append(append([]byte(nil), request...), 0x40, 1, 'a', 1, 'b')
	for range n {
		b = append(b, 0xbe)
	}
	return b
}

func open(f *http2.Framer, n int, end bool, block []byte) error {
	return f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*n + 1), BlockFragment: block, EndStream: end, EndHeaders: true})
}

// noAttack is as many requests of clients who behave: what the same load costs others without any abuse.
const noAttack = "no attack"

// sample is how many calls a percentile is taken of, at least.
const sample = 100

// TestAbuseOfHTTP2: sixty-four attackers of each kind, who connect again whenever they are thrown out. Another client is
// answered all the while, in time, and memory stays bounded.
//
// SOAK=seconds makes it last, and measures the sidecar: it has one processor for itself. Callers and their origin have the other,
// and attackers and the origin of theirs what is left of that, so that callers wait for the sidecar alone. On a machine that does
// other things, "chrt -r 1 go test …" puts sidecar, callers and origin before them. Others may wait twice as long as alone then.
func TestAbuseOfHTTP2(t *testing.T) {
	last := 2 * time.Second
	seconds, _ := strconv.Atoi(os.Getenv("SOAK"))
	if seconds > 0 {
		last = time.Duration(seconds) * time.Second
		pinTo(t, os.Getpid(), 1)
	}
	for name := range attacks {
		if name == noAttack && seconds == 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			origin, victim := sidecartest.Answer(t, sidecartest.OK("ok")), sidecartest.FreeAddress(t)
			p := sidecartest.Run(t, `services: {svc: {endpoints: [%q]}, calm: {endpoints: [%q]}}`, victim, origin.Address)
			if seconds > 0 {
				pinTo(t, p.PID, 0)
			}
			call := sidecartest.Call{Address: p.Outbound, Host: "calm", Path: "/", Callers: 2, Pause: 2 * time.Millisecond}
			alone := sidecartest.Steady(t, call)
			began, used := time.Now(), p.CPU(t)
			<-time.After(300*time.Millisecond + last/4)
			alone.Stop()
			before, memory, idle := alone.Quantile(0.99), p.ResidentKB(t), share(p.CPU(t)-used, began)
			began, used = time.Now(), p.CPU(t)
			stop := attackers(t, name, p.Outbound, victim)
			calm := sidecartest.Steady(t, call)
			// A percentile needs its sample: a slow machine is given more time for it, under attack all the while.
			end, bound := time.Now().Add(last), time.Now().Add(last+time.Minute)
			over := func() bool {
				now := time.Now()
				if now.Before(end) {
					return false
				}
				calls, _ := calm.Count()
				return calls >= sample || now.After(bound)
			}
			peak := memory
			for !over() {
				peak = max(peak, p.ResidentKB(t))
				<-time.After(50 * time.Millisecond)
			}
			during, busy := calm.Quantile(0.99), share(p.CPU(t)-used, began)
			said := stop()
			calls, failed := calm.Count()
			t.Logf("%s: P99 %v, then %v (%.1f times) over %d calls; CPU %.0f %%, then %.0f %%; memory %d kB, up to %d kB; %s",
				name, before, during, float64(during)/float64(before), calls, idle, busy, memory, peak, said)
			if failed > 0 || calls < sample {
				t.Errorf("%d of %d calls failed: %q", failed, calls, calm.Failures)
			}
			if peak-memory > 128<<10 {
				t.Errorf("memory grew from %d to %d kB", memory, peak)
			}
			if seconds > 0 && name != noAttack && during > 2*before {
				t.Errorf("others wait %.1f times as long as alone", float64(during)/float64(before))
			}
			// The attackers share two processors with everybody: this only tells a stall from slowness.
			if during > 5*time.Second {
				t.Errorf("P99 %v", during)
			}
		})
	}
}

// share is a time of work in percent of the time since.
func share(work time.Duration, since time.Time) float64 {
	return 100 * float64(work) / float64(time.Since(since))
}

// Where the attackers' process finds what it has to do.
const (
	attackVariable  = "REPORTED_ATTACK"
	attackedAddress = "REPORTED_ATTACKED"
	victimAddress   = "REPORTED_VICTIM"
)

// attackers starts sixty-four of a kind in a process of low priority, and the origin of what they ask for. stop ends them and
// returns what they tell of themselves.
func attackers(t *testing.T, kind, address, victim string) (stop func() string) {
	t.Helper()
	cmd := exec.Command("chrt", "--other", "0", "nice", "-n", "19", os.Args[0], "-test.run=^TestAttackers$", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), attackVariable+"="+kind, attackedAddress+"="+address, victimAddress+"="+victim)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceValue(func() string {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("attackers: %v: %s", err, said.String())
		}
		text, _, _ := strings.Cut(said.String(), "\n")
		return text
	})
	t.Cleanup(func() { stop() })
	return stop
}

// TestAttackers is the process of the attackers, which ends with its input.
func TestAttackers(t *testing.T) {
	attack := attacks[os.Getenv(attackVariable)]
	if attack == nil {
		t.Skip("it is a part of TestAbuseOfHTTP2")
	}
	_ = sidecartest.AnswerAt(t, os.Getenv(victimAddress), sidecartest.OK("ok"))
	var ended atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		ended.Store(true)
	}()
	var wg sync.WaitGroup
	var steps, conns atomic.Int64
	for range 64 {
		wg.Go(func() {
			for !ended.Load() {
				conns.Add(1)
				steps.Add(besiege(t, os.Getenv(attackedAddress), attack, ended.Load, 10*time.Millisecond))
			}
		})
	}
	wg.Wait()
	fmt.Printf("%d steps on %d connections\n", steps.Load(), conns.Load())
}

// besiege attacks on one connection until it ends, or all is over, and returns how many steps it came.
func besiege(t *testing.T, address string, attack func(*http2.Framer, int) error, over func() bool, pause time.Duration) int64 {
	c := sidecartest.DialHTTP2(t, address)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if _, err := c.Next(); err != nil {
				_ = c.Conn.Close()
				return
			}
		}
	}()
	var err error
	n := 0
	for ; err == nil && !over(); n++ {
		c.Write(func(f *http2.Framer) error { err = attack(f, n); return nil })
		<-time.After(pause)
	}
	_ = c.Conn.Close()
	<-ended
	return int64(n)
}

// pinTo has all threads of a process run on one processor.
func pinTo(t *testing.T, pid, cpu int) {
	t.Helper()
	if said, err := exec.Command("taskset", "-a", "-p", "-c", strconv.Itoa(cpu), strconv.Itoa(pid)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
}
