package sidecartest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

// endpointVariable makes a test binary be an endpoint at that address instead, see Main.
const endpointVariable = "SIDECARTEST_ENDPOINT"

// Endpoint is an HTTP server in a process of its own, which can be killed and started again at the same address.
type Endpoint struct {
	Address string

	cmd *exec.Cmd
}

// NewEndpoint starts an endpoint. The test's end kills it.
func NewEndpoint(t testing.TB) *Endpoint {
	t.Helper()
	e := &Endpoint{Address: FreeAddress(t)}
	e.Start(t)
	t.Cleanup(func() {
		if e.cmd != nil {
			e.Kill()
		}
	})
	return e
}

// Start starts it and waits until it serves.
func (e *Endpoint) Start(t testing.TB) {
	t.Helper()
	e.cmd = exec.Command(os.Args[0])
	e.cmd.Env = append(os.Environ(), endpointVariable+"="+e.Address, "GOMAXPROCS=1")
	e.cmd.Stderr = os.Stderr
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	Eventually(t, patience, "the endpoint serves", func() bool { return Dials(e.Address) })
}

// Kill ends it as kill -9 does.
func (e *Endpoint) Kill() {
	_ = e.cmd.Process.Kill()
	_ = e.cmd.Wait()
	e.cmd = nil
}

// Stop ends it in an orderly way: what is in flight finishes.
func (e *Endpoint) Stop(t testing.TB) {
	t.Helper()
	_ = e.cmd.Process.Signal(syscall.SIGTERM)
	if err := e.cmd.Wait(); err != nil {
		t.Errorf("the endpoint: %v", err)
	}
	e.cmd = nil
}

// serveEndpoint is the process of an Endpoint. It answers with its address.
func serveEndpoint(address string) {
	server := http.Server{Addr: address, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, address)
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, syscall.SIGTERM)
		<-stop
		_ = server.Shutdown(context.Background())
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	<-done
}
