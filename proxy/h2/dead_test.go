package h2

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// bubble runs a test with a clock of its own. Streams have channels and timers, which must not be shared with others.
func bubble(t *testing.T, f func(*testing.T)) {
	streams = sync.Pool{New: func() any { return newStream() }}
	defer func() { streams = sync.Pool{New: func() any { return newStream() }} }()
	synctest.Test(t, f)
}

// TestDeadPeer (H2-MX-008): a server that is silent with work open is asked after a minute, and no earlier, whether it
// lives; one that does not answer is given up, with the stream that waits for it.
func TestDeadPeer(t *testing.T) {
	for _, answers := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			lim := &Limits{HeaderBytes: 60 << 10, HeaderCount: 100, IdleTimeout: time.Hour}
			c := &clientConn{pool: &Pool{}, ready: make(chan struct{})}
			c.session = newSession(netio.New(ours), true, lim, c, nil)
			c.session.greet()
			go c.session.run()
			start := time.Now()
			var pings []time.Duration
			go func() {
				_, _ = io.ReadFull(theirs, make([]byte, len(Preface)))
				fr := http2.NewFramer(theirs, theirs)
				_ = fr.WriteSettings()
				for {
					f, err := fr.ReadFrame()
					if err != nil {
						return
					}
					switch f := f.(type) {
					case *http2.SettingsFrame:
						if !f.IsAck() {
							_ = fr.WriteSettingsAck()
						}
					case *http2.PingFrame:
						pings = append(pings, time.Since(start))
						if answers {
							_ = fr.WritePing(true, f.Data)
						}
					}
				}
			}()
			<-c.ready
			a := &attempt{c: c}
			c.reserved++
			_ = a.SendHead(&pipeline.Request{Method: "GET", Authority: "a", Path: "/"})
			_ = a.SendEnd(nil, true)
			err := a.ReadHead(&pipeline.Response{}, start.Add(10*time.Minute))
			synctest.Wait()
			took := time.Since(start)
			if len(pings) == 0 || pings[0] < pingAfter || pings[0] > pingAfter+2*tickEvery {
				t.Errorf("PING after %v", pings)
			}
			if answers && (!errors.Is(err, netio.ErrTimeout) || len(pings) != 2 || pings[1]-pings[0] < 5*time.Minute) { // GR-215
				t.Errorf("%v after %v, pings after %v", err, took, pings)
			}
			if !answers && (!errors.Is(err, errDead) || took > pingAfter+pingAnswer+3*tickEvery) {
				t.Errorf("%v after %v", err, took)
			}
			a.Close(false)
			c.session.end()
			c.session.nc.Abort()
			<-c.session.done
			_ = theirs.Close()
		})
	}
}

// TestNoSettings (H2-SE-017): a client that does not acknowledge our settings is told so and left, also when it talks.
func TestNoSettings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		lim := &Limits{HeaderBytes: 60 << 10, HeaderCount: 100, IdleTimeout: time.Hour}
		s := &Server{}
		s.SetLimits(*lim)
		over := make(chan struct{})
		go func() {
			defer close(over)
			s.Serve(netio.New(ours), []byte(Preface))
		}()
		fr := http2.NewFramer(theirs, theirs)
		start := time.Now()
		talked := make(chan struct{})
		go func() {
			defer close(talked)
			_ = fr.WriteSettings()
			for fr.WritePing(false, [8]byte{}) == nil {
				time.Sleep(time.Second)
			}
		}()
		var code http2.ErrCode
		for {
			f, err := fr.ReadFrame()
			if err != nil {
				break
			}
			if g, ok := f.(*http2.GoAwayFrame); ok {
				code = g.ErrCode
			}
		}
		took := time.Since(start)
		_ = theirs.Close()
		<-over
		<-talked
		if code != http2.ErrCodeSettingsTimeout || took > ackTime+2*tickEvery {
			t.Errorf("%v after %v", code, took)
		}
	})
}

// TestMaxAge: a client's connection that has reached its age is asked to go, at most a tenth and a tick late, and goes when
// it does not answer; its stream finishes.
func TestMaxAge(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		rec, err := telemetry.New(telemetry.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := &Server{Pipeline: &pipeline.Pipeline{Recorder: rec}}
		const age = 10 * time.Minute
		s.SetLimits(Limits{HeaderBytes: 60 << 10, HeaderCount: 100, IdleTimeout: time.Hour, MaxAge: age})
		over := make(chan struct{})
		go func() {
			defer close(over)
			s.Serve(netio.New(ours), []byte(Preface))
		}()
		start := time.Now()
		fr := http2.NewFramer(theirs, theirs)
		writes := make(chan func() error, 10)
		defer close(writes)
		go func() { // the pipe has no buffer: who reads must not write
			for write := range writes {
				_ = write()
			}
		}()
		writes <- func() error { return fr.WriteSettings() }
		var at []time.Duration
		var last []uint32
		for {
			f, err := fr.ReadFrame()
			if err != nil {
				break
			}
			switch f := f.(type) {
			case *http2.SettingsFrame:
				if !f.IsAck() {
					writes <- fr.WriteSettingsAck
				}
			case *http2.GoAwayFrame:
				at, last = append(at, time.Since(start)), append(last, f.LastStreamID)
			}
		}
		_ = theirs.Close()
		<-over
		if len(at) != 2 || last[0] != maxWindow || last[1] != 0 || at[0] < age*9/10 || at[0] > age*11/10+2*tickEvery || at[1]-at[0] > 3*tickEvery {
			t.Errorf("GOAWAY %v after %v", last, at)
		}
		if err := rec.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestMaxAgeUpstream: a connection to an endpoint that has reached its age is closed when it has no stream.
func TestMaxAgeUpstream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		const age = 10 * time.Minute
		lim := &Limits{HeaderBytes: 60 << 10, HeaderCount: 100, IdleTimeout: time.Hour, MaxAge: age}
		start := time.Now()
		c := &clientConn{pool: &Pool{}, ready: make(chan struct{}), leaves: lim.leavesAt(start)}
		c.session = newSession(netio.New(ours), true, lim, c, nil)
		c.session.greet()
		c.reserved = 1
		go c.session.run()
		go func() {
			_, _ = io.ReadFull(theirs, make([]byte, len(Preface)))
			fr := http2.NewFramer(theirs, theirs)
			_ = fr.WriteSettings()
			for {
				f, err := fr.ReadFrame()
				if err != nil {
					return
				}
				if s, ok := f.(*http2.SettingsFrame); ok && !s.IsAck() {
					_ = fr.WriteSettingsAck()
				}
			}
		}()
		<-c.ready
		time.Sleep(2 * age)
		c.pool.mu.Lock()
		retired, room := c.retired, c.session.room()
		c.pool.mu.Unlock()
		if !retired || room == 0 {
			t.Errorf("retired: %v, room for %d", retired, room)
		}
		c.done()
		<-c.session.done
		if took := time.Since(start); took > 2*age+2*tickEvery {
			t.Errorf("it ended after %v", took)
		}
		_ = theirs.Close()
	})
}
