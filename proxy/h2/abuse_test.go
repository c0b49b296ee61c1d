package h2_test

import (
	"bytes"
	"net"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// block is the head of a request with more behind it.
func block(more ...byte) []byte { return append(append([]byte(nil), rq...), more...) }

func open(fr *http2.Framer, id uint32, end bool, b []byte) error {
	return fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b, EndStream: end, EndHeaders: true})
}

// attacks are the rows of H2-DS: each sends one round of itself, n counting from 0.
var attacks = []struct {
	name   string
	rounds int
	calm   bool // it must end in ENHANCE_YOUR_CALM, or in the end of the connection; else it may also be put up with
	round  func(fr *http2.Framer, n int) error
}{
	{"rapid reset", 20000, true, func(fr *http2.Framer, n int) error {
		_ = open(fr, uint32(2*n+1), true, rq)
		return fr.WriteRSTStream(uint32(2*n+1), http2.ErrCodeCancel)
	}},
	{"continuations", 200, true, func(fr *http2.Framer, n int) error {
		if n == 0 {
			return fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: rq})
		}
		return fr.WriteContinuation(1, false, nil)
	}},
	{"pings", 20000, true, func(fr *http2.Framer, _ int) error { return fr.WritePing(false, [8]byte{}) }},
	{"settings", 20000, true, func(fr *http2.Framer, n int) error {
		return fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(n)})
	}},
	{"malformed requests", 20000, true, func(fr *http2.Framer, n int) error { return open(fr, uint32(2*n+1), true, []byte{0x82}) }},
	{"empty DATA", 20000, true, func(fr *http2.Framer, n int) error {
		if n == 0 {
			return open(fr, 1, false, []byte{0x83, 0x86, 0x84, 0x01, 3, 's', 'v', 'c'})
		}
		return fr.WriteData(1, false, nil)
	}},
	{"priority", 50000, true, func(fr *http2.Framer, n int) error {
		return fr.WritePriority(uint32(2*n+1), http2.PriorityParam{StreamDep: uint32(2*n + 3)})
	}},
	{"window updates", 50000, true, func(fr *http2.Framer, _ int) error { return fr.WriteWindowUpdate(0, 1) }},
	{"unknown frames", 50000, true, func(fr *http2.Framer, _ int) error { return fr.WriteRawFrame(0x77, 0, 0, []byte("x")) }},
	{"goaways", 20000, true, func(fr *http2.Framer, _ int) error {
		return fr.WriteGoAway(0, http2.ErrCodeNo, bytes.Repeat([]byte("x"), 16000))
	}},
	{"empty names", 5000, true, func(fr *http2.Framer, n int) error {
		return open(fr, uint32(2*n+1), true, block(bytes.Repeat([]byte{0, 0, 0}, 200)...))
	}},
	{"indexed bomb", 2000, false, func(fr *http2.Framer, n int) error { // H2-HP-010: 4 kB, 16000 times
		if n == 0 {
			return open(fr, 1, true, block(append([]byte{0x40, 1, 'a', 0x7f, 0xc1, 0x1d}, bytes.Repeat([]byte("v"), 3904)...)...))
		}
		return open(fr, uint32(2*n+1), true, block(bytes.Repeat([]byte{0xbe}, 16000)...))
	}},
	{"tiny fields", 500, true, func(fr *http2.Framer, n int) error { // H2-HP-011
		return open(fr, uint32(2*n+1), true, block(append([]byte{0x40, 1, 'a', 1, 'b'}, bytes.Repeat([]byte{0xbe}, 3000)...)...))
	}},
	{"large blocks", 500, true, func(fr *http2.Framer, n int) error {
		if n == 0 {
			return fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: rq})
		}
		return fr.WriteContinuation(1, false, append([]byte{0, 1, 'a', 0x7f, 0x81, 0x7b}, bytes.Repeat([]byte("v"), 15872)...))
	}},
	{"index churn", 5000, false, func(fr *http2.Framer, n int) error {
		return open(fr, uint32(2*n+1), true, block(append([]byte{0x40, 2, 'a' + byte(n%26), 'a' + byte(n/26%26), 0x7f, 0xc1, 0x1d}, bytes.Repeat([]byte("v"), 3904)...)...))
	}},
	{"held streams", 100, false, func(fr *http2.Framer, n int) error { // H2-DS-101
		if n == 0 {
			_ = fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize})
		}
		return open(fr, uint32(2*n+1), true, block(bytes.Repeat([]byte{0, 6, 'c', 'o', 'o', 'k', 'i', 'e', 3, 'a', '=', '1'}, 90)...))
	}},
	{"window of 0", 20000, true, made(func(fr *http2.Framer, id uint32) error { return fr.WriteWindowUpdate(id, 0) })}, // H2-DS-102
	{"window overflow", 20000, true, made(func(fr *http2.Framer, id uint32) error { return fr.WriteWindowUpdate(id, 1<<31-1) })},
	{"own parent", 20000, true, made(func(fr *http2.Framer, id uint32) error {
		return fr.WritePriority(id, http2.PriorityParam{StreamDep: id})
	})},
	{"HEADERS behind the end", 20000, true, made(func(fr *http2.Framer, id uint32) error { return open(fr, id, true, []byte{0, 1, 'a', 1, 'b'}) })},
	{"DATA behind the end", 20000, true, made(func(fr *http2.Framer, id uint32) error { return fr.WriteData(id, true, []byte("x")) })},
}

// made makes the server reset a request that was complete.
func made(trigger func(fr *http2.Framer, id uint32) error) func(*http2.Framer, int) error {
	return func(fr *http2.Framer, n int) error {
		id := uint32(2*n + 1)
		if err := open(fr, id, true, rq); err != nil {
			return err
		}
		return trigger(fr, id)
	}
}

// TestAbuse sends each attack to a server whose work takes a moment: the connection ends where it must, what is held
// meanwhile is bounded, and nothing stays.
func TestAbuse(t *testing.T) {
	slow := serveConns(t, func(nc net.Conn) { // takes everything, and answers nothing
		b := make([]byte, 4<<10)
		for {
			if _, err := nc.Read(b); err != nil {
				return
			}
		}
	})
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			r := newRig(t, setup{config: strings.Replace(plain1, "breaker: none", "timeout: 200ms, breaker: none", 1), origins: []string{slow}})
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			c := r.dial2()
			done := make(chan map[string]int, 1)
			go func() { done <- c.rest() }()
			c.out.AllowIllegalWrites = true
			var err error
			n, rounds := 0, a.rounds
			if raceEnabled && rounds > 5000 {
				rounds /= 2
			}
			for ; n < rounds && err == nil; n++ {
				c.mu.Lock()
				err = a.round(c.out, n)
				c.mu.Unlock()
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 24<<20 {
				t.Errorf("%d MB are held", grown>>20)
			}
			if err == nil { // it goes on: nobody waits for the rest
				c.mu.Lock()
				_ = c.nc.(*net.TCPConn).CloseWrite()
				c.mu.Unlock()
			}
			seen := <-done
			calm := seen["GOAWAY ENHANCE_YOUR_CALM"]+seen["GOAWAY STREAM_CLOSED"]+seen["GOAWAY PROTOCOL_ERROR"]+seen["reset"] > 0 || err != nil
			if a.calm && !calm || seen["hangs"] > 0 {
				t.Errorf("after %d rounds: %v", n, seen)
			}
			t.Logf("%d rounds: %v %v", n, err, seen)
			r.settled()
		})
	}
}

// TestAbuseByOrigins (H2-DS-112): the same from the other side costs a request its answer, and nobody else anything.
func TestAbuseByOrigins(t *testing.T) {
	for _, a := range attacks {
		switch a.name {
		case "pings", "settings", "empty DATA", "priority", "window updates", "unknown frames", "continuations", "goaways":
		default:
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			origin := serve2(t, nil, func(p *peer) {
				over := make(chan struct{})
				go func() {
					defer close(over)
					p.rest()
				}()
				if a.name == "empty DATA" || a.name == "goaways" {
					p.moment()
					p.headers(1, false, ":status", "200")
				}
				var err error
				for n := 1; n < a.rounds && err == nil; n++ {
					p.mu.Lock()
					err = a.round(p.out, n)
					p.mu.Unlock()
				}
				<-over
			})
			r := newRig(t, setup{config: strings.Replace(plain2, "breaker: none", "timeout: 1s, breaker: none", 1), origins: []string{origin}})
			c := r.dial2()
			if got := told(c, 1, get...); !strings.HasPrefix(got, "HEADERS 5") && !strings.Contains(got, "RST INTERNAL_ERROR") {
				t.Error(got)
			}
			r.settled()
		})
	}
}
