package life

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

const patience = 20 * time.Second // bounds what is to happen

// TestValidate: exit codes and texts.
func TestValidate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good, bad, doubtful := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml"), filepath.Join(dir, "doubtful.yaml")
	write(t, good, "services: {svc: {endpoints: [127.0.0.1:1], routes: [{match: /a}]}}\n")
	write(t, bad, "services:\n  svc:\n    hots: [a]\n    policy: {timeout: 5}\n    routes: [{match: /a, to: {service: nobody}}]\n")
	write(t, doubtful, "services: {svc: {}}\n")
	for _, row := range []struct {
		name           string
		args           []string
		code           int
		stdout, stderr []string
	}{
		{"good", []string{"-c", good}, 0, []string{good + ": ok, 1 service, 1 route, 1 fixed endpoint, 0 inbound services"}, nil},
		{"all mistakes", []string{"-c", bad}, 1, nil, []string{
			bad + ":3:5: services.svc.hots: unknown key, did you mean hosts?", bad + ":4:23: services.svc.policy.timeout: ", `nobody`,
		}},
		{"warning", []string{"-c", doubtful}, 0, []string{"ok"}, []string{"warning: " + doubtful + ":1:12: "}},
		{"json", []string{"-c", bad, "-o", "json"}, 1, []string{`"valid": false`, `"line": 3`, `"field": "services.svc.hots"`}, nil},
		{"no such file", []string{"-c", filepath.Join(dir, "none.yaml")}, 1, nil, []string{"no such file"}},
		{"no -c", nil, 2, nil, []string{"-c FILE or -c DIR is needed", "see: sidecar validate --help"}},
		{"unknown flag", []string{"--nope"}, 2, nil, []string{"unknown flag: --nope"}},
		{"argument", []string{"-c", good, "more"}, 2, nil, []string{`unexpected argument "more"`}},
	} {
		stdout, stderr, code := run(t, append([]string{"validate"}, row.args...)...)
		if code != row.code {
			t.Errorf("%s: exit code %d\n%s%s", row.name, code, stdout, stderr)
		}
		for _, want := range row.stdout {
			if !strings.Contains(stdout, want) {
				t.Errorf("%s: stdout lacks %q:\n%s", row.name, want, stdout)
			}
		}
		for _, want := range row.stderr {
			if !strings.Contains(stderr, want) {
				t.Errorf("%s: stderr lacks %q:\n%s", row.name, want, stderr)
			}
		}
	}
}

// TestCommands: what the other subcommands print and how they end.
func TestCommands(t *testing.T) {
	t.Parallel()
	p := sidecartest.Run(t, "services: {svc: {endpoints: [127.0.0.1:1]}}")
	for _, row := range []struct {
		args []string
		code int
		want string // in stdout, or for a failure in stderr
	}{
		{[]string{"version"}, 0, "sidecar test (revision "},
		{[]string{"version", "-o", "json"}, 0, `"version": "test"`},
		{[]string{"schema"}, 0, `"$schema"`},
		{[]string{"status", "--admin", p.Admin}, 0, "ready     yes"},
		{[]string{"status", "--admin", p.Admin, "-o", "json"}, 0, `"endpoints_usable": 1`},
		{[]string{"status", "--admin", sidecartest.FreeAddress(t)}, 1, "the admin API does not answer"},
		{[]string{"events", "--admin", p.Admin}, 0, "  reload → ok: start: "},
		{[]string{"events", "--admin", p.Admin, "--kind", "reload", "-o", "json"}, 0, `"kind": "reload"`},
		{[]string{"events", "--follow", "--admin", sidecartest.FreeAddress(t)}, 1, "the admin API does not answer"},
		{[]string{"explain", "--admin", p.Admin, "http://svc/x"}, 0, "outcome    sent on"},
		{[]string{"explain", "--admin", p.Admin, "ftp://svc/x"}, 1, "http:// is expected"},
		{[]string{"explain", "-c", p.File, "ftp://svc/x"}, 2, "http:// is expected"},
		{[]string{"explain", "-c", "x.yaml", "--admin", "127.0.0.1:1", "http://svc/x"}, 2, "either -c FILE or --admin ADDR, not both"},
		{[]string{"explain", "-c", p.File}, 2, "the URL is missing"},
		{[]string{"explain", "-c", p.File, "-H", "nonsense", "http://svc/"}, 2, "NAME: VALUE is expected"},
		{[]string{"explain", "-c", p.File, "-o", "yaml", "http://svc/"}, 2, "text or json is expected"},
		{[]string{"run"}, 2, "-c FILE or -c DIR is needed"},
		{[]string{"valdate"}, 2, "did you mean validate?"},
		{[]string{"completion", "bash"}, 0, "bash completion"},
		{nil, 0, "Available Commands"},
	} {
		stdout, stderr, code := run(t, row.args...)
		text := stdout
		if row.code != 0 {
			text = stderr
		}
		if code != row.code || !strings.Contains(text, row.want) {
			t.Errorf("%q: exit code %d, want %d and %q\n%s%s", row.args, code, row.code, row.want, stdout, stderr)
		}
	}
	stdout, _, code := run(t, "drain", "--admin", p.Admin, "--wait", "20s")
	if code != 0 || stdout != "drained\n" {
		t.Errorf("drain: exit code %d, %q", code, stdout)
	}
	var v struct{ Ready bool }
	stdout, _, _ = run(t, "status", "--admin", p.Admin, "-o", "json")
	if decode(t, stdout, &v); v.Ready {
		t.Error("ready although drained")
	}
	if _, _, code := run(t, "quit", "--admin", p.Admin); code != 0 || p.Wait(t, patience) != 0 {
		t.Errorf("quit: exit code %d", code)
	}
}

// TestHelp: every subcommand shows an example.
func TestHelp(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"run", "validate", "explain", "status", "events", "simulate", "import", "drain", "quit", "version", "schema"} {
		stdout, _, code := run(t, name, "--help")
		if code != 0 || !strings.Contains(stdout, "Examples:\n  sidecar "+name) {
			t.Errorf("%s: exit code %d\n%s", name, code, stdout)
		}
	}
}

// TestNotHeard: a registry that was never heard is told by its reason, wherever somebody looks.
func TestNotHeard(t *testing.T) {
	t.Parallel()
	none := filepath.Join(t.TempDir(), "none.yaml")
	p := sidecartest.Run(t, `
registries: {lists: {file: {path: %q}}}
discovery: {ready_wait: 100ms, snapshot_dir: none}
services: {far: {from: lists}}`, none)
	stdout, _, _ := run(t, "status", "--admin", p.Admin)
	_, row, _ := strings.Cut(stdout, "NOT HEARD  OF SERVICES")
	for _, want := range []string{"\nlists ", " far ", none + ": no such file"} {
		if !strings.Contains(row, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	m := sidecartest.Dial(t, p.Outbound).Ask(t, get, "far")
	if want := "no_endpoints: service far: it has no endpoint, and nothing is heard from lists\n"; m.Status() != 503 || string(m.Body) != want {
		t.Errorf("%d %q, want %q", m.Status(), m.Body, want)
	}
	stdout, _, _ = run(t, "explain", "--admin", p.Admin, "http://far/")
	if want := "it has no endpoint, and nothing is heard from lists"; !strings.Contains(stdout, want) {
		t.Errorf("no %q in\n%s", want, stdout)
	}
}
