//go:build linux

package load

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Kind is what is sent on streams of HTTP/2.
type Kind uint8

// The kinds of load on streams.
const (
	Messages Kind = iota // one stream for all: a message goes up, and when it has come back the next
	GRPC                 // a unary call each: head, message and end go up; head, message and trailers come back
)

const (
	bufferSize   = 64 << 10
	creditEvery  = 16 << 10 // octets of a stream; below every peer's window
	creditBlocks = 8 << 10  // of a connection
	connCredit   = 1 << 30
	streamCredit = 1 << 20
	messageHead  = 5 // octets before a message of gRPC: a flag and its length
)

// literal encodes fields without touching the table of compression, so that no peer has to keep one in step.
func literal(fields ...[2]string) []byte {
	var b blockBuffer
	e := hpack.NewEncoder(&b)
	for _, f := range fields {
		_ = e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: true}) // a buffer never fails
	}
	return b
}

// link is one end of a connection whose frames leave together when nothing more is at hand.
type link struct {
	nc   net.Conn
	in   *bufio.Reader
	out  *bufio.Writer
	fr   *http2.Framer
	owed map[uint32]uint32 // octets to be credited
	mild bool              // streams may be reset: a client leaves
}

func newLink(nc net.Conn) *link {
	l := &link{nc: nc, in: bufio.NewReaderSize(nc, bufferSize), out: bufio.NewWriterSize(nc, bufferSize), owed: map[uint32]uint32{}}
	l.fr = http2.NewFramer(l.out, l.in)
	l.fr.SetReuseFrames()
	return l
}

// greet sends our settings, and as much credit as will do.
func (l *link) greet() error {
	return errors.Join(
		l.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: streamCredit}),
		l.fr.WriteWindowUpdate(0, connCredit),
	)
}

// next reads the next frame, sends what is ready before it would wait, and answers what is not about streams.
func (l *link) next() (http2.Frame, error) {
	for {
		if l.in.Buffered() == 0 {
			if err := l.out.Flush(); err != nil {
				return nil, err
			}
		}
		f, err := l.fr.ReadFrame()
		if err != nil {
			return nil, err
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = l.fr.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				err = l.fr.WritePing(true, f.Data)
			}
		case *http2.RSTStreamFrame:
			if !l.mild {
				return nil, fmt.Errorf("stream %d was reset: %v", f.StreamID, f.ErrCode)
			}
			delete(l.owed, f.StreamID)
		case *http2.GoAwayFrame:
			if f.ErrCode != http2.ErrCodeNo {
				return nil, fmt.Errorf("going away: %v", f.ErrCode)
			}
		case *http2.DataFrame:
			return f, errors.Join(l.credit(f.StreamID, f.Length, f.StreamEnded()))
		case *http2.HeadersFrame:
			return f, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// credit gives back what came, in pieces that are worth it.
func (l *link) credit(id, n uint32, ended bool) error {
	if l.owed[0] += n; l.owed[0] >= creditBlocks {
		if err := l.fr.WriteWindowUpdate(0, l.owed[0]); err != nil {
			return err
		}
		l.owed[0] = 0
	}
	if ended {
		delete(l.owed, id)
		return nil
	}
	if l.owed[id] += n; l.owed[id] >= creditEvery {
		n := l.owed[id]
		l.owed[id] = 0
		return l.fr.WriteWindowUpdate(id, n)
	}
	return nil
}

// Echo is an origin of HTTP/2 by prior knowledge that sends back what it gets, as the kind of load wants it.
func Echo(kind Kind) (net.Listener, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = nc.Close() }()
				_ = echo(nc, kind) // its client sees the end
			}()
		}
	}()
	return ln, nil
}

func echo(nc net.Conn, kind Kind) error {
	l := newLink(nc)
	l.mild = true
	if _, err := io.ReadFull(l.in, make([]byte, len(http2.ClientPreface))); err != nil {
		return err
	}
	head := literal([2]string{":status", "200"}, [2]string{"content-type", "application/grpc"})
	trailers := literal([2]string{"grpc-status", "0"})
	err := l.greet()
	for err == nil {
		var f http2.Frame
		if f, err = l.next(); err != nil {
			return err
		}
		id := f.Header().StreamID
		switch f := f.(type) {
		case *http2.HeadersFrame:
			err = l.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: head, EndHeaders: true, EndStream: f.StreamEnded()})
		case *http2.DataFrame:
			end := f.StreamEnded()
			if len(f.Data()) > 0 || end && kind == Messages {
				err = l.fr.WriteData(id, end && kind == Messages, f.Data())
			}
			if err == nil && end && kind == GRPC {
				err = l.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: trailers, EndHeaders: true, EndStream: true})
			}
		}
	}
	return err
}

// Streams keeps so many streams on each of so many connections busy for as long as duration, and returns how many messages,
// or calls, came back.
func Streams(address, authority string, kind Kind, conns, streams, size int, duration time.Duration) (int, error) {
	end := time.Now().Add(duration)
	var done sync.WaitGroup
	counts, errs := make([]int, conns), make([]error, conns)
	for i := range conns {
		done.Go(func() { counts[i], errs[i] = stream(address, authority, kind, streams, size, end) })
	}
	done.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	return total, errors.Join(errs...)
}

// caller is the client's end.
type caller struct {
	*link
	head, message []byte
	kind          Kind
	nextID        uint32
	missing       map[uint32]int // octets of its message that have not come back, by stream
}

func stream(address, authority string, kind Kind, streams, size int, end time.Time) (count int, err error) {
	nc, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return 0, err
	}
	defer func() { _ = nc.Close() }()
	if err := nc.SetDeadline(end.Add(5 * time.Second)); err != nil {
		return 0, err
	}
	c := &caller{link: newLink(nc), kind: kind, nextID: 1, missing: map[uint32]int{}, message: make([]byte, size)}
	if kind == GRPC {
		c.message = append(make([]byte, messageHead), c.message...)
	}
	binary.BigEndian.PutUint32(c.message[1:], uint32(len(c.message)-messageHead)) // of one message of gRPC
	c.head = literal([2]string{":method", "POST"}, [2]string{":scheme", "http"}, [2]string{":authority", authority},
		[2]string{":path", "/bench.Echo/Call"}, [2]string{"te", "trailers"}, [2]string{"content-type", "application/grpc"})
	if _, err := c.out.WriteString(http2.ClientPreface); err != nil {
		return 0, err
	}
	err = c.greet()
	for range streams {
		err = errors.Join(err, c.open())
	}
	for err == nil && time.Now().Before(end) {
		var f http2.Frame
		if f, err = c.next(); err != nil {
			break
		}
		var whole bool
		if whole, err = c.take(f); whole {
			count++
		}
	}
	return count, err
}

// open opens a stream and sends its first message.
func (c *caller) open() error {
	id := c.nextID
	c.nextID += 2
	c.missing[id] = len(c.message)
	return errors.Join(
		c.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.head, EndHeaders: true}),
		c.fr.WriteData(id, c.kind == GRPC, c.message),
	)
}

// take takes what came, goes on with its stream, and reports whether a message or a call is whole.
func (c *caller) take(f http2.Frame) (bool, error) {
	id := f.Header().StreamID
	ended := false
	switch f := f.(type) {
	case *http2.DataFrame:
		c.missing[id] -= len(f.Data())
		ended = f.StreamEnded()
	case *http2.HeadersFrame:
		ended = f.StreamEnded()
	}
	left := c.missing[id]
	switch {
	case c.kind == Messages && ended, left < 0, ended && left > 0:
		return false, fmt.Errorf("stream %d ended with %d octets missing", id, left)
	case c.kind == Messages && left == 0 && f.Header().Type == http2.FrameData:
		c.missing[id] = len(c.message)
		return true, c.fr.WriteData(id, false, c.message)
	case c.kind == GRPC && ended:
		delete(c.missing, id)
		return true, c.open()
	}
	return false, nil
}
