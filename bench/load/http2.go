//go:build linux

package load

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// OnceHTTP2 sends one GET by prior knowledge on a connection of its own and returns the status, once the answer is whole.
func OnceHTTP2(address, authority, path string, patience time.Duration) (status int, err error) {
	nc, status, err := getHTTP2(address, authority, path, patience)
	if nc != nil {
		_ = nc.Close()
	}
	return status, err
}

// IdleHTTP2 is Idle for HTTP/2 by prior knowledge.
func IdleHTTP2(address, authority, path string, n int) (conns []net.Conn, err error) {
	for range n {
		nc, status, err := getHTTP2(address, authority, path, 5*time.Second)
		if nc != nil {
			conns = append(conns, nc)
		}
		if err == nil && status != 200 {
			err = fmt.Errorf("status %d", status)
		}
		if err != nil {
			return conns, err
		}
	}
	return conns, nil
}

// getHTTP2 opens a connection and sends one GET; the connection is the caller's, also after an error.
func getHTTP2(address, authority, path string, patience time.Duration) (nc net.Conn, status int, err error) {
	if nc, err = net.DialTimeout("tcp", address, patience); err != nil {
		return nil, 0, err
	}
	if err := nc.SetDeadline(time.Now().Add(patience)); err != nil {
		return nc, 0, err
	}
	if _, err := nc.Write([]byte(http2.ClientPreface)); err != nil {
		return nc, 0, err
	}
	frames := http2.NewFramer(nc, nc)
	var head blockBuffer
	encoder := hpack.NewEncoder(&head)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", authority}, {":path", path}} {
		_ = encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // a buffer never fails
	}
	err = errors.Join(frames.WriteSettings(), frames.WriteHeaders(http2.HeadersFrameParam{
		StreamID: 1, BlockFragment: head, EndStream: true, EndHeaders: true,
	}))
	if err != nil {
		return nc, 0, err
	}
	frames.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		frame, err := frames.ReadFrame()
		if err != nil {
			return nc, status, err
		}
		done := false
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = frames.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				err = frames.WritePing(true, f.Data)
			}
		case *http2.MetaHeadersFrame:
			status, err = strconv.Atoi(f.PseudoValue("status"))
			done = f.StreamEnded()
		case *http2.DataFrame:
			done = f.StreamEnded()
		case *http2.RSTStreamFrame:
			err = fmt.Errorf("reset: %v", f.ErrCode)
		case *http2.GoAwayFrame:
			err = fmt.Errorf("going away: %v", f.ErrCode)
		}
		if err != nil || done {
			return nc, status, err
		}
	}
}

// blockBuffer gathers a header block.
type blockBuffer []byte

func (b *blockBuffer) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}
