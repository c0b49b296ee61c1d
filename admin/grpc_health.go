package admin

import (
	"encoding/binary"
	"io"
	"net/http"
	"time"
)

// The health checking protocol of gRPC (grpc.health.v1), for platforms that probe by it: on listen.health, beside /ready.
// Its messages are small enough to be read and written by hand.

const (
	healthCheck = "/grpc.health.v1.Health/Check"
	healthWatch = "/grpc.health.v1.Health/Watch"

	serving        = 1
	notServing     = 2
	serviceUnknown = 3

	grpcOK       = "0"
	grpcNotFound = "5"
	grpcBad      = "3"

	watchEvery = time.Second // between two looks of a Watch
	maxName    = 256
)

// grpcCheck answers Health/Check: the name of a service of ours, or "" for all.
func (a *api) grpcCheck(w http.ResponseWriter, r *http.Request) {
	name, ok := healthRequest(r.Body)
	state := a.servingState(name)
	startGRPC(w)
	switch {
	case !ok:
		endGRPC(w, grpcBad, "malformed HealthCheckRequest")
	case state == serviceUnknown:
		endGRPC(w, grpcNotFound, "unknown service")
	default:
		_, _ = w.Write(healthResponse(state)) // a caller who left needs no answer
		endGRPC(w, grpcOK, "")
	}
}

// grpcWatch answers Health/Watch: the state now, and again whenever it changes, until the caller leaves.
func (a *api) grpcWatch(w http.ResponseWriter, r *http.Request) {
	name, ok := healthRequest(r.Body)
	startGRPC(w)
	if !ok {
		endGRPC(w, grpcBad, "malformed HealthCheckRequest")
		return
	}
	c := http.NewResponseController(w)
	_ = c.SetWriteDeadline(time.Time{}) // it lives as long as its caller
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	for was := byte(0); ; {
		if state := a.servingState(name); state != was {
			was = state
			if _, err := w.Write(healthResponse(state)); err != nil || c.Flush() != nil {
				return
			}
		}
		select {
		case <-r.Context().Done():
			return
		case <-ending(r):
			return
		case <-t.C:
		}
	}
}

// servingState is the state of a service of ours.
func (a *api) servingState(name string) byte {
	if name != "" {
		s := a.process.Snapshot()
		if s == nil {
			return notServing
		}
		if _, ok := s.Inbound.Get(name); !ok {
			return serviceUnknown
		}
		for _, app := range a.process.Apps() {
			if app.Service == name && app.State == "ill" {
				return notServing
			}
		}
	}
	if a.process.Readiness().Ready {
		return serving
	}
	return notServing
}

func startGRPC(w http.ResponseWriter) { w.Header().Set("Content-Type", "application/grpc") }

func endGRPC(w http.ResponseWriter, status, message string) {
	w.Header().Set(http.TrailerPrefix+"Grpc-Status", status)
	if message != "" {
		w.Header().Set(http.TrailerPrefix+"Grpc-Message", message)
	}
}

// healthRequest reads a HealthCheckRequest: field 1 is the name of a service, and may be left out.
func healthRequest(body io.Reader) (service string, ok bool) {
	var head [5]byte
	if _, err := io.ReadFull(body, head[:]); err != nil || head[0] != 0 {
		return "", false
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxName {
		return "", false
	}
	message := make([]byte, n)
	if _, err := io.ReadFull(body, message); err != nil {
		return "", false
	}
	switch {
	case n == 0:
		return "", true
	case n >= 2 && message[0] == 0x0a && int(message[1]) == len(message)-2 && message[1] < 0x80:
		return string(message[2:]), true
	}
	return "", false
}

// healthResponse is a HealthCheckResponse: field 1 is the state.
func healthResponse(state byte) []byte { return []byte{0, 0, 0, 0, 2, 0x08, state} }
