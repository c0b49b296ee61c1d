package h2

import (
	"bytes"
	"math/rand/v2"
	"net"
	"testing"
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

	m := netio.NewModerator(ModerateEvery)
	fs := newFrames(netio.New(server), nil)
	fs.onWait = func(time.Time) error { return nil }
	fs.pace.moderator, fs.pace.busy = m, func() bool { return true }
	joined := 0
	var whole []byte
	for i := 0; ; {
		if fs.pace.turn == nil && i%7 == 0 {
			fs.pace.turn, fs.pace.vain = m.Join(fs.c), 0
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

// TestReadPace: eight wakes in quick succession make a turn where there are streams enough.
func TestReadPace(t *testing.T) {
	near, far := net.Pipe() // gets no turn, but is asked for one
	defer func() { _ = near.Close() }()
	defer func() { _ = far.Close() }()
	c := netio.New(near)
	asked := 0
	p := readPace{busy: func() bool { asked++; return false }}
	for range 100 {
		p.judge(c)
	}
	if asked > 0 {
		t.Error("reads are moderated without leave")
	}
	p.moderator = netio.NewModerator(ModerateEvery)
	for end := time.Now().Add(10 * time.Second); asked < 3 && time.Now().Before(end); {
		p.judge(c)
	}
	if asked < 3 || p.turn != nil {
		t.Errorf("asked %d times whether it is busy, turn %v", asked, p.turn)
	}
	before := asked
	for range 2 * wakesToJoin {
		<-time.After(2 * ModerateEvery)
		p.judge(c)
	}
	if asked != before {
		t.Error("slow wakes count")
	}
}
