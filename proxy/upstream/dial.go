package upstream

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"time"
)

// Dial connects to an address of the form host:port or unix:PATH. What takes too long is ErrTimeout.
func Dial(address string, deadline time.Time) (net.Conn, error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		return dial("unix", path, deadline)
	}
	return dial("tcp", address, deadline)
}

func dial(network, address string, deadline time.Time) (net.Conn, error) {
	d := net.Dialer{Deadline: deadline}
	nc, err := d.DialContext(context.Background(), network, address)
	var ne net.Error
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &ne) && ne.Timeout() {
		return nil, ErrTimeout
	}
	return nc, err
}
