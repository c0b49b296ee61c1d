package h2_test

import (
	"bytes"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

const replies = `services: {svc: {endpoints: ["127.0.0.1:1"], routes: [{match: {path: /}, respond: {status: 204}}]}}
`

// TestPingsTooOften (GR-214): pings are put up with for a while, then the connection ends in words that clients of gRPC
// understand.
func TestPingsTooOften(t *testing.T) {
	r := newRig(t, setup{config: replies, origins: []string{"127.0.0.1:1"}})
	c := r.dial2()
	ping := func(n int) {
		t.Helper()
		for range n {
			c.mu.Lock()
			_ = c.out.WritePing(false, [8]byte{}) // the connection may be over
			c.mu.Unlock()
		}
	}
	ping(150)
	if got := told(c, 1, get...); !strings.HasPrefix(got, "HEADERS 204") {
		t.Fatalf("after 150 pings: %s", got)
	}
	ping(500)
	for {
		e, err := c.next()
		if err != nil {
			t.Fatal(err)
		}
		if e.kind == http2.FrameGoAway {
			if e.code != http2.ErrCodeEnhanceYourCalm || string(e.data) != "too_many_pings" {
				t.Errorf("%v %q", e, e.data)
			}
			break
		}
	}
	_ = c.nc.Close()
	r.settled()
}

// TestBombEndsAtOnce: a head somewhat above the limits is refused, one far above them ends its connection before all of it
// is decoded.
func TestBombEndsAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name  string
		field []byte
		n     int
		want  string
	}{
		{"200 fields", []byte{0, 1, 'a', 1, 'b'}, 200, "HEADERS#1 431"},
		{"3000 fields", []byte{0, 1, 'a', 1, 'b'}, 3000, "GOAWAY 0 ENHANCE_YOUR_CALM"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, setup{config: plain1, origins: []string{"127.0.0.1:1"}})
			c := r.dial2()
			c.mu.Lock()
			err := open(c.out, 1, true, block(bytes.Repeat(tt.field, tt.n)...))
			c.mu.Unlock()
			if err != nil {
				t.Fatal(err)
			}
			for {
				e, err := c.next()
				if err != nil {
					t.Fatal(err)
				}
				if e.kind == http2.FrameHeaders || e.kind == http2.FrameGoAway {
					if e.String() != tt.want {
						t.Errorf("%v", e)
					}
					break
				}
			}
			_ = c.nc.Close()
			r.settled()
		})
	}
}

// TestAnswersGiveBack: a client that resets streams which were answered is no attacker, however many they are.
func TestAnswersGiveBack(t *testing.T) {
	r := newRig(t, setup{config: replies, origins: []string{"127.0.0.1:1"}})
	c := r.dial2()
	for i := range 1000 {
		if got := told(c, uint32(2*i+1), get...); got != "HEADERS 204 ES" {
			t.Fatalf("request %d: %s", i, got)
		}
		c.reset(uint32(2*i+1), http2.ErrCodeCancel)
	}
	_ = c.nc.Close()
	r.settled()
}
