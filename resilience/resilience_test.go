package resilience_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/resilience"
)

func TestReasons(t *testing.T) {
	// Name, HTTP, gRPC: the table "What a caller sees when we refuse".
	want := map[string][2]int{
		"bad_request": {400, 13}, "no_route": {404, 12}, "forbidden": {403, 7}, "no_endpoints": {503, 14},
		"connect_failed": {503, 14}, "connect_timeout": {503, 14}, "upstream_reset": {502, 14},
		"upstream_protocol": {502, 13}, "timeout": {504, 4}, "rate_limited": {429, 8}, "quota": {429, 8},
		"overloaded": {503, 14}, "concurrency": {503, 14}, "priority_shed": {503, 14}, "breaker_open": {503, 14},
		"degraded": {503, 14}, "draining": {503, 14}, "caller_gone": {499, 1},
	}
	for r := resilience.None + 1; r < resilience.Reasons; r++ {
		w, ok := want[r.String()]
		if got := [2]int{r.HTTPStatus(), r.GRPCStatus()}; !ok || got != w {
			t.Errorf("%v: %v, want %v", r, got, w)
		}
		if back, ok := resilience.ParseReason(r.String()); !ok || back != r {
			t.Errorf("ParseReason(%v) = %v", r, back)
		}
		delete(want, r.String())
	}
	if len(want) != 0 {
		t.Errorf("no reason named %v", want)
	}
	if resilience.None.HTTPStatus() != 0 || resilience.None.GRPCStatus() != 0 {
		t.Error("None has a status")
	}
	for _, s := range []string{"", "unknown", "Timeout"} {
		if r, ok := resilience.ParseReason(s); ok {
			t.Errorf("ParseReason(%q) = %v", s, r)
		}
	}
}

func TestConditions(t *testing.T) {
	for in, want := range map[string]string{
		"":                                       "",
		"connect refused reset timeout":          "connect refused reset timeout",
		"503 connect":                            "connect 503",
		"5xx":                                    "5xx",
		"504 502 503 timeout 429":                "timeout 429 502 503 504",
		"5xx 503 4xx":                            "4xx 5xx",
		resilience.DefaultConditions().String():  "connect refused reset timeout 502 503 504",
		"400 599":                                "400 599",
		"reset reset reset refused refused 5xx ": "refused reset 5xx",
	} {
		c, err := resilience.ParseConditions(strings.Fields(in))
		if err != nil || c.String() != want {
			t.Errorf("%q: %q, %v; want %q", in, c, err, want)
		}
		if again, err := resilience.ParseConditions(strings.Fields(c.String())); err != nil || again != c {
			t.Errorf("%q does not read back: %v, %v", c, again, err)
		}
	}
	for _, bad := range []string{"", "Connect", "200", "399", "600", "5xxx", "50", "5x3", "timeouts", "50a"} {
		_, err := resilience.ParseConditions([]string{"reset", bad})
		var ce *resilience.ConditionError
		if !errors.As(err, &ce) || ce.Word != bad || !strings.Contains(err.Error(), `"`+bad+`"`) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	c := resilience.DefaultConditions()
	for _, status := range []int{-1, 0, 200, 500, 640, 1 << 30} {
		if c.Answer(status) {
			t.Errorf("status %d is retried", status)
		}
	}
}

// TestMatch: which condition covers which end of an attempt.
func TestMatch(t *testing.T) {
	for _, c := range []struct {
		when string
		o    resilience.Outcome
		want bool
	}{
		{"connect", resilience.Outcome{Kind: resilience.Refused}, true},
		{"connect", resilience.Outcome{Kind: resilience.ConnectTimed}, true},
		{"refused", resilience.Outcome{Kind: resilience.Refused}, true},
		{"refused", resilience.Outcome{Kind: resilience.ConnectTimed}, false},
		{"refused", resilience.Outcome{Kind: resilience.Reset}, true},
		{"refused", resilience.Outcome{Kind: resilience.Reset, Sent: true}, false},
		{"reset", resilience.Outcome{Kind: resilience.Reset, Sent: true}, true},
		{"reset", resilience.Outcome{Kind: resilience.TimedOut}, false},
		{"timeout", resilience.Outcome{Kind: resilience.TimedOut}, true},
		{"timeout", resilience.Outcome{Kind: resilience.ConnectTimed}, false},
		{"5xx", resilience.Outcome{Kind: resilience.Malformed}, false},
		{"5xx", resilience.Outcome{Status: 599}, true},
		{"4xx", resilience.Outcome{Status: 599}, false},
	} {
		on, err := resilience.ParseConditions([]string{c.when})
		if got := on.Match(c.o); err != nil || got != c.want {
			t.Errorf("%s of %+v: %t", c.when, c.o, got)
		}
	}
}

// TestKinds: what an outcome means to those who count, and what a call says if it was the last.
func TestKinds(t *testing.T) {
	const none = -1
	for _, c := range []struct {
		kind   resilience.Kind
		reason resilience.Reason
		result int // a CallResult
		failed bool
	}{
		{resilience.Refused, resilience.ConnectFailed, int(resilience.CallFailed), true},
		{resilience.ConnectTimed, resilience.ConnectTimeout, int(resilience.CallTimedOut), true},
		{resilience.Reset, resilience.UpstreamReset, int(resilience.CallFailed), true},
		{resilience.TimedOut, resilience.Timeout, int(resilience.CallTimedOut), true},
		{resilience.Malformed, resilience.UpstreamProtocol, int(resilience.CallFailed), true},
		{resilience.Gone, resilience.CallerGone, none, false},
		{resilience.NoEndpoint, resilience.NoEndpoints, none, false},
		{resilience.Saturated, resilience.Overloaded, int(resilience.CallRejected), false},
	} {
		o := resilience.Outcome{Kind: c.kind}
		if o.Failed() != c.failed || c.kind.Reason() != c.reason {
			t.Errorf("%v: failed %t, reason %v", c.kind, o.Failed(), c.kind.Reason())
		}
		r, ok := resilience.ResultOf(resilience.Action{Verb: resilience.Fail, Reason: c.reason}, o)
		if ok != (c.result != none) || ok && int(r) != c.result {
			t.Errorf("%v: counted %v, %t", c.kind, r, ok)
		}
	}
	late := resilience.Action{Verb: resilience.Fail, Reason: resilience.Timeout, Attempt: -1}
	if r, ok := resilience.ResultOf(late, resilience.Outcome{}); ok {
		t.Errorf("a call whose time was over when it came counted as %v", r)
	}
	for status, want := range map[int]resilience.CallResult{200: resilience.CallOK, 404: resilience.CallOK, 500: resilience.CallFailed, 503: resilience.CallFailed} {
		r, ok := resilience.ResultOf(resilience.Action{Verb: resilience.Finish}, resilience.Outcome{Status: status})
		if !ok || r != want {
			t.Errorf("%d: counted %v, %t", status, r, ok)
		}
	}
}

// TestAdopt: a snapshot keeps a meter whose configuration did not change, and what must not be lost if it did.
func TestAdopt(t *testing.T) {
	b := resilience.NewBreaker(resilience.BreakerConfig{RequestVolume: 1})
	b.Record(epoch, 0, resilience.CallFailed)
	same := resilience.NewBreaker(resilience.BreakerConfig{RequestVolume: 1, Buckets: 10}).Adopt(b)
	other := resilience.NewBreaker(resilience.BreakerConfig{RequestVolume: 2}).Adopt(b)
	if same != b || other.State(epoch) != resilience.Closed || b.State(epoch) != resilience.Open {
		t.Error("breaker: want the old one for the same configuration, else a new one")
	}
	u := resilience.NewBudget(resilience.BudgetConfig{Ratio: 0.2})
	if resilience.NewBudget(resilience.BudgetConfig{Ratio: 0.2}).Adopt(u) != u || resilience.NewBudget(resilience.BudgetConfig{}).Adopt(u) == u {
		t.Error("budget: want the old one for the same configuration, else a new one")
	}

	o := resilience.NewOutlier(resilience.OutlierConfig{ConsecutiveFailures: 1})
	o.SetSize(epoch, 5, 5)
	var h, h2 resilience.EndpointHealth
	o.Record(epoch, &h, bad503)
	next := resilience.NewOutlier(resilience.OutlierConfig{ConsecutiveFailures: 2}).Adopt(o)
	if next == o || next.Ejected() != 1 {
		t.Fatal("outlier: the ejected must go over to a new configuration")
	}
	if v := o.Record(epoch, &h2, bad503); v.Act != resilience.Spare {
		t.Errorf("outlier: calls that still use the old one share the cap: %v", v.Act)
	}
	if v := next.ProbeResult(epoch.Add(time.Minute), &h, true); v.Act != resilience.Readmit || o.Ejected() != 0 {
		t.Errorf("outlier: %v, old one says %d ejected", v.Act, o.Ejected())
	}
	if resilience.NewOutlier(resilience.OutlierConfig{ConsecutiveFailures: 2}).Adopt(next) != next {
		t.Error("outlier: want the old one for the same configuration")
	}
}

// TestNilMeters: what is turned off lets everything pass.
func TestNilMeters(t *testing.T) {
	var (
		budget  *resilience.Budget
		breaker *resilience.Breaker
		outlier *resilience.Outlier
		limiter *resilience.Limiter
		h       resilience.EndpointHealth
	)
	budget.Call(epoch)
	adm := breaker.Admit(epoch)
	breaker.Cancel(epoch, adm.Ticket)
	due, next := outlier.ProbesDue(epoch, nil)
	outlier.Forget(epoch, &h)
	_, granted := limiter.Leave(nil)
	runs, waits := limiter.InUse()
	for what, ok := range map[string]bool{
		"budget":  budget.Take(epoch) && budget.Adopt(nil) == nil,
		"admit":   adm.OK && breaker.State(epoch) == resilience.Closed && breaker.Adopt(nil) == nil,
		"record":  breaker.Done(epoch, adm.Ticket, resilience.Action{}, bad503, 0) == resilience.Unchanged,
		"counts":  breaker.Counts(epoch) == resilience.BreakerCounts{},
		"outlier": outlier.Record(epoch, &h, bad503).Act == resilience.Keep && outlier.Adopt(nil) == nil,
		"probes":  len(due) == 0 && next.IsZero() && outlier.ProbeResult(epoch, &h, true).Act == resilience.Keep,
		"size":    outlier.SetSize(epoch, 1, 1) == nil && outlier.Ejected() == 0 && !outlier.State(epoch, &h).Ejected,
		"limiter": limiter.Acquire().Verdict == resilience.Admitted && limiter.Release(epoch) == nil && limiter.Adopt(nil) == nil,
		"queue":   limiter.Enqueue(epoch, epoch, nil).Verdict == resilience.Admitted && !limiter.Waits(nil) && granted,
		"in use":  runs == 0 && waits == 0 && limiter.Grant(epoch) == nil,
	} {
		if !ok {
			t.Error(what)
		}
	}
}

func TestReleaseTwicePanics(t *testing.T) {
	l := resilience.NewLimiter(resilience.LimiterConfig{Max: 1})
	defer func() {
		if recover() == nil {
			t.Error("want a panic")
		}
	}()
	l.Acquire()
	l.Release(epoch)
	l.Release(epoch)
}

// TestExactRatios: a ratio is met exactly, where floating point would miss it.
func TestExactRatios(t *testing.T) {
	b := resilience.NewBreaker(resilience.BreakerConfig{ErrorThreshold: 0.07, RequestVolume: 100})
	for range 93 {
		b.Record(epoch, 0, resilience.CallOK)
	}
	for range 6 {
		b.Record(epoch, 0, resilience.CallFailed)
	}
	if got := b.Record(epoch, 0, resilience.CallFailed); got != resilience.Opened {
		t.Error("7 of 100 is 7 %")
	}
	o := resilience.NewOutlier(resilience.OutlierConfig{MaxEjected: 0.29, ConsecutiveFailures: 1})
	o.SetSize(epoch, 100, 100)
	for range 100 {
		o.Record(epoch, new(resilience.EndpointHealth), bad503)
	}
	if o.Ejected() != 29 {
		t.Errorf("%d ejected, 29 %% of 100 is 29", o.Ejected())
	}
}

// TestBackInTime: a now before the last one is like the last one.
func TestBackInTime(t *testing.T) {
	b := resilience.NewBudget(resilience.BudgetConfig{Ratio: 1})
	b.Call(epoch.Add(time.Hour))
	b.Call(epoch)
	for i, want := range []bool{true, true, false} {
		if got := b.Take(epoch); got != want {
			t.Errorf("retry %d of two calls: %t", i+1, got)
		}
	}
}
