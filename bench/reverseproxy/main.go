// Command reverseproxy is what a Go programmer writes first: net/http with ReverseProxy, or io.Copy for TCP. The benchmark
// compares with it, which is also its test.
package main

import (
	"flag"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"time"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8000", "`address` to listen on")
	to := flag.String("to", "127.0.0.1:8001", "`address` to forward to")
	logFile := flag.String("log", "", "`file` for a JSON access log")
	tcp := flag.Bool("tcp", false, "relay TCP")
	flag.Parse()
	if *tcp {
		log.Fatal(relay(*listen, *to))
	}
	var handler http.Handler = &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: *to}) },
		Transport: &http.Transport{MaxIdleConns: 1024, MaxIdleConnsPerHost: 1024, DisableCompression: true},
	}
	if *logFile != "" {
		file, err := os.OpenFile(*logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			log.Fatal(err)
		}
		handler = logged(handler, slog.New(slog.NewJSONHandler(file, nil)))
	}
	server := http.Server{Addr: *listen, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// counter remembers what a response was.
type counter struct {
	http.ResponseWriter
	status int
	octets int64
}

// WriteHeader notes the status.
func (c *counter) WriteHeader(status int) {
	c.status = status
	c.ResponseWriter.WriteHeader(status)
}

// Write counts the octets.
func (c *counter) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.octets += int64(n)
	return n, err
}

func logged(next http.Handler, to *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin, c := time.Now(), &counter{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(c, r)
		to.LogAttrs(r.Context(), slog.LevelInfo, "", slog.String("method", r.Method), slog.String("host", r.Host),
			slog.String("path", r.URL.Path), slog.Int("status", c.status), slog.Int64("bytes", c.octets),
			slog.String("caller", r.RemoteAddr), slog.Duration("duration", time.Since(begin)))
	})
}

// relay forwards TCP connections both ways until one side ends.
func relay(listen, to string) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	for {
		down, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer func() { _ = down.Close() }()
			up, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer func() { _ = up.Close() }()
			go func() {
				_, _ = io.Copy(up, down)
				_ = up.Close()
			}()
			_, _ = io.Copy(down, up)
		}()
	}
}
