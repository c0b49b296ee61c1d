package config

import (
	"encoding/base64"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

func switchValue() value[Switch] {
	v := object(append([]field[Switch]{
		must(in("service", "whose calls are degraded", func(s *Switch) *string { return &s.Service }, claimed(claimService, line()))),
		in("route", "only this route of it", func(s *Switch) *string { return &s.Route }, line()),
		in("level", "1: little impact, may be automatic; 2: some; 3: large, needs a confirmation (1)", func(s *Switch) *int { return &s.Level }, number(1, 3)),
		in("mode", "shield: no call is made; fallback: the answer stands in when the call fails (shield)", func(s *Switch) *string { return &s.Mode }, word(ModeShield, ModeFallback)),
		opt("enabled", "the initial state, and a write when it is changed (false)", func(s *Switch) *Opt[bool] { return &s.Enabled }, boolean()),
		ref("auto", "turns it on and off by itself; level 1 only", func(s *Switch) **AutoSwitch { return &s.Auto }, autoSwitchValue()),
		in("description", "what callers will miss", func(s *Switch) *string { return &s.Description }, line()),
		in("owner", "whom to ask", func(s *Switch) *string { return &s.Owner }, line()),
		in("reason", "why enabled is what it is, for the journal", func(s *Switch) *string { return &s.Reason }, line()),
	}, standIns(func(s *Switch) *StandIn { return &s.Answer }, KindAnswer, KindEmpty, KindError, KindLocal)...)...)
	read := v.read
	v.read = func(d *decoder, n *yaml.Node, out *Switch) bool {
		key, outer := d.key, d.claims
		d.claims = nil
		out.Name, out.From, out.Level, out.Mode = key.Value, d.origin(key), 1, ModeShield
		ok := read(d, n, out)
		out.claims, d.claims = d.claims, outer
		switch {
		case !ok:
			return false
		case out.Auto != nil && out.Level != 1:
			return d.failIn(n, "auto", "only a switch of level 1 may be automatic, this one is of level %d", out.Level)
		}
		return oneStandIn(d, n, []string{KindAnswer, KindEmpty, KindError, KindLocal})
	}
	return v
}

// oneStandIn wants exactly one of the keys.
func oneStandIn(d *decoder, n *yaml.Node, kinds []string) bool {
	given := 0
	for _, k := range kinds {
		if has(n, k) {
			given++
		}
	}
	if given != 1 {
		return d.fail(n, "exactly one of %s is expected", strings.Join(kinds, ", "))
	}
	return true
}

func autoSwitchValue() value[AutoSwitch] {
	condition := func(doc string, start Ratio) value[Ratio] {
		return preset(object(
			must(in("error_ratio", doc, func(r *Ratio) *float64 { return &r.ErrorRatio }, ratio())),
			in("for", "for so long", func(r *Ratio) *time.Duration { return &r.For }, duration(100*time.Millisecond, longest)),
		), start)
	}
	v := object(
		must(in("when", "turns it on (for: 10s)", func(a *AutoSwitch) *Ratio { return &a.When }, condition("at least this share of the calls failed", Ratio{For: 10 * time.Second}))),
		in("until", "turns it off again: of the calls that are let through (error_ratio: 5%, for: 30s)", func(a *AutoSwitch) *Ratio { return &a.Until }, condition("at most this share of the calls failed", Ratio{For: 30 * time.Second})),
		in("ramp", "from then on a growing share of calls goes through (30s)", func(a *AutoSwitch) *time.Duration { return &a.Ramp }, duration(0, longest)),
	)
	return then(preset(v, AutoSwitch{Until: Ratio{ErrorRatio: 0.05, For: 30 * time.Second}, Ramp: 30 * time.Second}), func(d *decoder, n *yaml.Node, out *AutoSwitch) bool {
		if out.Until.ErrorRatio >= out.When.ErrorRatio {
			return d.fail(n, "until.error_ratio must be below when.error_ratio, or the switch would flap")
		}
		return true
	})
}

// standIns are the keys that say what is answered.
func standIns[T any](to func(*T) *StandIn, kinds ...string) []field[T] {
	kind := func(name string) func(*T) *StandIn {
		return func(t *T) *StandIn {
			s := to(t)
			s.Kind = name
			return s
		}
	}
	all := map[string]field[T]{
		KindAnswer: in(KindAnswer, "this answer", kind(KindAnswer), answerValue()),
		KindEmpty: in(KindEmpty, "an empty answer: status 200 and no body, an empty message of gRPC, an end of TCP", kind(KindEmpty), standIn(KindEmpty, StandIn{Status: 200},
			in("status", "of HTTP (200)", func(s *StandIn) *int { return &s.Status }, number(200, 299)))),
		KindError: in(KindError, "a failure", kind(KindError), standIn(KindError, StandIn{Status: 503, GRPC: "unavailable"},
			in("status", "of HTTP (503)", func(s *StandIn) *int { return &s.Status }, number(400, 599)),
			in("grpc", "of a gRPC call (unavailable)", func(s *StandIn) *string { return &s.GRPC }, word(grpcNames()...)),
			in("message", "text for the caller", func(s *StandIn) *string { return &s.Message }, line()))),
		KindLocal: in(KindLocal, "what our own app answers there: http://127.0.0.1:PORT/PATH", func(t *T) *string { return &kind(KindLocal)(t).Local }, localURL()),
		KindStale: in(KindStale, "the last good answer, if it is not older", func(t *T) *time.Duration { return &kind(KindStale)(t).Stale }, duration(time.Second, longest)),
	}
	list := make([]field[T], 0, len(kinds))
	for _, k := range kinds {
		list = append(list, all[k])
	}
	return list
}

func grpcNames() []string {
	names := grpcStatuses()
	for i := range names {
		names[i] = strings.TrimPrefix(names[i], "grpc:")
	}
	return names
}

func standIn(kind string, start StandIn, fields ...field[StandIn]) value[StandIn] {
	start.Kind = kind
	return preset(object(fields...), start)
}

func answerValue() value[StandIn] {
	v := standIn(KindAnswer, StandIn{Status: 200},
		in("status", "from 200 to 599 (200)", func(s *StandIn) *int { return &s.Status }, number(200, 599)),
		in("headers", "of the answer", func(s *StandIn) *[]Header { return &s.Headers }, headers()),
		in("body", "of the answer", func(s *StandIn) *string { return &s.Body }, text()),
		in("body_base64", "the same for bytes: a message of gRPC, what TCP sends", func(s *StandIn) *string { return &s.Body }, base64Text()),
		in("template", "the body has {{method}}, {{path}}, {{query.NAME}}, {{header.NAME}}, {{service}}, {{request_id}}, {{reason}} in it (false)", func(s *StandIn) *bool { return &s.Template }, boolean()),
	)
	return then(v, func(d *decoder, n *yaml.Node, out *StandIn) bool {
		switch {
		case has(n, "body") && has(n, "body_base64"):
			return d.fail(n, "only one of body, body_base64 is expected")
		case (out.Status == 204 || out.Status == 205 || out.Status == 304) && out.Body != "":
			return d.fail(n, "an answer with status %d has no body", out.Status)
		case out.Template:
			if problem := templateProblem(out.Body); problem != "" {
				return d.fail(n, "%s", problem)
			}
		}
		return true
	})
}

func base64Text() value[string] {
	v := convert(text(), func(s string) (string, string) {
		b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(s))
		if err != nil {
			return "", "base64 is expected (RFC 4648, with padding)"
		}
		return string(b), ""
	})
	return v
}

// Placeholders finds what stands in double braces in a template.
func Placeholders() *regexp.Regexp {
	return regexp.MustCompile(`\{\{\s*([a-z_]+)(?:\.([^{}\s]+))?\s*\}\}`)
}

// templateProblem says which placeholder is not known.
func templateProblem(body string) string {
	plain := []string{"method", "path", "service", "request_id", "reason"}
	for _, m := range Placeholders().FindAllStringSubmatch(body, -1) {
		named := m[1] == "query" || m[1] == "header"
		if named != (m[2] != "") || !named && !slices.Contains(plain, m[1]) {
			return m[0] + " is not known; known are " + strings.Join(plain, ", ") + ", query.NAME, header.NAME"
		}
	}
	return ""
}

// localURL is an HTTP address on loopback: our own app, never another host.
func localURL() value[string] {
	const what = "http://127.0.0.1:PORT/PATH is expected: a place in our own pod"
	return checked(line(), func(s string) string {
		u, err := url.Parse(s)
		if err != nil || u.Scheme != "http" || u.User != nil || u.Fragment != "" || u.RawQuery != "" {
			return what
		}
		if port, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || port == 0 {
			return what
		}
		host := u.Hostname()
		if ip, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !ip.IsLoopback()) {
			return what
		}
		return ""
	})
}

// fallbackValue reads none, or a map.
func fallbackValue() value[Fallback] {
	kinds := []string{KindAnswer, KindEmpty, KindLocal, KindStale}
	v := object(append([]field[Fallback]{
		in("when", "failures that it answers: timeout, connect, reset, protocol, no_endpoints, breaker_open, rate_limited, overloaded (all of these); 5xx, a status, grpc:STATUS",
			func(f *Fallback) *[]string { return &f.When }, filledList(failureClass())),
	}, standIns(func(f *Fallback) *StandIn { return &f.Answer }, kinds...)...)...)
	whole := then(preset(v, Fallback{When: TransportFailures()}), func(d *decoder, n *yaml.Node, _ *Fallback) bool {
		return oneStandIn(d, n, kinds)
	})
	none := convert(word("none"), func(string) (Fallback, string) { return Fallback{}, "" })
	return either(none, whole)
}

// TransportFailures are the words for failures of the call itself. What an app says went wrong is not among them: to answer success
// then may be dangerous.
func TransportFailures() []string {
	return []string{"timeout", "connect", "reset", "protocol", "no_endpoints", "breaker_open", "rate_limited", "overloaded"}
}

func failureClass() value[string] { return failureWord(append(TransportFailures(), "5xx")...) }
