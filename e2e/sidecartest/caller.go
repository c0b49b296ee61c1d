package sidecartest

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Load is what steady callers saw.
type Load struct {
	mu       sync.Mutex
	Calls    int
	Statuses map[int]int
	Failures []string        // the first ones: anything but a 2xx, and connections that broke
	Failed   int             // how many
	Took     []time.Duration // of calls, in order of their end

	stop chan struct{}
	work sync.WaitGroup
}

// Call is how callers call.
type Call struct {
	Address, Host, Path string
	Method              string        // GET if empty
	Body                string        // sent with its length, if not empty
	Callers             int           // connections, each with one call after the other
	Pause               time.Duration // between two calls of one caller
}

// Steady starts callers that call until Stop. Each keeps its connection as long as the answers let it.
func Steady(t testing.TB, c Call) *Load {
	t.Helper()
	l := &Load{Statuses: map[int]int{}, stop: make(chan struct{})}
	if c.Method == "" {
		c.Method = "GET"
	}
	request := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n\r\n", c.Method, c.Path, c.Host)
	if c.Body != "" {
		request = strings.Replace(request, "\r\n\r\n", fmt.Sprintf("\r\nContent-Length: %d\r\n\r\n%s", len(c.Body), c.Body), 1)
	}
	for range c.Callers {
		l.work.Go(func() { l.call(c, request) })
	}
	t.Cleanup(l.Stop)
	return l
}

// Stop ends the callers after their calls in progress, and waits for them. It may be called again.
func (l *Load) Stop() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.work.Wait()
}

// Count returns how many calls have ended, and how many of them failed.
func (l *Load) Count() (calls, failed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Calls, l.Failed
}

// Quantile returns a quantile of the times of the calls so far, 0 … 1.
func (l *Load) Quantile(q float64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.Took) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(l.Took))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func (l *Load) call(c Call, request string) {
	var conn *Conn
	defer func() {
		if conn != nil {
			_ = conn.Close()
		}
	}()
	for {
		select {
		case <-l.stop:
			return
		case <-time.After(c.Pause):
		}
		start := time.Now()
		if conn == nil {
			nc, err := net.DialTimeout("tcp", c.Address, patience)
			if err != nil {
				l.note(0, time.Since(start), err.Error())
				continue
			}
			conn = NewConn(nc)
		}
		_ = conn.SetDeadline(start.Add(patience))
		_ = conn.Send("%s", request)
		m, err := conn.Response(c.Method)
		status, text := 0, ""
		if err != nil {
			text = err.Error()
		} else if status = m.Status(); status/100 != 2 {
			text = fmt.Sprintf("%s: %s", m.Start, m.Body)
		}
		l.note(status, time.Since(start), text)
		if err != nil || m.Get("connection") == "close" {
			_ = conn.Close()
			conn = nil
		}
	}
}

func (l *Load) note(status int, took time.Duration, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Calls++
	l.Statuses[status]++
	l.Took = append(l.Took, took)
	if text != "" {
		if l.Failed++; l.Failed <= 5 {
			l.Failures = append(l.Failures, text)
		}
	}
}
