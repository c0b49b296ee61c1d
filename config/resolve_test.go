package config

import (
	"reflect"
	"testing"
	"time"
)

// opts calls each for every Opt of a policy, with its path.
func opts(p *Policy, each func(path string, o reflect.Value)) {
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		if v.NumField() == 3 && v.Type().Field(1).Name == "Set" {
			each(path, v)
			return
		}
		for i := range v.NumField() {
			walk(path+"."+v.Type().Field(i).Name, v.Field(i))
		}
	}
	walk("", reflect.ValueOf(p).Elem())
}

// TestLayersCoverEveryField sees to it that no field of a policy is forgotten when layers are laid over each other.
func TestLayersCoverEveryField(t *testing.T) {
	source := &Source{Name: "x"}
	var full Policy
	opts(&full, func(_ string, o reflect.Value) {
		o.FieldByName("Set").SetBool(true)
		o.FieldByName("From").Set(reflect.ValueOf(Origin{Source: source, Line: 7}))
	})
	got := Resolve(&Policy{}, nil, &full)
	opts(&got, func(path string, o reflect.Value) {
		if o.FieldByName("From").Interface().(Origin).Line != 7 {
			t.Errorf("%s is not taken from the weaker layer", path)
		}
	})
}

// TestBuiltInPolicy: what nobody has set has a safe value, time limits, breaker and bounds among it (S-140).
func TestBuiltInPolicy(t *testing.T) {
	open := map[string]bool{
		".Use": true, ".PerTryTimeout": true, ".PerTryAuto": true, ".Idempotent": true, ".Locality.Prefer": true, ".Locality.SpillBelow": true, ".Warmup": true,
		".Backup.After": true, ".Backup.Off": true, ".DualSend": true, ".Fallback": true, ".Mirror": true, ".Breaker.SlowOver": true, ".Outlier.SlowNode": true, ".Limit.Bulkhead": true, ".Limit.Priorities": true,
	}
	got := Resolve()
	opts(&got, func(path string, o reflect.Value) {
		if set := o.FieldByName("Set").Bool(); set == open[path] {
			t.Errorf("%s: set is %v", path, set)
		}
		if from := o.FieldByName("From").Interface().(Origin); from.String() != "built in" {
			t.Errorf("%s comes from %s", path, from)
		}
	})
	if got.Timeout.Value != 15*time.Second || got.Retry.Count.Value != 0 || got.Outlier.MaxEjected.Value != 0.2 || got.LB.Value.Kind != "round_robin" {
		t.Errorf("got %+v", got)
	}
}

// A critical service has breaker defaults of its own (S-154), which any layer beats.
func TestCriticalDefaults(t *testing.T) {
	c := parseText(t, `defaults: {breaker: {request_volume: 5}}
services:
  must: {critical: true, endpoints: ["a:1"], routes: [{name: r, match: /r, policy: {breaker: {sleep_window: 9s}}}]}
  may: {endpoints: ["a:1"]}
`)
	must, may := c.ServicePolicy(c.Services["must"]).Breaker, c.ServicePolicy(c.Services["may"]).Breaker
	if must.ErrorThreshold.Value != 0.75 || must.SleepWindow.Value != 2*time.Second || must.RequestVolume.Value != 5 || must.Off.Value {
		t.Errorf("critical: %+v", must)
	}
	if may.ErrorThreshold.Value != 0.5 || may.SleepWindow.Value != 5*time.Second || may.RequestVolume.Value != 5 || may.Off.Value {
		t.Errorf("not critical: %+v", may)
	}
	route := c.RoutePolicy(c.Services["must"], c.Services["must"].Routes[0]).Breaker
	if route.ErrorThreshold.Value != 0.75 || route.SleepWindow.Value != 9*time.Second {
		t.Errorf("its route: %+v", route)
	}
}

// TestOrderOfLayers: for each field by itself the nearest layer counts, named policies included (S-6).
func TestOrderOfLayers(t *testing.T) {
	c := parseText(t, `policies:
  named: {use: deeper, connect_timeout: 20ms, idle_timeout: 20s}
  deeper: {idle_timeout: 1h, warmup: 25s, panic: fail_fast}
  routed: {per_try_timeout: 40ms, timeout: 40s}
defaults: {timeout: 10s, connect_timeout: 10ms, idle_timeout: 10s, retry: 1, lb: random}
services:
  a:
    endpoints: ["127.0.0.1:1"]
    policy: {use: named, connect_timeout: 30ms, retry: 3}
    routes:
      - {match: /x, policy: {use: routed, timeout: 50s, retry: 0}}
inbound: [{service: me, app: "127.0.0.1:2", policy: {use: deeper}}]
`)
	s := c.Services["a"]
	service, route, inbound := c.ServicePolicy(s), c.RoutePolicy(s, s.Routes[0]), c.InboundPolicy(c.Inbound[0])
	for _, tt := range []struct {
		what      string
		got, want any
		from      Origin
		line      int32
	}{
		{"service connect_timeout: own over used", service.ConnectTimeout.Value, 30 * time.Millisecond, service.ConnectTimeout.From, 9},
		{"service idle_timeout: used over what that uses", service.IdleTimeout.Value, 20 * time.Second, service.IdleTimeout.From, 2},
		{"service warmup: through two", service.Warmup.Value, 25 * time.Second, service.Warmup.From, 3},
		{"service timeout: defaults", service.Timeout.Value, 10 * time.Second, service.Timeout.From, 5},
		{"service lb: defaults", service.LB.Value, LB{Kind: "random"}, service.LB.From, 5},
		{"service retry: own", service.Retry.Count.Value, 3, service.Retry.Count.From, 9},
		{"route retry: 0 is not unset", route.Retry.Count.Value, 0, route.Retry.Count.From, 11},
		{"route timeout: own over used", route.Timeout.Value, 50 * time.Second, route.Timeout.From, 11},
		{"route per_try_timeout: used", route.PerTryTimeout.Value, 40 * time.Millisecond, route.PerTryTimeout.From, 4},
		{"route connect_timeout: the service's own", route.ConnectTimeout.Value, 30 * time.Millisecond, route.ConnectTimeout.From, 9},
		{"route panic: what the service uses", route.Panic.Value, "fail_fast", route.Panic.From, 3},
		{"inbound idle_timeout: used", inbound.IdleTimeout.Value, time.Hour, inbound.IdleTimeout.From, 3},
		{"inbound lb: defaults", inbound.LB.Value.Kind, "random", inbound.LB.From, 5},
		{"breaker window: built in", service.Breaker.Window.Value, 10 * time.Second, service.Breaker.Window.From, 0},
	} {
		if tt.got != tt.want || tt.from.Line != tt.line {
			t.Errorf("%s: got %v from %s, want %v from line %d", tt.what, tt.got, tt.from, tt.want, tt.line)
		}
	}
}

func TestNoneAndBackAgain(t *testing.T) {
	c := parseText(t, `policies: {sharp: {breaker: {window: 3s}, outlier: none}}
defaults: {breaker: none, outlier: {max_ejected: 10%}}
services:
  off: {endpoints: ["127.0.0.1:1"]}
  fields: {endpoints: ["127.0.0.1:1"], policy: {breaker: {request_volume: 5}}}
  empty: {endpoints: ["127.0.0.1:1"], policy: {breaker: {}}}
  used:
    endpoints: ["127.0.0.1:1"]
    policy: {use: sharp}
    routes: [{match: /off, policy: {breaker: none, outlier: {window: 1s}}}]
`)
	for name, want := range map[string]struct{ breaker, outlier bool }{
		"off": {true, false}, "fields": {false, false}, "empty": {false, false}, "used": {false, true},
	} {
		p := c.ServicePolicy(c.Services[name])
		if p.Breaker.Off.Value != want.breaker || p.Outlier.Off.Value != want.outlier {
			t.Errorf("%s: breaker off %v, outlier off %v, want %+v", name, p.Breaker.Off.Value, p.Outlier.Off.Value, want)
		}
	}
	used := c.Services["used"]
	p := c.RoutePolicy(used, used.Routes[0])
	if !p.Breaker.Off.Value || p.Outlier.Off.Value || p.Outlier.MaxEjected.Value != 0.1 {
		t.Errorf("route: breaker %+v, outlier %+v", p.Breaker.Off, p.Outlier)
	}
}

func TestHandMadeFieldsTurnOnAgain(t *testing.T) {
	above := &Policy{Breaker: Breaker{Window: Opt[time.Duration]{Value: time.Second, Set: true}}, Outlier: Outlier{EjectFor: Opt[time.Duration]{Value: time.Second, Set: true}}}
	below := &Policy{Breaker: Breaker{Off: Opt[bool]{Value: true, Set: true}}, Outlier: Outlier{Off: Opt[bool]{Value: true, Set: true}}}
	if p := Resolve(above, below); p.Breaker.Off.Value || p.Outlier.Off.Value {
		t.Errorf("breaker %+v, outlier %+v", p.Breaker.Off, p.Outlier.Off)
	}
	if p := Resolve(below, above); !p.Breaker.Off.Value || !p.Outlier.Off.Value {
		t.Errorf("breaker %+v, outlier %+v", p.Breaker.Off, p.Outlier.Off)
	}
}
