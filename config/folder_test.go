package config

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// folder writes files into a new folder.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFolderIsAUnion(t *testing.T) {
	dir := folder(t, map[string]string{
		"a.yaml":       "node: {service: shop}\nservices: {a: {from: main}}\nregistries: {main: {dns: {}}}\n",
		"b.yml":        "node: {zone: z}\nservices: {b: {endpoints: [b:1], policy: {use: p}}}\n",
		"c.json":       `{"policies": {"p": {"timeout": "1s"}}, "defaults": {"use": "p"}}`,
		"d.json.bak":   "not read",
		".e.yaml":      "not read",
		"sub/f.yaml":   "not: read",
		"..data/g.yml": "not: read",
	})
	c, err := Load([]string{dir}, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	if c.Node.Service != "shop" || c.Node.Zone != "z" || len(c.Services) != 2 || c.Policies["p"] == nil {
		t.Errorf("got %+v", c)
	}
}

func TestFolderOfLinks(t *testing.T) { // as a ConfigMap is mounted
	dir := folder(t, map[string]string{"..2029/a.yaml": "node: {service: shop}\n"})
	for link, to := range map[string]string{"..data": "..2029", "a.yaml": "..data/a.yaml"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Load([]string{dir}, noEnv)
	if err != nil || c.Node.Service != "shop" {
		t.Errorf("got %v, %v", c, err)
	}
}

func TestGivenTwice(t *testing.T) {
	dir := folder(t, map[string]string{
		"a.yaml": "services:\n  x: {endpoints: [a:1]}\nnode: {zone: z}\ninbound: [{service: i, app: \"a:1\"}]\n",
		"b.yaml": "services:\n  y: {endpoints: [a:1]}\n  x: {endpoints: [b:1]}\nnode: {zone: y}\ninbound: []\n",
		"c.yaml": "",
	})
	_, err := Load([]string{dir}, noEnv)
	want := strings.ReplaceAll(`DIR/b.yaml:3:3: services.x: given twice, first at DIR/a.yaml:2:3
DIR/b.yaml:4:8: node.zone: given twice, first at DIR/a.yaml:3:8
DIR/b.yaml:5:1: inbound: given twice, first at DIR/a.yaml:4:1
DIR/c.yaml:1:1: the document is empty`, "DIR", dir)
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestUnreadable(t *testing.T) {
	empty := t.TempDir()
	for path, want := range map[string]string{
		"/nowhere/at/all.yaml": "/nowhere/at/all.yaml: not readable: no such file or directory",
		empty:                  empty + ": the folder holds no *.yaml, *.yml or *.json",
	} {
		if _, err := Load([]string{path}, noEnv); err == nil || err.Error() != want {
			t.Errorf("%s: got %v", path, err)
		}
	}
	if _, err := Load(nil, noEnv); err == nil {
		t.Error("no path is no error")
	}
}

// A pipe is read to its end, as of a shell's <(…); one that nobody writes to is empty, and not waited for.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe.yaml")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load([]string{path}, noEnv); err == nil || err.Error() != path+":1:1: the document is empty" {
		t.Errorf("got %v", err)
	}
	both, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := both.WriteString("node: {service: shop}\n"); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(path, os.O_RDONLY, 0) // keeps what was written while the writer goes
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := both.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := Load([]string{path}, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	if c.Node.Service != "shop" {
		t.Errorf("got %+v", c.Node)
	}
}

// A file that cannot be read must not make the references into it mistakes of the others.
func TestOneUnreadableOfMany(t *testing.T) {
	dir := folder(t, map[string]string{"a.yaml": "services: {a: {from: main}}\n", "b.yaml": "registries: {main: {dns: {}}\n"})
	_, err := Load([]string{dir}, noEnv)
	if err == nil || strings.Count(err.Error(), "\n") != 0 || !strings.Contains(err.Error(), "b.yaml:") {
		t.Errorf("got %v", err)
	}
}

func TestEnvironmentOfTheNode(t *testing.T) {
	env := map[string]string{
		"SIDECAR_SERVICE": "s", "SIDECAR_ID": "i", "SIDECAR_GROUP": "g", "SIDECAR_VERSION": "v", "SIDECAR_ZONE": "z",
		"SIDECAR_REGION": "r", "SIDECAR_TENANT": "t", "SIDECAR_ENVIRONMENT": "e",
	}
	lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
	c, err := LoadBytes("x", []byte("node: {service: file, zone: file}\ninbound: [{app: \"127.0.0.1:1\"}]"), RankFile, lookup)
	if err != nil {
		t.Fatal(err)
	}
	want := Node{Service: "s", ID: "i", Group: "g", Version: "v", Zone: "z", Region: "r", Tenant: "t", Environment: "e"}
	if got := c.Node; got.Service != want.Service || got.ID != want.ID || got.Group != want.Group || got.Version != want.Version ||
		got.Zone != want.Zone || got.Region != want.Region || got.Tenant != want.Tenant || got.Environment != want.Environment {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if c.Inbound[0].Service != "s" {
		t.Errorf("inbound %+v", c.Inbound[0])
	}
	env["SIDECAR_ZONE"] = ""
	if c, err = LoadBytes("x", []byte("node: {zone: file}"), RankFile, lookup); err != nil || c.Node.Zone != "file" {
		t.Errorf("an empty variable counts: %+v, %v", c, err)
	}
}

func TestFill(t *testing.T) {
	env := func(name string) (string, bool) {
		v, ok := map[string]string{"A": "1", "NONE": "", "R": "${A}"}[name]
		return v, ok
	}
	for in, want := range map[string]string{
		"${A}": "1", "x${A}y${A}": "x1y1", "${B:-d}": "d", "${B:-}": "", "${NONE:-d}": "d", "${NONE}": "",
		"$${A}": "${A}", "$$${A}": "$${A}", "$A": "$A", "a$": "a$", "${R}": "${A}", "${B:-a:-b}": "a:-b",
	} {
		if got, problem := fill(in, env); got != want || problem != "" {
			t.Errorf("%s: got %q, %s; want %q", in, got, problem, want)
		}
	}
	for _, in := range []string{"${B}", "${", "${A", "${}", "${A-b}", "${A:b}", "${ A}"} {
		if got, problem := fill(in, env); problem == "" {
			t.Errorf("%s: got %q, want a problem", in, got)
		}
	}
}
