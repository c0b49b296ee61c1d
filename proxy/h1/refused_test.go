package h1_test

import (
	"bufio"
	"encoding/json"
	"io"
	"testing"
)

// TestRefusedIsLogged: the log tells what was read of a request that is refused, and does not call garbage a caller who left.
func TestRefusedIsLogged(t *testing.T) {
	logged, log := io.Pipe()
	lines := bufio.NewScanner(logged)
	r := newRig(t, setup{config: plainConfig, origins: []string{"127.0.0.1:1"}, log: log})
	t.Cleanup(func() { _ = logged.Close() })
	type line struct {
		Protocol, Method, Path, Reason, Detail string
		Status                                 int
	}
	for _, tc := range []struct {
		sent string
		want line
	}{
		{"\x16\x03\x01\x02\x00\x01\x00", line{"HTTP/1.1", "", "", "bad_request", "TLS, where plain HTTP is expected", 0}},
		{"\x00\x01", line{"HTTP/1.1", "", "", "bad_request", "not HTTP", 0}},
		{"GET /a\r\n\r\n", line{"HTTP/1.1", "", "", "bad_request", "malformed request line", 400}},
		{"PUT /b?c HTTP/1.1\r\nHost: orders\r\nbad name: x\r\n\r\n", line{"HTTP/1.1", "PUT", "/b?c", "bad_request", "", 400}},
		{"PUT /b HTTP/1.0\r\nHost: orders\r\nTransfer-Encoding: chunked\r\n\r\n", line{"HTTP/1.0", "PUT", "/b", "bad_request", "", 400}},
	} {
		c := r.dial()
		_, _ = io.WriteString(c, tc.sent)
		if !lines.Scan() {
			t.Fatal(lines.Err())
		}
		var got line
		if err := json.Unmarshal(lines.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if tc.want.Detail == "" {
			got.Detail = ""
		}
		if got != tc.want {
			t.Errorf("%q: got %+v, want %+v", tc.sent, got, tc.want)
		}
		_ = c.Close()
	}
}
