package config

import (
	"testing"
	"time"
)

// TestBan: a ban is one rule more, which replaces that of the same caller; what is over goes, and all else stays (S-120).
func TestBan(t *testing.T) {
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	until := now.Add(10 * time.Minute)
	const added = `- {name: ban 10.0.0.9, when: {host: 10.0.0.9}, forbid: true, until: "2026-12-01T10:10:00Z"}` + "\n"
	for name, row := range map[string]struct{ document, caller, want string }{
		"nothing":     {"", "10.0.0.9", added},
		"null":        {"null\n", "10.0.0.9", added},
		"one rule":    {"'=> host != 10.1.1.1'\n", "10.0.0.9", "- '=> host != 10.1.1.1'\n" + added},
		"others stay": {"# why\n- {name: west, when: {zone: w}, then: {zone: w}} # so\n", "10.0.0.9", "# why\n- {name: west, when: {zone: w}, then: {zone: w}} # so\n" + added},
		"again":       {"- {name: ban 10.0.0.9, when: {host: 10.0.0.9}, forbid: true, until: 2026-12-01T10:01:00Z}\n", "10.0.0.9", added},
		"over": {
			"- {name: ban x, when: {application: x}, forbid: true, until: 2026-12-01T10:00:00Z}\n" +
				"- {name: ban y, when: {application: y}, forbid: true}\n- {name: other, when: {host: 1.1.1.1}, forbid: true, until: '2026-12-01T10:00:00Z'}\n",
			"10.0.0.9",
			"- {name: ban y, when: {application: y}, forbid: true}\n- {name: other, when: {host: 1.1.1.1}, forbid: true, until: '2026-12-01T10:00:00Z'}\n" + added,
		},
		"a network":      {"", "10.20.0.0/16", "- {name: ban 10.20.0.0/16, when: {host: 10.20.0.0/16}, forbid: true, until: \"2026-12-01T10:10:00Z\"}\n"},
		"a star":         {"", "10.20.*", "- {name: ban 10.20.*, when: {host: 10.20.*}, forbid: true, until: \"2026-12-01T10:10:00Z\"}\n"},
		"an application": {"", "batch", "- {name: ban batch, when: {application: batch}, forbid: true, until: \"2026-12-01T10:10:00Z\"}\n"},
	} {
		got, err := Ban([]byte(row.document), row.caller, until, now)
		if err != nil || string(got) != row.want {
			t.Errorf("%s: %v\n%swant\n%s", name, err, got, row.want)
		}
		if _, err := LoadBytes("test.yaml", append([]byte("rules:\n  shop:\n"), indent(got)...), RankFile, noEnv); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		left, found, err := Unban(got, row.caller)
		if _, err := LoadBytes("test.yaml", append([]byte("rules:\n  shop:\n"), indent(left)...), RankFile, noEnv); err != nil {
			t.Errorf("%s: when lifted: %v", name, err)
		}
		if again, twice, _ := Unban(left, row.caller); err != nil || !found || twice || string(again) != string(left) {
			t.Errorf("%s: lifted %v %v, once more %v: %s", name, found, err, twice, left)
		}
	}
	for _, bad := range []string{"{a: b}", "- [", "a: [1"} {
		if _, err := Ban([]byte(bad), "x", until, now); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	for caller, ok := range map[string]bool{
		"": false, "a b": false, "a,b": false, "10.0.0.9": true, "shop": true, "!x": false, "::1": true,
		"10.300.1.1": false, "10.1.1": false, "10.1.1.1:80": false, "10.1.1.1/33": false, "*": false, "0.0.0.0/0": false, "::/0": false,
		"10.1.*": true, "10.1.0.0/16": true, "fd00::/8": true, "3scale": true,
	} {
		if err := CheckCaller(caller); (err == nil) != ok {
			t.Errorf("%q: %v", caller, err)
		}
	}
}

// indent moves lines below a key.
func indent(text []byte) []byte {
	out := []byte("    ")
	for i, b := range text {
		if out = append(out, b); b == '\n' && i < len(text)-1 {
			out = append(out, "    "...)
		}
	}
	return out
}
