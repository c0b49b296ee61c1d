package h2

import (
	"errors"
	"testing"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
)

// TestInterrupted: what comes for an attempt that was interrupted, before it is reset, is no fault of the endpoint's; what comes
// for one that the endpoint has reset is.
func TestInterrupted(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*stream)
		fault  bool
	}{
		"interrupted":             {func(st *stream) { st.failLocked(netio.ErrInterrupted, false) }, false},
		"interrupted and reset":   {func(st *stream) { st.failLocked(netio.ErrInterrupted, false); st.sentReset = true }, false},
		"reset by the endpoint":   {func(st *stream) { st.failLocked(netio.ErrInterrupted, false); st.peerReset = true }, true},
		"ended":                   {func(st *stream) { st.rxEnd = true }, true},
		"a client that was told":  {func(st *stream) { st.s.client = false; st.sentReset = true }, false},
		"a client that goes away": {func(st *stream) { st.s.client = false; st.failLocked(errGoneAway, false) }, true},
	} {
		st := loose()
		st.s.client, st.final, st.sentEnd = true, true, true
		c.change(st)
		err := st.dataLocked(&frame{kind: kindData, id: 1, length: 4, payload: []byte("some")})
		var se *streamError
		if fault := errors.As(err, &se) && se.code == streamClosed; fault != c.fault || !fault && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
