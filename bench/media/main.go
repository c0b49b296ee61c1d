// Command media is both ends of calls of 20 MB, apart from the process that measures those of 1 KB: an HTTP/2 origin that
// takes large requests in at the pace of a network of some width, and a client that sends them one after the other. The
// benchmark that uses it is its test.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"time"
)

const (
	largeOctets = 20 << 20
	// burst is what is taken in at once, as by what writes to a disk: until the next, windows that are shared are full.
	burst = 64 << 10
)

func main() {
	listen := flag.String("listen", "", "`address` to serve on")
	width := flag.Float64("width", 10e6, "octets a second that are taken in of each large request")
	to := flag.String("to", "", "`address` to send to")
	host := flag.String("host", "media", "`name` of the service")
	direct := flag.Bool("direct", false, "send over HTTP/2, to the origin itself")
	parallel := flag.Int("parallel", 2, "large requests at a time")
	flag.Parse()
	if *listen != "" {
		log.Fatal(serve(*listen, *width))
	}
	failed := make(chan error)
	for range *parallel {
		go func() { failed <- send(*to, *host, *direct) }()
	}
	log.Fatal(<-failed)
}

// serve answers /large when all of it was read at a pace, and everything else at once.
func serve(address string, width float64) error {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	server := http.Server{Addr: address, Protocols: protocols, ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/large" {
				read(r.Body, width)
			} else {
				_, _ = io.Copy(io.Discard, r.Body) // whoever left needs no answer
			}
			_, _ = w.Write([]byte("ok\n"))
		})}
	return server.ListenAndServe()
}

// read takes a body in, no faster than width.
func read(body io.Reader, width float64) {
	begin, n, b := time.Now(), 0, make([]byte, burst)
	for {
		k, err := io.ReadFull(body, b)
		if n += k; err != nil {
			return
		}
		time.Sleep(time.Duration(float64(n)/width*float64(time.Second)) - time.Since(begin))
	}
}

// send sends large requests until one fails.
func send(address, host string, direct bool) error {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(direct)
	protocols.SetHTTP1(!direct)
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{Protocols: protocols, WriteBufferSize: 32 << 10}}
	for {
		q, err := http.NewRequest(http.MethodPost, "http://"+address+"/large", io.LimitReader(zeros{}, largeOctets))
		if err != nil {
			return err
		}
		q.Host, q.ContentLength = host, largeOctets
		r, err := client.Do(q)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
		if err == nil && r.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %s", r.Status)
		}
		if err != nil {
			return err
		}
	}
}

// zeros has no end.
type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
