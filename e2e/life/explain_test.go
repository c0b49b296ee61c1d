package life

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
	"github.com/sidecar-mesh/sidecar/explain"
)

// generator makes configurations and requests that have a chance to meet.
type generator struct {
	*rand.Rand
	endpoints []string
}

func (g *generator) pick(list ...string) string { return list[g.IntN(len(list))] }

func (g *generator) maybe(text string) string {
	if g.IntN(3) == 0 {
		return text
	}
	return ""
}

// document is a configuration with four services of random routes.
func (g *generator) document() string {
	var b strings.Builder
	b.WriteString("node: {service: shop, zone: z1, labels: {team: a}}\npolicies: {named: {retry: 1, timeout: 3s}}\nservices:\n")
	for i, hosts := range []string{"a, a.internal", `b, "*.b.internal", "*.internal"`, `c, "c:8080"`, g.pick(`"*"`, "d")} {
		fmt.Fprintf(&b, "  s%d:\n    hosts: [%s]\n    policy: {lb: %s, outlier: none, breaker: none%s}\n    endpoints:\n", i, hosts,
			g.pick("round_robin", "weighted_round_robin", "random", "least_active", "{consistent_hash: {header: x-user}}", "peak_ewma", "{consistent_hash: {query: u}}"),
			g.maybe(", use: named")+g.maybe(", locality: {prefer: zone, spill_below: 60%}"))
		for n, e := range g.endpoints {
			if n == 0 || g.IntN(3) > 0 {
				fmt.Fprintf(&b, "      - {address: %q, weight: %d, labels: {version: v%d}, zone: z%d}\n", e, 1+g.IntN(3), 1+n%2, 1+g.IntN(2))
			}
		}
		b.WriteString("    routes:\n")
		for n := range g.IntN(7) {
			fmt.Fprintf(&b, "      - name: r%d\n        match: {%s}\n%s", n, g.match(), g.action())
		}
		b.WriteString("      - {name: last, match: {path: /refused}, respond: {status: 418}}\n")
	}
	return b.String()
}

func (g *generator) match() string {
	parts := []string{"path: " + g.pick("/v1/*", "/v1/items", "{prefix: /v}", `{regex: "^/v[12]/"}`, "/v2/*", "{prefix: /}", "{prefix: /a%2Fb}")}
	for _, p := range []string{
		"method: [" + g.pick("GET", "POST", "GET, DELETE") + "]",
		"header: {" + g.pick("x-a: one", "x-a: {present: true}", "x-a: {present: false}", "x-n: {mod: 3, in: [1]}", "x-a: {in: [one, two]}", "x-a: {prefix: t}") + "}",
		"query: {" + g.pick("q: '1'", "q: {present: true}", `q: {regex: "^[0-9]+$"}`) + "}",
		"cookie: {k: {prefix: v}}",
		"host: [" + g.pick("a", `"*.internal"`, "c") + "]",
		"caller: [" + g.pick("shop", "other", "127.0.0.0/8", "team=a", "team=b") + "]",
		"percent: " + g.pick("20%", "50%", "90%"),
	} {
		if g.IntN(4) == 0 {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, ", ")
}

func (g *generator) action() string {
	return g.pick(
		"",
		"        policy: {retry: 2, lb: round_robin}\n",
		"        respond: {status: 410, body: gone}\n",
		"        redirect: {to: /elsewhere, status: 307}\n",
		"        to: {service: s1}\n",
		"        to: {labels: {version: v2}, else: any}\n",
		"        to: {labels: {version: v9}, else: any}\n",
		"        to: {labels: {version: v9}, else: fail}\n",
		"        to: {split: [{weight: 3, labels: {version: v1}}, {weight: 1, service: s2}]}\n",
		"        rewrite: {prefix: {from: /v1/, to: /new/}, headers: {set: {x-set: 'yes'}, remove: [x-a]}}\n",
		"        rewrite: {host: inner.example, path: /whole}\n",
	)
}

// request is one question and the same as a request.
type request struct {
	method, host, target string
	header               []string
}

func (g *generator) request(n int) request {
	r := request{method: g.pick("GET", "GET", "POST", "DELETE")}
	r.host = g.pick("a", "A.internal", "b", "x.b.internal", "y.internal", "c", "c:8080", "c:9", "nobody", "a.internal.")
	path := g.pick("/v1/items", "/v1/items/7", "/v1/./x", "/v1/../v2/y", "/v2/%61", "/v3", "/", "/a%2fb/c", "/refused", "/..", "/v1/%zz", "/v1//x", "/v1/")
	r.target = fmt.Sprintf("%s?n=%d", path, n) + g.maybe("&q=1") + g.maybe("&u=7")
	r.header = []string{fmt.Sprintf("X-Request-Id: id-%d", g.IntN(1000))}
	for _, h := range []string{"X-A: " + g.pick("one", "two", "three"), fmt.Sprint("X-N: ", g.IntN(9)), "Cookie: j=1; k=v" + g.pick("1", "2"), "X-User: u" + g.pick("1", "2", "3")} {
		if g.IntN(2) == 0 {
			r.header = append(r.header, h)
		}
	}
	return r
}

// TestExplainAgrees asks for each of many random requests what would become of it, and then sends it: service, route,
// answer, what the endpoint gets and which endpoint it is are as explained.
func TestExplainAgrees(t *testing.T) {
	t.Parallel()
	g := &generator{Rand: rand.New(rand.NewPCG(1, 7))}
	for range 3 {
		address := sidecartest.FreeAddress(t)
		sidecartest.AnswerAt(t, address, func(m *sidecartest.Message) string {
			return sidecartest.Reply(200, strings.Join([]string{address, m.Method(), m.Get("host"), m.Target(), m.Get("x-set"), m.Get("x-a")}, " "))
		})
		g.endpoints = append(g.endpoints, address)
	}
	p := sidecartest.Run(t, "%s", g.document())
	kinds, rules := map[string]int{}, map[string]int{}
	type seen struct {
		request
		*explain.Explanation
		*sidecartest.Message
	}
	var all []seen
	for round := range 6 {
		if round > 0 {
			before := p.Metric(t, "sidecar_reloads_total", `result="ok"`)
			p.Write(t, "%s", g.document())
			sidecartest.Eventually(t, patience, "the next configuration is in force", func() bool {
				return p.Metric(t, "sidecar_reloads_total", `result="ok"`) == before+1
			})
		}
		for range 40 {
			r := g.request(len(all))
			e := ask(t, p.Admin, r)
			kinds[e.Outcome.Kind+" "+e.Outcome.Reason]++
			m := sidecartest.Dial(t, p.Outbound).Ask(t, "%s %s HTTP/1.1\r\nHost: %s\r\n%s\r\n\r\n", r.method, r.target, r.host, strings.Join(r.header, "\r\n"))
			all = append(all, seen{r, e, m})
			for _, target := range e.Targets {
				if target.Chosen && target.Next != nil {
					rules[target.Next.Rule]++
				}
			}
		}
	}
	records := map[string]sidecartest.Record{}
	for _, r := range p.Records(t, len(all)) {
		records[r.Path] = r
	}
	for _, v := range all {
		agree(t, v.request, v.Explanation, v.Message, records[v.target])
	}
	t.Log(kinds, rules)
	if len(kinds) < 4 || len(rules) < 4 {
		t.Errorf("the generator is too tame: %v %v", kinds, rules)
	}
}

func ask(t *testing.T, address string, r request) *explain.Explanation {
	t.Helper()
	q := url.Values{"url": {"http://" + r.host + r.target}, "method": {r.method}, "header": r.header, "address": {"127.0.0.1"}}
	var e explain.Explanation
	must(t, "GET", address, "/explain?"+q.Encode(), 200, &e)
	return &e
}

// agree compares what was explained with what happened.
func agree(t *testing.T, r request, e *explain.Explanation, m *sidecartest.Message, rec sidecartest.Record) {
	t.Helper()
	bad := func(what string, want, got any) {
		t.Helper()
		t.Errorf("%+v: %s: explained %v, was %v", r, what, want, got)
	}
	if e.Service != nil && e.Service.Name != rec.Service || e.Service == nil && rec.Service != "" {
		bad("service", e.Service, rec.Service)
	}
	if e.Route != nil && e.Route.Name != rec.Route || e.Route == nil && rec.Route != "" {
		bad("route", e.Route, rec.Route)
	}
	if e.Outcome.Reason != rec.Reason || e.Outcome.Reason != m.Get("x-sidecar-reason") {
		bad("reason", e.Outcome.Reason, rec.Reason)
	}
	if e.Outcome.Kind != explain.Forwarded {
		if m.Status() != e.Outcome.Status || m.Get("location") != e.Outcome.Location || rec.Endpoint != "" {
			bad("answer", e.Outcome, m.Start)
		}
		return
	}
	was := strings.Split(string(m.Body), " ")
	if m.Status() != 200 || len(was) != 6 {
		bad("answer", "200", m.Start)
		return
	}
	set := ""
	for _, h := range e.Sent.Set {
		if h.Name == "x-set" {
			set = h.Value
		}
	}
	if was[1] != r.method || was[2] != e.Sent.Host || was[3] != e.Sent.Path || was[4] != set || slices.Contains(e.Sent.Removed, "x-a") && was[5] != "" {
		bad("sent", *e.Sent, was)
	}
	for _, target := range e.Targets {
		if !target.Chosen {
			continue
		}
		if was[0] != rec.Endpoint || !slices.Contains(target.Next.Among, was[0]) {
			bad("endpoint", target.Next.Among, was[0])
		}
		if next := target.Next.Next; next != "" && next != was[0] {
			bad("next by "+target.Next.Rule, next, was[0])
		}
	}
}

// TestExplainOffline: the files and the running sidecar give the same answer, as text and as JSON.
func TestExplainOffline(t *testing.T) {
	t.Parallel()
	p := sidecartest.Run(t, `
node: {service: shop}
services:
  svc:
    endpoints: [{address: 127.0.0.1:1, labels: {version: v1}}, {address: "localhost:2", weight: 2}]
    policy: {timeout: 2s, retry: 1, lb: {consistent_hash: {header: x-user}}}
    routes:
      - {name: one, match: GET /one/*, policy: {timeout: 1s}}
      - {match: {percent: 10%%}, to: {labels: {version: v1}}}`)
	for _, format := range []string{"text", "json"} {
		args := []string{"explain", "-o", format, "-X", "GET", "-H", "x-user: 7", "http://svc/two"}
		offline, _, code := run(t, append(args, "-c", p.File)...)
		online, _, _ := run(t, append(args, "--admin", p.Admin)...)
		since := regexp.MustCompile(`"since": ".*"`)
		offline, online = since.ReplaceAllString(offline, ""), since.ReplaceAllString(online, "")
		if code != 0 || offline != online || !strings.Contains(offline, "10%") && format == "text" {
			t.Errorf("offline:\n%s\nonline:\n%s", offline, online)
		}
	}
}

// run runs a subcommand to its end.
func run(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), sidecartest.Build(t), args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // the exit code tells
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// decode reads JSON that a command wrote.
func decode(t testing.TB, text string, out any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), out); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
}
