package consul

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"time"
)

// bounded keeps answers within a size and, once their head is there, within a time.
type bounded struct {
	plain *plain
	other http.RoundTripper // for what is not for plain
	limit int64
	time  time.Duration
}

// headers is what an answer says beside its body.
type headers struct{ retryAfter time.Duration }

type headersKey struct{}

// withHeaders has what an answer says noted.
func withHeaders(ctx context.Context, h *headers) context.Context {
	return context.WithValue(ctx, headersKey{}, h)
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
