package h2

import (
	"bytes"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
)

// TestModeratedFrames: a connection that is read at a steady pace yields the same frames; when little comes it is read at
// each arrival again, and an end is seen either way.
func TestModeratedFrames(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	fr := http2.NewFramer(&b, nil)
	for i := range 300 {
		if i%2 == 0 {
			_ = fr.WriteData(1, false, make([]byte, 1+i*50))
		} else {
			_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: make([]byte, i), EndHeaders: true})
		}
	}
	want := ours(bytes.Clone(b.Bytes()), 1, 1<<20)
	text := b.Bytes()
	go func() {
		rnd := rand.New(rand.NewPCG(1, 2))
		for len(text) > 0 {
			n := min(len(text), 1+rnd.IntN(20000))
			_, _ = client.Write(text[:n])
			if text = text[n:]; rnd.IntN(10) == 0 {
				<-time.After(time.Millisecond)
			}
		}
		_ = client.Close()
	}()

	m := netio.NewModerator(ModerateTick)
	fs := newFrames(netio.New(server), nil)
	fs.onWait = func(time.Time) error { return nil }
	fs.pace.moderator, fs.pace.streams = m, func() int { return 100 }
	joined := 0
	var whole []byte
	for i := 0; ; {
		switch {
		case fs.pace.turn != nil && i%11 == 0:
			fs.pace.leave()
		case fs.pace.turn == nil && i%7 == 0:
			fs.pace.turn, fs.pace.ticks, fs.pace.vain = m.Join(fs.c), 1, 0
			joined++
		}
		f, err := fs.next()
		if err != nil {
			if i != len(want)-1 {
				t.Errorf("%v after %d of %d frames", err, i, len(want)-1)
			}
			break
		}
		if f.part {
			whole = append(whole, f.payload...)
			continue
		}
		if w := want[i]; f.kind != w.kind || string(whole)+string(f.payload) != w.payload {
			t.Fatalf("frame %d: %v with %d octets, want %v with %d", i, f.kind, len(whole)+len(f.payload), w.kind, len(w.payload))
		}
		whole = whole[:0]
		i++
	}
	fs.pace.leave()
	fs.release()
	_ = server.Close()
	if joined < 2 || m.Turns() != 0 {
		t.Errorf("%d turns were had, %d are left", joined, m.Turns())
	}
}

// TestReadPace: many wakes in quick succession, each for few of the streams, make a turn.
func TestReadPace(t *testing.T) {
	for _, tc := range []struct {
		name           string
		streams, found int
		gap            time.Duration // between two wakes
		joins          bool
	}{
		{"few of many", 16, 5, ModerateTick, true},
		{"few streams", 7, 1, ModerateTick, false},
		{"most of them", 16, 8, ModerateTick, false},
		{"now and then", 16, 5, mostTicks * ModerateTick, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := readPace{streams: func() int { return tc.streams }}
				joins := 0
				for range 10*wakesToJoin + 1 { // there is nothing before the first
					time.Sleep(tc.gap)
					p.found = tc.found
					if p.judge() {
						joins++
					}
				}
				if want := map[bool]int{true: 10}[tc.joins]; joins != want {
					t.Errorf("%d turns, want %d", joins, want)
				}
			})
		})
	}
}

// TestReadPaceAdapts: looks come as often as about half of the streams have something, and end where that is no use.
func TestReadPaceAdapts(t *testing.T) {
	p := readPace{streams: func() int { return 16 }, ticks: 1}
	for i, tc := range []struct {
		found, ticks int
		stays        bool
	}{
		{5, 2, true},
		{5, 4, true},
		{5, 4, true},
		{8, 4, true},
		{16, 2, true},
		{40, 1, true},
		{12, 1, true},
		{16, 1, true},
		{15, 1, true},
		{16, 1, true},
		{16, 1, false}, // twice: as many as there are come at any pace
		{3, 2, true},
		{3, 4, true},
		{3, 4, true},
		{4, 4, true},
		{3, 4, true},
		{3, 4, false},
	} {
		p.found = tc.found
		if stays := p.adapt(); stays != tc.stays || p.ticks != tc.ticks {
			t.Errorf("%d: %d frames found: stays %v with %d ticks", i, tc.found, stays, p.ticks)
		}
		if !tc.stays {
			p.vain = 0
		}
	}
}
