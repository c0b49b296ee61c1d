package pipeline

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/sidecar-mesh/sidecar/balance"
	"github.com/sidecar-mesh/sidecar/snapshot"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// copied is a request on its way to a mirror. It has memory of its own: the exchange that it is a copy of may be over.
type copied struct {
	m    *snapshot.Mirror
	req  Request
	body []byte
	up   *telemetry.Upstream // where its fate is counted

	hint balance.Hint
	resp Response
	text []byte // what the strings of req are made of
	run  func() // deliver, made once
}

// maxCopyBuffer is what a copy may keep of its body's memory for the next one, in bytes.
const maxCopyBuffer = 64 << 10

var copies sync.Pool

func newCopy() *copied {
	if c, ok := copies.Get().(*copied); ok {
		return c
	}
	c := &copied{text: make([]byte, 0, 1024)}
	c.req.Fields, c.resp.Fields = make([]Field, 0, 32), make([]Field, 0, 32)
	c.run = c.deliver
	return c
}

// keep returns a string that lives as long as the copy does. One that was made earlier stays what it is when text grows.
func (c *copied) keep(s string) string {
	at := len(c.text)
	c.text = append(c.text, s...)
	return str(c.text[at:])
}

// take copies what a request says.
func (c *copied) take(q *Request, from string) {
	fields := c.req.Fields[:0]
	c.req = *q
	for _, s := range []*string{&c.req.Method, &c.req.Target, &c.req.Scheme, &c.req.Authority, &c.req.Path, &c.req.Query} {
		*s = c.keep(*s)
	}
	for _, f := range q.Fields {
		if !f.Drop {
			f.Name, f.Value = c.keep(f.Name), c.keep(f.Value)
			fields = append(fields, f)
		}
	}
	c.req.Fields = append(fields, Field{Name: "X-Mirrored-From", Value: from})
}

// release forgets everything but memory.
func (c *copied) release() {
	fields, respFields, body := c.req.Fields[:cap(c.req.Fields)], c.resp.Fields[:cap(c.resp.Fields)], c.body[:0]
	clear(fields)
	clear(respFields)
	if cap(body) > maxCopyBuffer {
		body = nil
	}
	*c = copied{
		req: Request{Fields: fields[:0]}, resp: Response{Fields: respFields[:0]}, body: body, text: c.text[:0], run: c.run,
	}
	copies.Put(c)
}

// mirror decides, before the call, whether a copy of the request is made. One whose body is not at hand is copied behind the
// call.
func (x *Exchange) mirror() {
	m := x.rt.Mirror
	if m == nil || x.Req.Upgrade != "" || x.Req.Expect || float64(random()>>11)/(1<<53) >= m.Ratio {
		return
	}
	if x.mirrored = true; x.atHand() {
		x.sendCopy()
	}
}

// sendCopy sends a copy of the request to the mirror, and lets it go. It never waits: where too many are on their way already
// there is none.
func (x *Exchange) sendCopy() {
	if !x.mirrored {
		return
	}
	x.mirrored = false
	m, up := x.rt.Mirror, x.p.Recorder.UpstreamConn(x.rt.Mirror.To.Service.Name)
	switch {
	case !x.atHand():
		up.Mirrored("body") // too large, or not there yet
		return
	case m.Running.Add(1) > m.Most:
		m.Running.Add(-1)
		up.Mirrored("full")
		return
	}
	c := newCopy()
	c.m, c.up = m, up
	c.take(&x.Req, x.svc.Name)
	c.body = append(c.body, x.upload.kept...)
	go c.run()
}

// mirrorDrain bounds what is read of an answer that nobody wants.
const mirrorDrain = 1 << 20

// deliver sends the copy and forgets it.
func (c *copied) deliver() {
	c.send()
	c.m.Running.Add(-1)
	c.release()
}

// send makes one attempt, reads its answer and drops it.
func (c *copied) send() {
	begin := time.Now()
	until := begin.Add(c.m.Timeout)
	c.hint = balance.Hint{Now: begin, Rand: random()}
	i, why := c.m.To.Set.Pick(&c.hint)
	if why == balance.NoEndpoints || why == balance.NoneUsable {
		c.up.Mirrored("failed")
		return
	}
	ep := c.m.To.Endpoints[i]
	ep.Meter.Active.Add(1)
	defer ep.Meter.Active.Add(-1)
	up, err := ep.Pool.(Pool).Open(c.req.Version, false, c.m.Connect, until)
	if err != nil {
		c.up.Mirrored("failed")
		return
	}
	if err := c.exchange(up, until); err != nil {
		c.up.Mirrored("failed")
		up.Close(false)
		return
	}
	c.up.Mirrored("sent")
	up.Close(drain(up.Body(), until))
}

func (c *copied) exchange(up Upstream, until time.Time) error {
	if err := up.SendHead(&c.req); err != nil {
		return err
	}
	if m, ok := up.(Multiplexed); ok {
		m.Hurry(until)
	}
	if len(c.body) > 0 {
		if err := up.SendBody(c.body); err != nil {
			return err
		}
	}
	if err := up.SendEnd(nil, true); err != nil {
		return err
	}
	for {
		if err := up.ReadHead(&c.resp, until); err != nil {
			return err
		}
		if c.resp.Status >= 200 {
			return nil
		}
	}
}

// drain reads a body to its end, within bounds. It reports whether that came.
func drain(b Body, until time.Time) bool {
	for n := 0; n < mirrorDrain; {
		p, err := b.Next(until)
		if err != nil {
			return errors.Is(err, io.EOF)
		}
		n += len(p)
	}
	return false
}
