package sidecartest

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// Command starts somebody else's server and waits until it listens at an address. The test's end kills it.
func Command(t testing.TB, address, name string, args ...string) {
	t.Helper()
	said := &Output{}
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s said:\n%s", name, said.Tail())
		}
	})
	Eventually(t, patience, name+" listens", func() bool { return Dials(address) })
}

// SlowAccept returns the address of an HTTP server whose system takes two connections and lets the others wait in their
// connect, until release is closed: then it accepts all and answers every request.
func SlowAccept(t testing.TB) (address string, release chan struct{}) {
	t.Helper()
	host := netip.MustParseAddrPort(FreeAddress(t))
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "listener")
	defer func() { _ = file.Close() }()
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: int(host.Port()), Addr: host.Addr().As4()}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 1); err != nil {
		t.Fatal(err)
	}
	// The copy shares the socket, but the system's queue would be widened by Go's own way of listening.
	l, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	release = make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-release
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			c := NewConn(nc)
			t.Cleanup(func() { _ = c.Close() })
			go func() {
				for {
					if _, err := c.Request(); err != nil {
						return
					}
					_ = c.Send("%s", Reply(200, "ok"))
				}
			}()
		}
	}()
	t.Cleanup(func() {
		select {
		case <-release:
		default:
			close(release)
		}
		_ = l.Close()
		<-done
	})
	return host.String(), release
}

// Connecting returns how many connects to an IPv4 address are waiting for it on this machine.
func Connecting(t testing.TB, address string) int {
	t.Helper()
	const synSent = "02"
	a := netip.MustParseAddrPort(address)
	ip := a.Addr().As4()
	want := fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(ip[:]), a.Port())
	f, err := os.Open("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	n := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// slot, local address, remote address, state, …
		if f := strings.Fields(lines.Text()); len(f) > 3 && f[2] == want && f[3] == synSent {
			n++
		}
	}
	return n
}
