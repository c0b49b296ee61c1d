package stories

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// none fails the test when a call of l failed.
func none(t *testing.T, l *sidecartest.Load, least int) {
	t.Helper()
	l.Stop()
	if l.Failed > 0 || l.Calls < least {
		t.Errorf("%d of %d calls failed: %q", l.Failed, l.Calls, l.Failures)
	}
	t.Logf("%d calls, median %v, 99 %% %v", l.Calls, l.Quantile(0.5), l.Quantile(0.99))
}

// TestReloadsUnderLoad: the configuration changes again and again - endpoints, routes, policies, listeners of other
// services - while calls come in; not one of them fails.
func TestReloadsUnderLoad(t *testing.T) {
	var list []string
	for range 3 {
		list = append(list, fmt.Sprintf("%q", sidecartest.Answer(t, sidecartest.OK("ok")).Address))
	}
	document := func(i int) string {
		endpoints := strings.Join(append([]string{list[i%3]}, list[(i+1)%3]), ",")
		extra := ""
		if i%2 == 1 {
			extra = fmt.Sprintf("  other: {protocol: tcp, listen: %q, endpoints: [%s]}\n", sidecartest.FreeAddress(t), list[0])
		}
		return fmt.Sprintf(quiet+`services:
  svc:
    endpoints: [%s]
    policy: {timeout: %ds, retry: 1}
    routes: [{name: r%d, match: /r/*, policy: {timeout: 3s}}]
%s`, endpoints, 5+i%4, i%7, extra)
	}
	p := sidecartest.Run(t, "%s", document(0))
	l := sidecartest.Steady(t, sidecartest.Call{Address: p.Outbound, Host: "svc", Path: "/r/x", Callers: 4, Pause: time.Millisecond})
	for i := range times(20, 200) {
		p.Reload(t, "%s", document(i+1))
	}
	none(t, l, 500)
}

// TestRefusedReloadUnderLoad: a file with a mistake changes nothing and is told.
func TestRefusedReloadUnderLoad(t *testing.T) {
	origin := sidecartest.Answer(t, sidecartest.OK("ok"))
	p := sidecartest.Run(t, quiet+"services: {svc: {endpoints: [%q]}}", origin.Address)
	l := sidecartest.Steady(t, sidecartest.Call{Address: p.Outbound, Host: "svc", Path: "/", Callers: 2, Pause: time.Millisecond})
	p.Write(t, "services: {svc: {endpoint: [%q]}}", origin.Address)
	sidecartest.Eventually(t, 10*time.Second, "the mistake is told", func() bool {
		return p.Metric(t, "sidecar_reloads_total", `result="failed"`) == 1 && strings.Contains(p.Said(), "endpoint")
	})
	n, _ := l.Count()
	sidecartest.Eventually(t, 10*time.Second, "calls go on", func() bool { now, _ := l.Count(); return now > n+100 })
	none(t, l, 100)
}

// TestKilledEndpoints: endpoints are killed without warning and come back, one at a time. No GET fails.
func TestKilledEndpoints(t *testing.T) {
	list, addresses := three(t)
	p := sidecartest.Run(t, quiet+`services: {svc: {endpoints: [%s], policy: {retry: 2, outlier: {eject_for: 200ms, probe: {tcp: {}, interval: 100ms}}}}}`, addresses)
	l := sidecartest.Steady(t, sidecartest.Call{Address: p.Outbound, Host: "svc", Path: "/", Callers: 4, Pause: 2 * time.Millisecond})
	for i := range times(6, 100) {
		e := list[i%len(list)]
		e.Kill()
		more(t, l, 100)
		e.Start(t)
		sidecartest.Eventually(t, 20*time.Second, "all endpoints are usable", func() bool {
			return p.Metric(t, "sidecar_endpoints", `service="svc"`, `state="usable"`) == float64(len(list))
		})
		more(t, l, 100)
	}
	none(t, l, 1000)
}

// TestRollingRestart: all endpoints are restarted in an orderly way, one after the other. No GET fails.
func TestRollingRestart(t *testing.T) {
	list, addresses := three(t)
	p := sidecartest.Run(t, quiet+`services: {svc: {endpoints: [%s], policy: {retry: 1, outlier: {eject_for: 200ms, probe: {tcp: {}, interval: 100ms}}}}}`, addresses)
	l := sidecartest.Steady(t, sidecartest.Call{Address: p.Outbound, Host: "svc", Path: "/", Callers: 4, Pause: 2 * time.Millisecond})
	for range times(1, 10) {
		for _, e := range list {
			more(t, l, 100)
			e.Stop(t)
			e.Start(t)
		}
	}
	more(t, l, 100)
	none(t, l, 400)
}

// three starts as many endpoints; addresses is their list as a document has it.
func three(t *testing.T) (list []*sidecartest.Endpoint, addresses string) {
	var quoted []string
	for range 3 {
		e := sidecartest.NewEndpoint(t)
		list = append(list, e)
		quoted = append(quoted, fmt.Sprintf("%q", e.Address))
	}
	return list, strings.Join(quoted, ",")
}

// more waits until n more calls have ended.
func more(t *testing.T, l *sidecartest.Load, n int) {
	t.Helper()
	begin, _ := l.Count()
	sidecartest.Eventually(t, 30*time.Second, "calls go on", func() bool { now, _ := l.Count(); return now >= begin+n })
}

// TestTermUnderLoad: the sidecar is told to end while calls come in. Those that are under way finish, those that come
// within the grace are served, and only then connections are refused; the exit code is 0.
func TestTermUnderLoad(t *testing.T) {
	held, release := make(chan struct{}), make(chan struct{})
	origin := sidecartest.Answer(t, func(m *sidecartest.Message) string {
		if m.Target() == "/held" {
			close(held)
			<-release
		}
		return sidecartest.Reply(200, "ok")
	})
	p := sidecartest.Run(t, "limits: {drain_grace: 1s, drain_timeout: 20s}\nservices: {svc: {endpoints: [%q]}}", origin.Address)
	slow := sidecartest.Dial(t, p.Outbound)
	_ = slow.Send("GET /held HTTP/1.1\r\nHost: svc\r\n\r\n")
	<-held
	l := sidecartest.Steady(t, sidecartest.Call{Address: p.Outbound, Host: "svc", Path: "/", Callers: 4, Pause: time.Millisecond})
	more(t, l, 100)
	start := time.Now()
	p.Signal(t, syscall.SIGTERM)
	more(t, l, 50) // on new connections, since each answer closes its own
	if time.Since(start) < 900*time.Millisecond {
		l.Stop()
		if l.Failed > 0 {
			t.Errorf("within the grace %d of %d calls failed: %q", l.Failed, l.Calls, l.Failures)
		}
	}
	sidecartest.Eventually(t, 10*time.Second, "new connections are refused", func() bool { return !sidecartest.Dials(p.Outbound) })
	if took := time.Since(start); took < 900*time.Millisecond {
		t.Errorf("connections were refused after %v", took)
	}
	close(release)
	if m := slow.Answer(t, "GET"); m.Status() != 200 || m.Get("connection") != "close" {
		t.Errorf("the call that was under way: %+v", m)
	}
	if code := p.Wait(t, 10*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
