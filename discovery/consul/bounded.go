package consul

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// bounded keeps answers within a size and, once their head is there, within a time.
type bounded struct {
	plain *plain
	other http.RoundTripper // for what is not for plain
	limit int64
	time  time.Duration

	bodies sync.Pool // of *bytes.Buffer, in which answers are summed up
}

// headers is what an answer says beside its body.
type headers struct{ retryAfter time.Duration }

type headersKey struct{}

// withHeaders has what an answer says noted.
func withHeaders(ctx context.Context, h *headers) context.Context {
	return context.WithValue(ctx, headersKey{}, h)
}

type answerKey struct{}

// withAnswer has the body of an answer summed up before it is decoded.
func withAnswer(ctx context.Context, a *answer) context.Context {
	return context.WithValue(ctx, answerKey{}, a)
}

// RoundTrip implements http.RoundTripper.
func (b *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	next := b.other
	if b.plain.serves(r) {
		next = b.plain
	}
	resp, err := next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	if h, ok := ctx.Value(headersKey{}).(*headers); ok {
		if s, err := strconv.ParseUint(resp.Header.Get("Retry-After"), 10, 16); err == nil {
			h.retryAfter = time.Duration(s) * time.Second
		}
	}
	body := &boundedBody{body: resp.Body, left: b.limit, limit: b.limit, cancel: cancel}
	body.timer = time.AfterFunc(b.time, cancel)
	resp.Body = body
	if a, ok := ctx.Value(answerKey{}).(*answer); ok && resp.StatusCode == http.StatusOK {
		resp.Body = &summedBody{ReadCloser: body, answer: a, bodies: &b.bodies}
	}
	return resp, nil
}

// boundedBody is a body of which too much, or for too long, is an error.
type boundedBody struct {
	body        io.ReadCloser
	left, limit int64
	timer       *time.Timer
	cancel      context.CancelFunc
	failed      error
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.failed != nil {
		return 0, b.failed
	}
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.body.Read(p)
	b.left -= int64(n)
	switch {
	case b.left < 0:
		err = &Error{Kind: TooLarge, Text: "the answer is longer than " + strconv.FormatInt(b.limit, 10) + " bytes (max_answer)"}
	case err != nil && err != io.EOF && !b.timer.Stop():
		err = &Error{Kind: TimedOut, Text: "the answer began and did not end in time"}
	}
	if err != nil {
		b.failed = err
	}
	return n, err
}

// Close implements io.Closer.
func (b *boundedBody) Close() error {
	b.timer.Stop()
	b.cancel()
	return b.body.Close()
}

// summedBody reads a body whole, at the first byte that is asked for, and is null where its answer is known already: most queries that
// wait end without news, and to decode them is most of what they cost.
type summedBody struct {
	io.ReadCloser
	answer *answer
	bodies *sync.Pool
	whole  *bytes.Reader // nil: not read yet
}

// Read implements io.Reader.
func (b *summedBody) Read(p []byte) (int, error) {
	if b.whole == nil {
		if err := b.readAll(); err != nil {
			return 0, err
		}
	}
	return b.whole.Read(p)
}

func (b *summedBody) readAll() error {
	buf, _ := b.bodies.Get().(*bytes.Buffer)
	if buf == nil {
		buf = new(bytes.Buffer)
	}
	buf.Reset()
	if _, err := buf.ReadFrom(b.ReadCloser); err != nil {
		return err
	}
	if b.answer.summed(buf.Bytes()) {
		b.whole = bytes.NewReader(buf.Bytes()) // and the buffer is not used again
		return nil
	}
	b.bodies.Put(buf)
	b.whole = bytes.NewReader([]byte("null"))
	return nil
}
