package doctest

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the last column of docs/governance.md anew")

const (
	governance = "docs/governance.md"
	maxProofs  = 5 // that a row names
)

var ruleID = regexp.MustCompile(`\b[SX]-[0-9]+\b`)

// proofs finds, by rule, what names it among the tests: functions, scripts of testdata, and scenarios.
func proofs(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	add := func(text, proof string) {
		for _, id := range ruleID.FindAllString(text, -1) {
			if !slices.Contains(all[id], proof) {
				all[id] = append(all[id], proof)
			}
		}
	}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case strings.HasSuffix(name, "_test.go"):
			return testsOf(name, add)
		case strings.Contains(name, "/testdata/") && strings.HasSuffix(name, ".txt"), strings.HasPrefix(name, "examples/scenarios/"):
			text, err := os.ReadFile(filepath.Join(root, name))
			add(string(text), "`"+name+"`")
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for id := range all {
		slices.Sort(all[id])
	}
	return all
}

// testsOf reports the text of each test function of a file, its comment included.
func testsOf(name string, add func(text, proof string)) error {
	src, err := os.ReadFile(filepath.Join(root, name))
	if err != nil || !ruleID.Match(src) {
		return err
	}
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, name, src, parser.ParseComments)
	if err != nil {
		return err
	}
	for _, decl := range f.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || !strings.HasPrefix(fn.Name.Name, "Test") && !strings.HasPrefix(fn.Name.Name, "Fuzz") {
			continue
		}
		begin := fn.Pos()
		if fn.Doc != nil {
			begin = fn.Doc.Pos()
		}
		add(string(src[files.Position(begin).Offset:files.Position(fn.End()).Offset]), "`"+name+"` "+fn.Name.Name)
	}
	return nil
}

// TestGovernance holds the table of docs/governance.md: each rule in it names what proves it, all of that exists and names
// the rule, and each knob is one that docs/config.md knows. -update writes the proofs anew.
func TestGovernance(t *testing.T) {
	text := pages(t)[governance]
	knobs := pages(t)["docs/config.md"]
	known := proofs(t)
	var out strings.Builder
	rows := 0
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 6 || !ruleID.MatchString(cells[1]) {
			out.WriteString(line)
			continue
		}
		rows++
		id := strings.TrimSpace(cells[1])
		for _, m := range quoted.FindAllStringSubmatch(cells[3], -1) {
			for _, word := range regexp.MustCompile(`[a-z_]{3,}`).FindAllString(m[1], -1) {
				if !strings.Contains(knobs, word) {
					t.Errorf("%s: %s: docs/config.md does not know %s", governance, id, word)
				}
			}
		}
		found := known[id]
		if len(found) == 0 {
			t.Errorf("%s: no test, script or scenario names %s", governance, id)
		}
		for _, proof := range strings.Split(strings.TrimSpace(cells[4]), ", ") {
			if !*update && !slices.Contains(found, proof) {
				t.Errorf("%s: %s: %q does not prove it any more (go test ./internal/doctest -update)", governance, id, proof)
			}
		}
		cells[4] = " " + strings.Join(found[:min(len(found), maxProofs)], ", ") + " "
		out.WriteString(strings.Join(cells, "|") + "\n")
	}
	if rows < 40 {
		t.Errorf("only %d rows were found", rows)
	}
	if *update {
		if err := os.WriteFile(filepath.Join(root, governance), []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
