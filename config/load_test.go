package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew")

// testEnv are the variables that the files under testdata use.
func testEnv(name string) (string, bool) {
	v, ok := map[string]string{"PORT": "8080", "EMPTY": ""}[name]
	return v, ok
}

func noEnv(string) (string, bool) { return "", false }

// parseText loads text as a local file of that name.
func parseText(t *testing.T, text string) *Config {
	t.Helper()
	c, err := LoadBytes("test.yaml", []byte(text), RankFile, testEnv)
	if err != nil {
		t.Fatalf("%v\nin\n%s", err, text)
	}
	return c
}

func testdata(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no file like %s: %v", pattern, err)
	}
	return files
}

// golden compares with a file under testdata, or writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for _, line := range gotLines {
		if !slices.Contains(wantLines, line) {
			t.Errorf("%s lacks (go test ./config -update writes it)\n%s", path, line)
		}
	}
	for _, line := range wantLines {
		if !slices.Contains(gotLines, line) {
			t.Errorf("%s has, and nothing said\n%s", path, line)
		}
	}
}

func TestSmallFile(t *testing.T) {
	c, err := Load([]string{"testdata/small.yaml"}, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	s := c.Services["catalog"]
	if c.Node.Service != "shop" || len(s.Endpoints) != 2 || s.Endpoints[1].Address != "127.0.0.1:8082" || s.Hosts[0] != "catalog" {
		t.Errorf("got node %+v, service %+v", c.Node, s)
	}
	p := c.ServicePolicy(s)
	if p.Timeout.Value != time.Second || p.Timeout.From.String() != "testdata/small.yaml:5:23" {
		t.Errorf("timeout %v from %s", p.Timeout.Value, p.Timeout.From)
	}
	if p.Retry.Count.Value != 1 || p.ConnectTimeout.Value != time.Second || p.ConnectTimeout.From.String() != "built in" {
		t.Errorf("retry %+v, connect %+v", p.Retry.Count, p.ConnectTimeout)
	}
	if c.Listen.Outbound != "127.0.0.1:15001" || len(c.Warnings) != 0 {
		t.Errorf("listen %+v, warnings %v", c.Listen, c.Warnings)
	}
}

// TestBadFiles holds the text of every mistake in testdata/*.bad.* to bad.golden.
func TestBadFiles(t *testing.T) {
	var b strings.Builder
	for _, f := range testdata(t, "*.bad.*") {
		_, err := Load([]string{f}, testEnv)
		var all Errors
		if !errors.As(err, &all) {
			t.Fatalf("%s: got %v, want Errors", f, err)
		}
		b.WriteString(strings.ReplaceAll(all.Error(), "testdata/", "") + "\n\n")
	}
	golden(t, "bad.golden", b.String())
}

// TestNotSupportedYet holds the exact list of what the language has and this version refuses.
func TestNotSupportedYet(t *testing.T) {
	_, err := Load([]string{"testdata/later.yaml"}, noEnv)
	var all Errors
	if !errors.As(err, &all) {
		t.Fatalf("got %v", err)
	}
	var b strings.Builder
	for _, e := range all {
		if !strings.Contains(e.Msg, "not supported yet") {
			t.Errorf("another mistake: %v", e)
		}
		b.WriteString(strings.ReplaceAll(e.Error(), "testdata/", "") + "\n")
	}
	golden(t, "later.golden", b.String())
}

// TestWarnings: what is allowed, yet hardly meant: retries of what may not be done twice among it.
func TestWarnings(t *testing.T) {
	c, err := Load([]string{"testdata/doubts.yaml"}, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "doubts.golden", strings.ReplaceAll(Errors(c.Warnings).Error(), "testdata/", "")+"\n")
}

// TestPublishedHasEffect: what is published for callers is not told to have no effect.
func TestPublishedHasEffect(t *testing.T) {
	c, err := LoadBytes("a.yaml", []byte(`
registries: {main: {consul: {address: "127.0.0.1:6"}}}
config_center: {consul: {registry: main}}
inbound: [{service: a, app: "127.0.0.1:5", policy: {lb: random}, register: {to: main, publish_policy: service}}]
`), RankFile, noEnv)
	if err != nil || len(c.Warnings) > 0 {
		t.Errorf("%v %v", err, c.Warnings)
	}
}
