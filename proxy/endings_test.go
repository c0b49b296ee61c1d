package proxy

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sidecar-mesh/sidecar/internal/meshtest"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// TestEndings: a rule for a while is told when it comes and when it ends, by itself or before its time; a reload that moves it
// is no news, and one that is over already is none either (S-120).
func TestEndings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec, err := telemetry.New(telemetry.Options{})
		if err != nil {
			t.Fatal(err)
		}
		p := &Proxy{o: Options{Recorder: rec}, wake: make(chan struct{}, 1)}
		at := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
		rule := func(name string, until string) string {
			return "{name: " + name + ", when: {host: 10.0.0.9}, forbid: true, until: " + until + "}"
		}
		put := func(rules string) { p.tellEndings(meshtest.Compile(t, "rules: {shop: ["+rules+"]}\n")) }
		told := uint64(0)
		tells := func(want ...string) {
			t.Helper()
			var got []string
			events, _ := rec.Events().Since(told)
			for _, e := range events {
				told = e.Seq
				if e.Kind != telemetry.EventRule || e.Service != "shop" {
					t.Errorf("event %+v", e)
				}
				got = append(got, e.To+" "+e.Detail)
			}
			if !slices.Equal(got, want) {
				t.Errorf("told %q, want %q", got, want)
			}
		}
		minute, hour := at(time.Minute), at(time.Hour)
		put(rule("short", minute) + ", " + rule("long", hour) + ", " + rule("gone", at(-time.Hour)))
		tells("acting short: refuses callers until "+minute, "acting long: refuses callers until "+hour)
		put("\n    " + rule("short", minute) + ",\n    " + rule("long", hour))
		tells()
		if next := p.endRules(time.Now()); !next.Equal(time.Now().Add(time.Minute)) {
			t.Errorf("looks again at %v", next)
		}
		time.Sleep(time.Minute)
		if next := p.endRules(time.Now()); !next.Equal(time.Now().Add(59 * time.Minute)) {
			t.Errorf("then at %v", next)
		}
		tells("over short: refuses callers until " + minute)
		put(rule("other", hour))
		tells("acting other: refuses callers until "+hour, "withdrawn long: refuses callers until "+hour)
		time.Sleep(time.Hour)
		put("")
		tells("over other: refuses callers until " + hour)
		if err := rec.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
}
