//go:build linux

package load

import (
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/net/http2"
)

// Beside makes small calls on one connection, one after the other, for as long as duration: with bulk, beside a stream on
// the same connection that brings that file again and again.
func Beside(address, authority, small, bulk string, duration time.Duration) (Latency, error) {
	nc, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return Latency{}, err
	}
	defer func() { _ = nc.Close() }()
	end := time.Now().Add(duration)
	if err := nc.SetDeadline(end.Add(10 * time.Second)); err != nil {
		return Latency{}, err
	}
	l := newLink(nc)
	get := func(path string) []byte {
		return literal([2]string{":method", "GET"}, [2]string{":scheme", "http"}, [2]string{":authority", authority}, [2]string{":path", path})
	}
	next, large := uint32(1), uint32(0)
	open := func(head []byte) (uint32, error) {
		id := next
		next += 2
		return id, errors.Join(l.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: head, EndHeaders: true, EndStream: true}), l.out.Flush())
	}
	if _, err := l.out.WriteString(http2.ClientPreface); err != nil {
		return Latency{}, err
	}
	// The window of a stream stays as it is by default: what is on its way to us is nobody else's fault.
	if err := errors.Join(l.fr.WriteSettings(), l.fr.WriteWindowUpdate(0, connCredit)); err != nil {
		return Latency{}, err
	}
	var took []time.Duration
	for time.Now().Before(end) {
		if bulk != "" && large == 0 {
			if large, err = open(get(bulk)); err != nil {
				return Latency{}, err
			}
		}
		begin := time.Now()
		id, err := open(get(small))
		if err != nil {
			return Latency{}, err
		}
		for whole := false; !whole; {
			f, err := l.next()
			if err != nil {
				return Latency{}, fmt.Errorf("after %d calls: %w", len(took), err)
			}
			h := f.Header()
			ended := (h.Type == http2.FrameData || h.Type == http2.FrameHeaders) && h.Flags.Has(http2.FlagDataEndStream)
			whole = ended && h.StreamID == id
			if ended && h.StreamID == large {
				large = 0
			}
		}
		took = append(took, time.Since(begin))
	}
	return summarize(took, 0), nil
}
