// Package doctest holds the documentation to what is there: examples load and compile, paths and links lead somewhere, and
// every reason of a refusal is explained. It has nothing but tests.
package doctest

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/script"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

const root = "../.."

// pages returns the documentation by path: what stands at the top, in docs and below, and the page of the benchmark.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	add := func(name string) {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(data)
	}
	for _, pattern := range []string{"*.md", "bench/*.md"} {
		names, err := fs.Glob(os.DirFS(root), pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			add(name)
		}
	}
	err := fs.WalkDir(os.DirFS(root), "docs", func(name string, _ fs.DirEntry, err error) error {
		if err == nil && path.Ext(name) == ".md" {
			add(name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 15 {
		t.Fatalf("only %d pages were found", len(all))
	}
	return all
}

// fence is a block of a page.
type fence struct {
	kind, text string
	line       int
}

// fences takes the blocks out of a page, and returns the rest of it line by line.
func fences(text string) (blocks []fence, rest []string) {
	in := -1
	n := 0
	for line := range strings.Lines(text) {
		n++
		kind, mark := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case mark && in < 0:
			in = len(blocks)
			blocks = append(blocks, fence{kind: strings.TrimSpace(kind), line: n})
		case mark:
			in = -1
		case in >= 0:
			blocks[in].text += line
			rest = append(rest, "")
			continue
		}
		if mark {
			line = ""
		}
		rest = append(rest, line)
	}
	return blocks, rest
}

// TestExamples loads and compiles every block that is marked yaml: they are whole documents. What is none is marked text.
func TestExamples(t *testing.T) {
	examples := 0
	for name, text := range pages(t) {
		blocks, _ := fences(text)
		for _, b := range blocks {
			if b.kind == "yaml" {
				examples++
				compiles(t, fmt.Sprintf("%s: the example below line %d", name, b.line), b.text)
			}
		}
	}
	if examples < 30 {
		t.Errorf("only %d examples were found", examples)
	}
}

// TestConfigurations loads and compiles the configurations of examples, in an environment that sets nothing. Scenarios have a
// test of their own.
func TestConfigurations(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "examples/consul/*.yaml"))
	if err != nil || len(files) < 2 {
		t.Fatalf("%v %v", files, err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		compiles(t, strings.TrimPrefix(filepath.ToSlash(name), root+"/"), string(text))
	}
}

// compiles wants a document to load without a warning, and to compile.
func compiles(t *testing.T, name, text string) {
	t.Helper()
	cfg, err := config.LoadBytes(name, []byte(text), config.RankFile, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	for i := range cfg.Warnings {
		t.Errorf("%s: %v", name, cfg.Warnings[i])
	}
	mesh := &config.Mesh{Config: cfg, Endpoints: map[string]*config.EndpointSet{}}
	for service, s := range cfg.Services {
		mesh.Endpoints[service] = &config.EndpointSet{List: s.Endpoints}
	}
	if _, err := snapshot.Compile(mesh, nil, snapshot.Options{Scripts: script.New(script.Options{})}); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

var (
	quoted   = regexp.MustCompile("`([^`\n]+)`")
	written  = []string{"bench/results/latest.md", "bench/results/latest.json"} // by a make target
	pathlike = regexp.MustCompile(`^[\w.*-]+(/[\w.*-]+)*/?$`)
)

// TestPaths wants every path in backticks to exist. A path is what begins with a folder of the repository, or ends like a
// file of source.
func TestPaths(t *testing.T) {
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	folders := map[string]bool{}
	for _, e := range entries {
		if name := e.Name(); e.IsDir() && name != "bin" && !strings.HasPrefix(name, ".") {
			folders[name] = true
		}
	}
	checked := 0
	for page, text := range pages(t) {
		_, lines := fences(text)
		for n, line := range lines {
			for _, m := range quoted.FindAllStringSubmatch(line, -1) {
				name := strings.TrimSuffix(m[1], "/")
				first, _, deep := strings.Cut(name, "/")
				ours := deep && (folders[first] || slices.Contains([]string{".go", ".sh"}, path.Ext(name)))
				if !ours || slices.Contains(written, name) || !pathlike.MatchString(m[1]) {
					continue
				}
				checked++
				found, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(name)))
				if err != nil || len(found) == 0 {
					t.Errorf("%s:%d: %s does not exist", page, n+1, m[1])
				}
			}
		}
	}
	if checked < 50 {
		t.Errorf("only %d paths were found", checked)
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`^#+ +(.+?)\s*$`)
	noSlug  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// TestLinks wants every relative link to lead to a file, and to a heading where it names one.
func TestLinks(t *testing.T) {
	all := pages(t)
	headings := map[string]map[string]bool{}
	for name, text := range all {
		headings[name] = map[string]bool{}
		_, lines := fences(text)
		for _, line := range lines {
			if m := heading.FindStringSubmatch(line); m != nil {
				slug := noSlug.ReplaceAllString(strings.ToLower(m[1]), "")
				headings[name][strings.ReplaceAll(slug, " ", "-")] = true
			}
		}
	}
	checked := 0
	for page, text := range all {
		_, lines := fences(text)
		for n, line := range lines {
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				if strings.Contains(m[1], "://") {
					continue
				}
				checked++
				file, anchor, _ := strings.Cut(m[1], "#")
				target := page
				if file != "" {
					target = path.Join(path.Dir(page), file)
				}
				if _, err := os.Stat(filepath.Join(root, target)); err != nil {
					t.Errorf("%s:%d: %s leads nowhere", page, n+1, m[1])
				} else if anchor != "" && !headings[target][anchor] {
					t.Errorf("%s:%d: %s: no such heading", page, n+1, m[1])
				}
			}
		}
	}
	if checked < 50 {
		t.Errorf("only %d links were found", checked)
	}
}

// TestReasons wants every reason that a caller may see to be explained, and that it says which are not given yet.
func TestReasons(t *testing.T) {
	text := pages(t)["docs/troubleshooting.md"]
	for r := resilience.None + 1; r < resilience.Reasons; r++ {
		if !strings.Contains(text, "`"+r.String()+"`") {
			t.Errorf("docs/troubleshooting.md does not explain %s", r)
		}
	}
}

var eventKind = regexp.MustCompile(`(?m)^\tEvent\w+ += "(\w+)"`)

// TestEvents wants every kind of event to be explained.
func TestEvents(t *testing.T) {
	src, err := os.ReadFile(filepath.Join(root, "telemetry/events.go"))
	if err != nil {
		t.Fatal(err)
	}
	text := pages(t)["docs/admin.md"]
	kinds := eventKind.FindAllSubmatch(src, -1)
	for _, m := range kinds {
		if !strings.Contains(text, "`"+string(m[1])+"`") {
			t.Errorf("docs/admin.md does not explain the event %s", m[1])
		}
	}
	if len(kinds) < 13 {
		t.Errorf("only %d kinds were found", len(kinds))
	}
}
