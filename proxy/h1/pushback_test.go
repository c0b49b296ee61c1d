package h1_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"
)

// TestRetryAfter: a retry comes no sooner than the answer asks for, on another endpoint too if it is about the
// caller; there is none where the time that is left does not reach.
func TestRetryAfter(t *testing.T) {
	for _, tc := range []struct {
		name, answer string
		origins      int
		status       int
		attempts     int
		atLeast      time.Duration
	}{
		{"one endpoint", "503 Service Unavailable\r\nRetry-After: 1", 1, 200, 2, time.Second},
		{"another endpoint", "503 Service Unavailable\r\nRetry-After: 60", 2, 200, 2, 0},
		{"about the caller", "429 Too Many Requests\r\nRetry-After: 1", 2, 200, 2, time.Second},
		{"no time left", "429 Too Many Requests\r\nRetry-After: 60", 2, 429, 1, 0},
		{"a date that is over", "429 Too Many Requests\r\nRetry-After: Sun, 06 Nov 1994 08:49:37 GMT", 2, 200, 2, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPair(t)
			list := "[ORIGIN, ORIGIN]"
			if tc.origins == 1 {
				list = "[ORIGIN]"
			}
			r := newRig(t, setup{
				config:  "services: {a: {endpoints: " + list + ", policy: {timeout: 5s, retry: {count: 2, when: [429, 503]}}}}\n",
				origins: p.origins[:tc.origins],
			})
			nc := r.dial()
			start := time.Now()
			_, _ = io.WriteString(nc, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n") // reading tells
			_, _ = fmt.Fprintf(p.next().conn, "HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n", tc.answer)
			attempts := 1
			if tc.attempts > 1 {
				p.next().answer("well")
				attempts++
			}
			got, err := http.ReadResponse(bufio.NewReader(nc), nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = got.Body.Close()
			if got.StatusCode != tc.status || attempts != int(p.asked.Load()) || time.Since(start) < tc.atLeast {
				t.Errorf("status %d, %d attempts in %v", got.StatusCode, p.asked.Load(), time.Since(start))
			}
		})
	}
}
