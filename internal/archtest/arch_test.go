package archtest

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

var checks = map[string]func(*tree) []string{
	"layers":       checkLayers,
	"purity":       checkPurity,
	"borders":      checkBorders,
	"dependencies": checkDependencies,
	"comments":     checkComments,
	"names":        checkNames,
	"init":         checkInit,
	"sleep":        checkSleep,
	"paths":        checkPaths,
	"go version":   checkGoVersion,
}

// TestArchitecture holds the module to its rules.
func TestArchitecture(t *testing.T) {
	tree, err := parseTree(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	if len(tree.pkgs) < 5 || tree.texts["go.mod"] == "" {
		t.Fatalf("read only %d packages", len(tree.pkgs))
	}
	for name, check := range checks {
		t.Run(name, func(t *testing.T) {
			for _, violation := range check(tree) {
				t.Error(violation)
			}
		})
	}
}

// TestPlanted shows that each check finds what it is there for: each row plants files and says what must be found, or
// that nothing may be.
func TestPlanted(t *testing.T) {
	const imports = `import _ "` + module + "/"
	rows := []struct {
		check, name string
		files       map[string]string
		want        string // part of the one violation; "": none
	}{
		{"layers", "allowed", map[string]string{"snapshot/a.go": "package snapshot\n" + imports + `route"`}, ""},
		{"layers", "upwards", map[string]string{"route/a.go": "package route\n" + imports + `snapshot"`}, "route may not import snapshot"},
		{"layers", "engine to engine", map[string]string{"proxy/h1/a.go": "package h1\n" + imports + `proxy/h2"`}, "proxy/h1 may not import proxy/h2"},
		{"layers", "unknown package", map[string]string{"stuff/a.go": "package stuff"}, "stuff: not in the layer table"},
		{"layers", "unknown below proxy", map[string]string{"proxy/h9/a.go": "package h9"}, "proxy/h9: not in the layer table"},
		{"layers", "pattern key", map[string]string{"discovery/dns/a.go": "package dns\n" + imports + `discovery"`}, ""},
		{"layers", "pattern key, violation", map[string]string{"discovery/dns/a.go": "package dns\n" + imports + `proxy"`}, "discovery/dns may not import proxy"},
		{"layers", "pattern value", map[string]string{"proxy/a.go": "package proxy\n" + imports + `proxy/h1"`}, ""},
		{"layers", "test files are free", map[string]string{"route/a_test.go": "package route_test\n" + imports + `snapshot"`}, ""},
		{"layers", "the command", map[string]string{"route/a_test.go": "package route_test\n" + imports + `cmd/sidecar"`}, "nothing imports cmd/sidecar"},

		{"purity", "a decision", map[string]string{"route/a.go": "package route\nimport (\"net/netip\"; \"time\")\nfunc F(now time.Time, a netip.Addr) time.Time { return now.Add(time.Second) }"}, ""},
		{"purity", "clock", map[string]string{"balance/a.go": "package balance\nimport \"time\"\nvar T = time.Now()"}, "a.go:3: pure balance has time.Now"},
		{"purity", "clock by another name", map[string]string{"balance/a.go": "package balance\nimport clock \"time\"\nvar F = clock.Since"}, "has clock.Since"},
		{"purity", "dot import", map[string]string{"balance/a.go": "package balance\nimport . \"time\"\nvar T = Now()"}, "imports time namelessly"},
		{"purity", "goroutine", map[string]string{"resilience/a.go": "package resilience\nfunc F() { go F() }"}, "has a goroutine"},
		{"purity", "channel", map[string]string{"snapshot/a.go": "package snapshot\ntype T chan int"}, "has a channel"},
		{"purity", "send", map[string]string{"snapshot/a.go": "package snapshot\nfunc F(c C) { c <- 1 }"}, "has a send"},
		{"purity", "receive", map[string]string{"snapshot/a.go": "package snapshot\nfunc F(c C) { <-c }"}, "has a receive"},
		{"purity", "select", map[string]string{"proxy/sniff/a.go": "package sniff\nfunc F() { select {} }"}, "has a select"},
		{"purity", "waiting", map[string]string{"route/a.go": "package route\nimport \"sync\"\nvar W sync.WaitGroup"}, "has sync.WaitGroup"},
		{"purity", "locks are fine", map[string]string{"route/a.go": "package route\nimport \"sync\"\nvar M sync.Mutex"}, ""},
		{"purity", "random", map[string]string{"balance/a.go": "package balance\nimport \"math/rand/v2\"\nvar _ = rand.Int"}, "imports math/rand/v2"},
		{"purity", "context", map[string]string{"route/a.go": "package route\nimport _ \"context\""}, "imports context"},
		{"purity", "net", map[string]string{"route/a.go": "package route\nimport _ \"net/http\""}, "imports net/http"},
		{"purity", "os", map[string]string{"explain/a.go": "package explain\nimport _ \"os\""}, "imports os"},
		{"purity", "log", map[string]string{"explain/a.go": "package explain\nimport _ \"log/slog\""}, "imports log/slog"},
		{"purity", "metrics", map[string]string{"route/a.go": "package route\nimport _ \"github.com/prometheus/client_golang/prometheus\""}, "imports github.com/prometheus"},
		{"purity", "others may", map[string]string{"proxy/a.go": "package proxy\nimport \"time\"\nfunc F() { go F(); time.Now() }"}, ""},
		{"purity", "tests may", map[string]string{"route/a_test.go": "package route\nimport _ \"os\""}, ""},

		{"borders", "inside", map[string]string{"telemetry/a.go": "package telemetry\nimport _ \"github.com/prometheus/client_golang/prometheus\""}, ""},
		{"borders", "metrics", map[string]string{"admin/a.go": "package admin\nimport _ \"github.com/prometheus/client_golang/prometheus/promhttp\""}, "github.com/prometheus stops"},
		{"borders", "yaml", map[string]string{"admin/a.go": "package admin\nimport _ \"go.yaml.in/yaml/v3\""}, "go.yaml.in/yaml stops"},
		{"borders", "dns", map[string]string{"proxy/a.go": "package proxy\nimport _ \"github.com/miekg/dns\""}, "github.com/miekg/dns stops"},
		{"borders", "fsnotify", map[string]string{"config/a.go": "package config\nimport _ \"github.com/fsnotify/fsnotify\""}, "fsnotify stops"},
		{"borders", "cobra", map[string]string{"admin/a.go": "package admin\nimport _ \"github.com/spf13/cobra\""}, "cobra stops"},
		{"borders", "cobra at home", map[string]string{"cmd/sidecar/a.go": "package main\nimport _ \"github.com/spf13/cobra\""}, ""},
		{"borders", "go-cmp in code", map[string]string{"route/a.go": "package route\nimport _ \"github.com/google/go-cmp/cmp\""}, "go-cmp stops"},
		{"borders", "go-cmp in a test", map[string]string{"route/a_test.go": "package route\nimport _ \"github.com/google/go-cmp/cmp\""}, ""},

		{"dependencies", "unexplained", map[string]string{"go.mod": "require (\n\texample.org/m v1.0.0\n)", "a/a.go": "package a\nimport _ \"example.org/m/x\""}, "no line for example.org/m"},
		{"dependencies", "explained", map[string]string{"go.mod": "require example.org/m v1.0.0", "a/a.go": "package a\nimport _ \"example.org/m/x\"", "docs/dependencies.md": "| `example.org/m` |"}, ""},
		{"dependencies", "unused", map[string]string{"go.mod": "require example.org/m v1.0.0", "a/a.go": "package a"}, ""},

		{"comments", "good", map[string]string{"a/a.go": "// Package a is. Tests: tables.\npackage a", "a/b.go": "package a"}, ""},
		{"comments", "none", map[string]string{"a/a.go": "package a"}, "has 0 package comments"},
		{"comments", "two", map[string]string{"a/a.go": "// Package a is tested.\npackage a", "a/b.go": "// Package a is tested.\npackage a"}, "has 2 package comments"},
		{"comments", "of another", map[string]string{"a/a.go": "// Package b is tested.\npackage a"}, "does not begin"},
		{"comments", "tests unsaid", map[string]string{"a/a.go": "// Package a is.\npackage a"}, "how it is tested"},
		{"comments", "only test files", map[string]string{"a/a_test.go": "// Package a is tests.\npackage a"}, ""},

		{"names", "folder", map[string]string{"proxy/util/x/a.go": "package x"}, `"util" says nothing`},
		{"names", "package", map[string]string{"x/a.go": "package helpers"}, `"helpers" says nothing`},
		{"init", "init", map[string]string{"a/a.go": "package a\nfunc init() {}"}, "has init()"},
		{"init", "method", map[string]string{"a/a.go": "package a\nfunc (T) init() {}"}, ""},
		{"sleep", "test", map[string]string{"a/a_test.go": "package a\nimport \"time\"\nfunc F() { time.Sleep(1) }"}, "a_test.go:3: sleeps"},
		{"sleep", "bubble", map[string]string{"a/a_test.go": "package a\nfunc F() { synctest.Test(t, func(t T) { time.Sleep(1) }) }"}, ""},
		{"sleep", "bubble of another function", map[string]string{"a/a_test.go": "package a\nfunc bubble(f F) { synctest.Test(t, f) }\nfunc F() { bubble(func() { time.Sleep(1) }) }"}, ""},
		{"sleep", "within a bubble", map[string]string{"a/a_test.go": "package a\nfunc F() { time.Sleep(1); synctest.Wait() }"}, ""},
		{"sleep", "beside a bubble", map[string]string{"a/a_test.go": "package a\nfunc F() { synctest.Test(t, f); time.Sleep(1) }"}, "sleeps"},
		{"sleep", "code", map[string]string{"a/a.go": "package a\nfunc F() { time.Sleep(1) }"}, ""},
		{"paths", "somebody's home", map[string]string{"docs/a.md": "see\n /ho" + "me/jo/x.go"}, "a.md:2: path of one machine"},
		{"paths", "script", map[string]string{"x.sh": "cd /ro" + "ot/x"}, "path of one machine"},
		{"paths", "relative, URL, usual places", map[string]string{"x.sh": "cd ./work/x; curl http://a/work/x; ls /usr/lib"}, ""},
		{"go version", "agrees", map[string]string{"go.mod": "go 1.26.0", "Dockerfile": "FROM golang:1.26-alpine", "t/go.mod": "go 1.26.0"}, ""},
		{"go version", "image", map[string]string{"go.mod": "go 1.26.0", "Dockerfile": "FROM golang:1.25"}, "Dockerfile: Go 1.25"},
		{"go version", "workflow", map[string]string{"go.mod": "go 1.26.0", ".github/workflows/ci.yml": "go-version: '1.24'"}, "ci.yml: Go 1.24"},
		{"go version", "nested module", map[string]string{"go.mod": "go 1.26.0", "t/go.mod": "go 1.25.0"}, "t/go.mod: Go 1.25"},
	}
	planted := map[string]bool{}
	for _, row := range rows {
		planted[row.check] = planted[row.check] || row.want != ""
		t.Run(row.check+"/"+row.name, func(t *testing.T) {
			files := fstest.MapFS{}
			for name, src := range row.files {
				files[name] = &fstest.MapFile{Data: []byte(src)}
			}
			tree, err := parseTree(files)
			if err != nil {
				t.Fatal(err)
			}
			found := checks[row.check](tree)
			if row.want == "" && len(found) > 0 {
				t.Errorf("found %q, want nothing", found)
			}
			if row.want != "" && (len(found) != 1 || !strings.Contains(found[0], row.want)) {
				t.Errorf("found %q, want one with %q", found, row.want)
			}
		})
	}
	for name := range checks {
		if !planted[name] {
			t.Errorf("nothing planted for %q", name)
		}
	}
}
