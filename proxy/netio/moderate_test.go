package netio_test

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
)

// TestModerator: a connection with a turn is looked at time and again; what comes is read, an end and an interruption are
// seen, and behind the last turn nothing runs. Behind its turn it is read as before, a single octet too.
func TestModerator(t *testing.T) {
	near, far := sockets(t)
	c := netio.New(near)
	m := netio.NewModerator(100 * time.Microsecond)
	next := func(turn *netio.Turn) (string, error) {
		buf := make([]byte, 100)
		for {
			turn.Next(2)
			if n, err := c.TryRead(buf); n > 0 || err != nil {
				return string(buf[:n]), err
			}
		}
	}
	for range 3 {
		turn := m.Join(c)
		if turn == nil || m.Turns() != 1 {
			t.Fatal("no turn")
		}
		_, _ = far.Write([]byte("one"))
		if got, err := next(turn); got != "one" || err != nil {
			t.Fatal(got, err)
		}
		_, _ = far.Write([]byte("x")) // before it leaves, or behind that
		turn.Leave()
		buf := make([]byte, 10)
		if n, err := c.Read(buf, soon()); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		_, _ = far.Write([]byte("y"))
		if n, err := c.Read(buf, soon()); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	turn := m.Join(c)
	c.Interrupt()
	if _, err := next(turn); !errors.Is(err, netio.ErrInterrupted) {
		t.Error(err)
	}
	c.Resume()
	_ = far.Close()
	if _, err := next(turn); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	turn.Leave()
	_ = c.Close()
	if m.Turns() != 0 {
		t.Errorf("%d turns are left", m.Turns())
	}
}
