package loopback_test

import (
	"net"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/sidecar-mesh/sidecar/internal/loopback"
)

// TestFreeWhileOthersFork: an address that was free is free for who asked, whatever the rest of the process starts.
func TestFreeWhileOthersFork(t *testing.T) {
	var forks sync.WaitGroup
	done := make(chan struct{})
	for range 3 {
		forks.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					_ = exec.Command(os.Args[0], "-test.run=^$").Run()
				}
			}
		})
	}
	host := loopback.Own()
	for range 3000 {
		address, err := loopback.Free(host, "0")
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Error(err)
			break
		}
		_ = l.Close()
	}
	close(done)
	forks.Wait()
}

// TestFreeIsNotTaken: a port that somebody listens on is no answer.
func TestFreeIsNotTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	host, port, _ := net.SplitHostPort(l.Addr().String())
	if address, err := loopback.Free(host, port); err == nil {
		t.Errorf("%s is free", address)
	}
}
