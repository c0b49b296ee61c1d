package h2_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

func list(n uint32) http2.Setting {
	return http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: n}
}

// TestHeadsThatThePeerDoesNotTake (UG-011): a head above SETTINGS_MAX_HEADER_LIST_SIZE is not sent; whoever it is for is
// told, and both connections go on.
func TestHeadsThatThePeerDoesNotTake(t *testing.T) {
	long := strings.Repeat("v", 6000)
	origin := serve2(t, []http2.Setting{list(4096)}, func(p *peer) {
		for {
			e, err := p.next()
			switch {
			case err != nil:
				return
			case !e.end:
			case e.get(":path") == "/long":
				p.headers(e.id, false, ":status", "200", "x-long", long)
				p.data(e.id, true, []byte("body"))
			case e.get(":path") == "/interim":
				p.headers(e.id, false, ":status", "103", "x-long", long)
				ok200(p, e.id)
			case e.get(":path") == "/trailers":
				p.headers(e.id, false, ":status", "200")
				p.headers(e.id, true, "x-long", long)
			default:
				ok200(p, e.id)
			}
		}
	})
	r := newRig(t, setup{config: plain2, origins: []string{origin}})
	c := r.dial2(list(4096))
	c.headers(1, true, get...) // so that settings have come
	c.want("HEADERS#1 200 ES")
	for i, row := range []struct {
		fields []string
		want   string
	}{
		{with(get, "x-long", long), "HEADERS 431 bad_request"},
		{with(get, "x-short", long[:3500]), "HEADERS 200 ES"},
		{path("/long"), "HEADERS 502 upstream_protocol"},
		{path("/interim"), "HEADERS 200 ES"},
		{path("/trailers"), "HEADERS 200, RST#%d INTERNAL_ERROR"},
		{get, "HEADERS 200 ES"},
	} {
		id := uint32(2*i + 3)
		if got, want := told(c, id, row.fields...), strings.ReplaceAll(row.want, "#%d", ""); strings.ReplaceAll(got, "#", "") != want {
			t.Errorf("row %d: %s, want %s", i, got, want)
		}
	}
	if open, _, _ := r.pools()[0].Counts(); open != 1 {
		t.Errorf("%d connections upstream", open)
	}
	r.settled()
}

// TestSecretFieldsStaySecret: a field that must never be indexed is sent on as one, in requests, answers and trailers.
func TestSecretFieldsStaySecret(t *testing.T) {
	secret := func(name, value string) (b []byte) {
		var buf bytes.Buffer
		_ = hpack.NewEncoder(&buf).WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: true})
		return buf.Bytes()
	}
	check := func(where string, e event) {
		n := 0
		for _, f := range e.fields {
			if f.Name == "x-key" || f.Name == "cookie" {
				n++
				if !f.Sensitive {
					t.Errorf("%s: %v is not", where, f)
				}
			} else if f.Sensitive {
				t.Errorf("%s: %v is", where, f)
			}
		}
		if n == 0 {
			t.Errorf("%s: %v", where, e.fields)
		}
	}
	origin := replying(t, func(p *peer, id uint32) {
		p.raw(id, false, append([]byte{0x88}, secret("x-key", "a")...))
		p.raw(id, true, secret("x-key", "b"))
	})
	asked := make(chan event, 8)
	front := serve2(t, nil, func(p *peer) { // sees what we send on
		for {
			e, err := p.next()
			if err != nil {
				return
			}
			asked <- e
			ok200(p, e.id)
		}
	})
	r := newRig(t, setup{
		config:  "services: {svc: {protocol: http2, endpoints: [ORIGIN]}, other: {protocol: http2, endpoints: [ORIGIN]}}\n",
		origins: []string{front, origin},
	})
	c := r.dial2()
	for i := range 3 { // the encoder knows the field by then
		id := uint32(4*i + 1)
		block := block(append(secret("x-key", "a"), append(secret("cookie", "a=1"), 0, 6, 'c', 'o', 'o', 'k', 'i', 'e', 3, 'b', '=', '2')...)...)
		c.mu.Lock()
		c.raw(id, true, block)
		c.mu.Unlock()
		if _, _, _, err := c.answer(id); err != nil {
			t.Fatal(err)
		}
		check("request", <-asked)
		c.headers(id+2, true, ":method", "GET", ":scheme", "http", ":path", "/", ":authority", "other", "te", "trailers")
		head, _, trailers, err := c.answer(id + 2)
		if err != nil {
			t.Fatal(err)
		}
		check("answer", head)
		check("trailers", trailers)
	}
	r.settled()
}

// TestDribble (H2-DS-105, H2-FC-105): a client that opens its window by one octet now and then is given up, since that is
// no progress; what it did not take is let go.
func TestDribble(t *testing.T) {
	origin, _ := serveHTTP(t, true, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 1<<20))
		_, _ = io.WriteString(w, "end")
	})
	r := newRig(t, setup{config: strings.Replace(plain2, "services:", "limits: {idle_timeout: 500ms}\nservices:", 1), origins: []string{origin}})
	c := r.dial2(window(0))
	c.greedy = true
	const streams = 20
	for i := range streams {
		c.headers(uint32(2*i+1), true, get...)
	}
	reset := make(chan int, 1)
	go func() {
		n := 0
		for {
			e, err := c.next()
			if err != nil {
				break
			}
			if e.kind == http2.FrameRSTStream {
				if n++; n == streams {
					break
				}
			}
		}
		reset <- n
	}()
	for {
		select {
		case n := <-reset:
			if n != streams {
				t.Errorf("%d of %d streams were given up", n, streams)
			}
			r.settled()
			return
		case <-c.after():
			for i := range streams {
				c.credit(uint32(2*i+1), 1)
			}
		}
	}
}
