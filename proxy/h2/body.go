package h2

import (
	"errors"
	"io"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
)

// body is what comes in on a stream, as pipeline.Body.
type body struct{ st *stream }

// Next implements pipeline.Body.
func (b body) Next(until time.Time) ([]byte, error) {
	return b.Flow(nil, 0, until)
}

// Flow implements pipeline.Flow.
func (b body) Flow(pass pipeline.Pass, idle time.Duration, until time.Time) ([]byte, error) {
	p, err := b.st.next(pass, idle, until)
	if err == nil || errors.Is(err, io.EOF) {
		return p, err
	}
	var se *streamError
	if errors.As(err, &se) && se.code != noError { // a message that breaks its rules, not a connection that broke
		err = &pipeline.ProtocolError{Status: 400, Text: se.text}
	}
	return p, err
}

// Buffered implements pipeline.Body.
func (b body) Buffered() bool {
	b.st.s.mu.Lock()
	defer b.st.s.mu.Unlock()
	return b.st.rx.some() || b.st.rxEnd || b.st.err != nil
}

// Whole implements pipeline.Body.
func (b body) Whole() bool {
	b.st.s.mu.Lock()
	defer b.st.s.mu.Unlock()
	return b.st.rxEnd
}

// Trailers implements pipeline.Body.
func (b body) Trailers() []pipeline.Field {
	if h := b.st.behind; h != nil {
		return h.fields
	}
	return nil
}

// Raw implements pipeline.Body.
func (b body) Raw() (*netio.Conn, int64) { return nil, 0 }

// Advance implements pipeline.Body.
func (b body) Advance(int64) {}
