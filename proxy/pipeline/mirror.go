package pipeline

import (
	"bytes"
	"errors"
	"io"
	"strings"
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
	if !x.mirrored || x.standing {
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
	c := &copied{m: m, req: x.Req, body: bytes.Clone(x.upload.kept), up: up}
	q := &c.req
	for _, s := range []*string{&q.Method, &q.Target, &q.Scheme, &q.Authority, &q.Path, &q.Query} {
		*s = strings.Clone(*s)
	}
	q.Fields = make([]Field, 0, len(x.Req.Fields)+1)
	for _, f := range x.Req.Fields {
		if !f.Drop {
			f.Name, f.Value = strings.Clone(f.Name), strings.Clone(f.Value)
			q.Fields = append(q.Fields, f)
		}
	}
	q.Fields = append(q.Fields, Field{Name: "X-Mirrored-From", Value: x.svc.Name})
	go c.send()
}

// mirrorDrain bounds what is read of an answer that nobody wants.
const mirrorDrain = 1 << 20

// send makes one attempt, reads its answer and drops it.
func (c *copied) send() {
	defer c.m.Running.Add(-1)
	begin := time.Now()
	until := begin.Add(c.m.Timeout)
	hint := balance.Hint{Now: begin, Rand: random()}
	i, why := c.m.To.Set.Pick(&hint)
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
	var r Response
	for {
		if err := up.ReadHead(&r, until); err != nil {
			return err
		}
		if r.Status >= 200 {
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
