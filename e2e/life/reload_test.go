package life

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sidecar-mesh/sidecar/e2e/sidecartest"
)

// answering is a document whose service answers every request itself.
func answering(body string) string {
	return fmt.Sprintf(`services: {svc: {routes: [{respond: {status: 200, body: %q}}]}}`, body)
}

// listening puts the process's addresses before a document.
func listening(p *sidecartest.Process, document string) string {
	return fmt.Sprintf("listen: {outbound: %q, inbound: %q, admin: %q, health: %q, metrics: %q}\n%s\n",
		p.Outbound, p.Inbound, p.Admin, p.Health, p.Metrics, document)
}

// says waits until a kept-alive connection is answered with a body.
func says(t *testing.T, c *sidecartest.Conn, body string) {
	t.Helper()
	sidecartest.Eventually(t, patience, "it says "+body, func() bool {
		return string(c.Ask(t, get, "svc").Body) == body
	})
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, name string) {
	t.Helper()
	if err := os.Symlink(target, name+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

// TestReload: whichever way a file is changed, it is taken in; connections stay.
func TestReload(t *testing.T) {
	t.Parallel()
	p := sidecartest.Run(t, "%s", answering("one"))
	c := sidecartest.Dial(t, p.Outbound)
	says(t, c, "one")

	write(t, p.File, listening(p, answering("edited")))
	says(t, c, "edited")
	p.Write(t, answering("renamed"))
	says(t, c, "renamed")

	// As Kubernetes mounts a ConfigMap: the file is a link through ..data, which is swapped.
	dir := filepath.Dir(p.File)
	for _, version := range []string{"v1", "v2"} {
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, version, "sidecar.yaml"), listening(p, answering(version)))
	}
	link(t, "v1", filepath.Join(dir, "..data"))
	link(t, "..data/sidecar.yaml", p.File)
	says(t, c, "v1")
	link(t, "v2", filepath.Join(dir, "..data"))
	says(t, c, "v2")

	before := p.Metric(t, "sidecar_reloads_total", `result="ok"`)
	p.Signal(t, syscall.SIGHUP)
	sidecartest.Eventually(t, patience, "SIGHUP counts as a reload", func() bool {
		return p.Metric(t, "sidecar_reloads_total", `result="ok"`) == before+1
	})
	var v struct {
		Trigger  string
		Revision string
	}
	must(t, "GET", p.Admin, "/config", 200, &v)
	if v.Trigger != "SIGHUP" || len(v.Revision) != 12 {
		t.Errorf("%+v", v)
	}
	if c.Ask(t, get, "svc").Status() != 200 {
		t.Error("the connection did not live through it")
	}
}

type configShown struct {
	Revision   string
	LastFailed *struct {
		Trigger string
		Time    time.Time
		Errors  []struct {
			File, Field, Message, Text string
			Line, Column               int
		}
	} `json:"last_failed_reload"`
}

// TestReloadRefused: a bad file changes nothing, and metric, log and API say what is wrong, all of it.
func TestReloadRefused(t *testing.T) {
	t.Parallel()
	p := sidecartest.Run(t, "%s", answering("good"))
	c := sidecartest.Dial(t, p.Outbound)
	var v configShown
	must(t, "GET", p.Admin, "/config", 200, &v)
	revision := v.Revision
	p.Write(t, "services: {svc: {hots: [a], policy: {timeout: 5}}}")
	sidecartest.Eventually(t, patience, "the failure is shown", func() bool {
		must(t, "GET", p.Admin, "/config", 200, &v)
		return v.LastFailed != nil
	})
	if n := len(v.LastFailed.Errors); n != 2 || v.Revision != revision || v.LastFailed.Trigger != "file" || v.LastFailed.Time.IsZero() {
		t.Fatalf("%+v", v)
	}
	if e := v.LastFailed.Errors[0]; e.File != p.File || e.Line != 2 || e.Column != 18 || e.Field != "services.svc.hots" {
		t.Errorf("%+v", e)
	}
	sidecartest.Eventually(t, patience, "one failed reload is counted", func() bool {
		return p.Metric(t, "sidecar_reloads_total", `result="failed"`) == 1
	})
	p.Says(t, "services.svc.policy.timeout")
	lines := 0
	for line := range strings.Lines(p.Said()) {
		if strings.Contains(line, "to=failed") && strings.Contains(line, "services.svc.hots") && strings.Contains(line, "services.svc.policy.timeout") {
			lines++
		}
	}
	if lines != 1 {
		t.Errorf("%d lines of the log name both mistakes:\n%s", lines, p.Said())
	}
	says(t, c, "good")
	p.Write(t, answering("better"))
	says(t, c, "better")
	v = configShown{}
	must(t, "GET", p.Admin, "/config", 200, &v)
	if v.LastFailed != nil || v.Revision == revision {
		t.Errorf("after a good one: %+v", v)
	}
}

// TestReloadManyMistakes: however many there are, one line of the log has all.
func TestReloadManyMistakes(t *testing.T) {
	t.Parallel()
	p := sidecartest.Run(t, "%s", answering("good"))
	var b strings.Builder
	b.WriteString("services:\n")
	const mistakes = 100
	for i := range mistakes {
		fmt.Fprintf(&b, "  s%d: {nonsense%d: 1}\n", i, i)
	}
	p.Write(t, "%s", b.String())
	sidecartest.Eventually(t, patience, "a line with all of them", func() bool {
		for line := range strings.Lines(p.Said()) {
			if strings.Count(line, ".nonsense") == mistakes {
				return true
			}
		}
		return false
	})
	var v configShown
	must(t, "GET", p.Admin, "/config", 200, &v)
	if v.LastFailed == nil || len(v.LastFailed.Errors) != mistakes {
		t.Errorf("%+v", v.LastFailed)
	}
}

// TestReloadTakenPort: what cannot be opened refuses the whole configuration, whichever listener it is.
func TestReloadTakenPort(t *testing.T) {
	t.Parallel()
	taken := sidecartest.Answer(t, sidecartest.OK("ok"))
	p := sidecartest.Run(t, "%s", answering("good"))
	c := sidecartest.Dial(t, p.Outbound)
	for _, document := range []string{
		strings.Replace(listening(p, answering("bad")), p.Health, taken.Address, 1),
		listening(p, fmt.Sprintf(`services: {svc: {listen: %q, routes: [{respond: {status: 200, body: bad}}]}}`, taken.Address)),
	} {
		failed := p.Metric(t, "sidecar_reloads_total", `result="failed"`)
		write(t, p.File, document)
		sidecartest.Eventually(t, patience, "it is refused", func() bool {
			return p.Metric(t, "sidecar_reloads_total", `result="failed"`) == failed+1
		})
		says(t, c, "good")
		must(t, "GET", p.Health, "/ready", 200, nil)
	}
}

// TestReloadListeners: the listeners of the admin API follow their addresses.
func TestReloadListeners(t *testing.T) {
	t.Parallel()
	p := sidecartest.Run(t, "%s", answering("one"))
	admin, health := p.Admin, p.Health
	p.Admin, p.Health = sidecartest.FreeAddress(t), sidecartest.FreeAddress(t)
	p.Write(t, answering("two"))
	sidecartest.Eventually(t, patience, "the new addresses answer", func() bool {
		a, _ := call(t, "GET", p.Admin, "/ready", nil)
		h, _ := call(t, "GET", p.Health, "/ready", nil)
		return a == 200 && h == 200
	})
	sidecartest.Eventually(t, patience, "the old ones do not", func() bool { return sidecartest.Refuses(admin) && sidecartest.Refuses(health) })
	must(t, "GET", p.Metrics, "/metrics", 200, nil)
	if status, _ := call(t, "GET", p.Health, "/config", nil); status != 404 {
		t.Errorf("/config on listen.health: %d", status)
	}
}

// TestReloadAccessLog: the access log goes where the newest configuration says, and is opened again on SIGHUP.
func TestReloadAccessLog(t *testing.T) {
	t.Parallel()
	p := sidecartest.Run(t, "%s", answering("one"))
	file := filepath.Join(t.TempDir(), "access.log")
	p.Write(t, "telemetry: {access_log: {to: %q, format: text}}\nservices: {svc: {routes: [{respond: {status: 200, body: two}}]}}", "file:"+file)
	c := sidecartest.Dial(t, p.Outbound)
	says(t, c, "two")
	holds := func(name string) func() bool {
		return func() bool {
			c.Ask(t, get, "svc")
			text, _ := os.ReadFile(name)
			return strings.Contains(string(text), "service=svc")
		}
	}
	sidecartest.Eventually(t, patience, "the file has lines", holds(file))
	if err := os.Rename(file, file+".1"); err != nil {
		t.Fatal(err)
	}
	p.Signal(t, syscall.SIGHUP)
	sidecartest.Eventually(t, patience, "the new file has lines", holds(file))
}

// TestUnreadableToItsEnd: a file that never comes to an end (a pipe that somebody holds; a network file system that does not
// answer) keeps the process from reading its configuration again, and from nothing else: it serves, and it ends.
func TestUnreadableToItsEnd(t *testing.T) {
	t.Parallel()
	p := sidecartest.Run(t, "%s", answering("one")+"\nlimits: {drain_grace: 0s}")
	c := sidecartest.Dial(t, p.Outbound)
	says(t, c, "one")
	if err := syscall.Mkfifo(p.File+".new", 0o600); err != nil {
		t.Fatal(err)
	}
	held, err := os.OpenFile(p.File+".new", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := os.Rename(p.File+".new", p.File); err != nil {
		t.Fatal(err)
	}
	p.Signal(t, syscall.SIGHUP)
	if _, err := held.WriteString("services: "); err != nil {
		t.Fatal(err)
	}
	sidecartest.Eventually(t, 5*time.Second, "it reads what was written", func() bool { return unread(t, held) == 0 })
	says(t, c, "one")
	p.Signal(t, syscall.SIGTERM)
	if code := p.Wait(t, 15*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	p.Says(t, "ended without waiting any longer")
}

// unread is how much of what was written to a pipe nobody has read.
func unread(t *testing.T, pipe *os.File) int {
	t.Helper()
	n, err := unix.IoctlGetInt(int(pipe.Fd()), unix.TIOCINQ)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
