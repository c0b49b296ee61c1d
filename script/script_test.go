package script

import (
	"errors"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/route"
)

// printed is the example of S-123, with the Java that it has.
const printed = `(function route(invokers) {
    var result = new java.util.ArrayList(invokers.size());
    for (i = 0; i < invokers.size(); i ++) {
        if ("10.20.153.10".equals(invokers.get(i).getUrl().getHost())) {
            result.add(invokers.get(i));
        }
    }
    return result;
} (invokers));`

func call() *route.ScriptCall {
	c := &route.ScriptCall{Method: "getUser", Caller: route.Caller{Service: "shop", Addr: netip.MustParseAddr("10.1.1.1")}}
	for i, host := range []string{"10.20.153.9", "10.20.153.10", "10.20.153.11"} {
		version := []string{"v1", "v2", "v2"}[i]
		c.Endpoints = append(c.Endpoints, route.ScriptEndpoint{Host: host, Port: "80", Label: func(key string) string {
			if key == "version" {
				return version
			}
			return ""
		}})
	}
	c.Facts = &route.Facts{Method: "GET", Path: "/users/7", Query: "debug=1", Fields: route.FieldList{{Name: "X-Uid", Value: "23"}, {Name: "Cookie", Value: "a=b"}}}
	return c
}

// TestChoose: what programs leave.
func TestChoose(t *testing.T) {
	for _, c := range []struct {
		name, source string
		want         []int
	}{
		{"S-123 as printed", printed, []int{1}},
		{"a function that is not called", `function route(endpoints, request) { return endpoints.filter(e => e.version === "v2") }`, []int{1, 2}},
		{"an expression", `endpoints.filter(e => e.host.endsWith(".9"))`, []int{0}},
		{"a function as value", `(list => list.slice(1))`, []int{1, 2}},
		{"indexes", `[2, 0]`, []int{2, 0}},
		{"the request", `request.header("x-uid") % 20 === 3 && request.cookie("a") === "b" && request.query("debug") === "1" && request.header("none") === null &&
			request.method === "getUser" && request.path === "/users/7" && request.verb === "GET" && request.service === "shop" && request.address === "10.1.1.1" ? [1] : []`, []int{1}},
		{"a parameter of Dubbo", `var out = []; for (var it = invokers.iterator(); it.hasNext();) { var v = it.next(); if (v.getUrl().getParameter("version") == "v1" && v.getUrl().getPort() == 80) out.push(v) } out`, []int{0}},
		{"none", `[]`, []int{}},
		{"globals do not last", `if (typeof seen === "undefined") { [0] } else { [1] }`, []int{0}},
	} {
		p, err := New(Options{Time: 5 * time.Second}).Compile(c.source)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		for range 2 {
			if got, err := p.Choose(call()); err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%s: %v, %v; want %v", c.name, got, err, c.want)
			}
		}
	}
}

// TestSandbox: what a program cannot have, and what it cannot do for long (S-123).
func TestSandbox(t *testing.T) {
	for source, want := range map[string]string{
		`require("fs")`:                           "require is not defined",
		`fetch("http://x")`:                       "fetch is not defined",
		`java.lang.Runtime.getRuntime()`:          "",
		`new Function("return 1")()`:              "Function is not defined",
		`new ArrayBuffer(1e9)`:                    "ArrayBuffer is not defined",
		`"x".repeat(1e9)`:                         "repeat: too long",
		`var a = []; a.length = 4e9; a.join("x")`: "join: too long",
		`(function f() { f() })()`:                "",
		`null`:                                    "a list of endpoints is expected, got null",
		`["x"]`:                                   "an endpoint is expected in the list, got string",
		`throw new Error("no")`:                   "no",
	} {
		failed := 0
		p, err := New(Options{Time: 5 * time.Second, Failed: func(error) { failed++ }}).Compile(source)
		if err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		if got, err := p.Choose(call()); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, %v; want %q", source, got, err, want)
		}
		if failed != 1 {
			t.Errorf("%s: %d failures were told", source, failed)
		}
	}
}

// TestBounds: a program that never ends or grows without bound is ended, and the next run is as good as the first (S-123).
func TestBounds(t *testing.T) {
	c := call()
	p, err := New(Options{Time: 500 * time.Millisecond}).Compile(`if (endpoints.length === 3) { while (true) {} } [0]`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Choose(c); !errors.Is(err, ErrTime) {
		t.Errorf("without end: %v", err)
	}
	for p.(*program).stuck.Load() > 0 { // on a busy machine it ends later than it is given up
		runtime.Gosched()
	}
	c.Endpoints = c.Endpoints[:1]
	if got, err := p.Choose(c); err != nil || !slices.Equal(got, []int{0}) {
		t.Errorf("afterwards: %v, %v", got, err)
	}
	p, err = New(Options{Time: time.Minute, Memory: 8 << 20}).Compile(`var a = []; while (true) { a.push("x" + a.length) }`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Choose(c); !errors.Is(err, ErrMemory) && (err == nil || !strings.Contains(err.Error(), "too long")) {
		t.Errorf("without bound: %v", err)
	}
	p, err = New(Options{Time: time.Minute, Memory: 8 << 20}).Compile(`var s = "x"; while (true) { s += s }`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Choose(c); !errors.Is(err, ErrMemory) {
		t.Errorf("a text without bound: %v", err)
	}
}

// TestAhead: a run for no call in particular has more time.
func TestAhead(t *testing.T) {
	p, err := New(Options{Time: 30 * time.Millisecond}).Compile(`while (true) {}`)
	if err != nil {
		t.Fatal(err)
	}
	c := call()
	c.Facts = nil
	began := time.Now()
	if _, err := p.Choose(c); !errors.Is(err, ErrTime) || time.Since(began) < 300*time.Millisecond {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

// TestMistakes: what is no program is told with its place.
func TestMistakes(t *testing.T) {
	if _, err := New(Options{}).Compile("function ("); err == nil || !strings.Contains(err.Error(), "Line 1") {
		t.Errorf("%v", err)
	}
	if _, err := New(Options{}).Compile(strings.Repeat(" ", maxSource+1)); err == nil {
		t.Error("a program of any length is taken")
	}
}

func BenchmarkChoose(b *testing.B) {
	p, err := New(Options{}).Compile(printed)
	if err != nil {
		b.Fatal(err)
	}
	c := call()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Choose(c); err != nil {
			b.Fatal(err)
		}
	}
}
