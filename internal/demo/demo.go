// Package demo is a play in one process: toy services, a real proxy configured by a real document, an app that calls
// through it, and faults. It tells what happens line by line and checks every claim that it makes. It owns all that it
// starts and ends by itself. Tests: the play in its short form, which is the same with shorter times.
package demo

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sidecar-mesh/sidecar/telemetry"
)

// Options say how the demo is shown.
type Options struct {
	Out    io.Writer
	Colour bool // Out is a terminal
	Short  bool // the same with shorter times
}

// Failed is the error of a demo that did not go as it says.
type Failed struct {
	Claims     []string
	Standstill time.Duration // the machine gave the process no time for so long; 0: not worth a word
}

// Error implements error.
func (f *Failed) Error() string {
	text := fmt.Sprintf("the demo claims what did not happen:\n  %s", strings.Join(f.Claims, "\n  "))
	if f.Standstill > 0 {
		text += fmt.Sprintf("\nbut this machine stood still for %s meanwhile, which may be why: try again", short(f.Standstill))
	}
	return text
}

// whole bounds the demo, whatever happens.
const whole = 5 * time.Minute

// Run plays the demo. The error is a *Failed when a claim did not hold.
func Run(ctx context.Context, o Options) (err error) {
	ctx, cancel := context.WithTimeout(ctx, whole)
	defer cancel()
	s := &stage{story: &story{out: o.Out, colour: o.Colour, start: time.Now()}, pace: paceOf(o.Short)}
	defer func() {
		cancel()
		if e := s.close(); err == nil {
			err = e
		}
	}()
	if err := s.open(ctx); err != nil {
		return err
	}
	s.running.Go(func() { s.heartbeat(ctx) })
	s.prologue()
	for _, act := range []func(context.Context){
		s.balanced, s.oneDies, s.oneReturns, s.oneIsSlow, s.allDie, s.reconfigured, s.misconfigured, s.someAreGrey, s.aRoomIsSwitched,
		s.someAreLate, s.oneIsSwitchedOff,
	} {
		act(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	s.epilogue(ctx)
	if len(s.broken) > 0 {
		return &Failed{Claims: s.broken, Standstill: s.stood()}
	}
	return nil
}

func (s *stage) prologue() {
	s.act("A service mesh in one process")
	s.say("seven endpoints of three toy services run on loopback; some will die, hang and come back")
	s.say("a proxy listens on %s; an app calls through it and never learns of endpoints", s.address)
	s.say("this is all the proxy is told (times are short, so that the story is):")
	s.quote(s.document())
}

// epilogue sums up, and compares what the proxy counted with what the app saw.
func (s *stage) epilogue(ctx context.Context) {
	s.act("What it came to")
	s.say("as counted by the proxy (what /metrics would show); latencies are those of the last two minutes")
	services := []string{"catalog", "search", "payments"}
	agree := true
	for _, name := range services {
		agree = s.agreed(ctx, name) && agree
	}
	w := tabwriter.NewWriter(s.out, 0, 0, 3, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, "\tservice\trequests\tfailed\tretries\tejections\tp50\tp99\t")
	for _, name := range services {
		c, u := s.counters(name), s.rec.UpstreamStats(name)
		q := s.rec.Latency(telemetry.Outbound, name)
		_, _ = fmt.Fprintf(w, "\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t\n",
			name, c.Requests, s.app.failures(name), c.Retries, u.Ejections, short(q.P50), short(q.P99))
	}
	_ = w.Flush()
	s.claim(agree, "the proxy counted exactly the calls that the app made")
	s.claim(s.app.failures("catalog")+s.app.failures("search") == 0,
		"catalog and search: no call failed, although endpoints died, hung and came back")
	s.claim(s.app.failures("payments") == s.doomed, "payments: calls failed while all of it was dead (%d), and at no other time", s.doomed)
	s.say("%d claims, %d broken", s.claims, len(s.broken))
}
