package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
)

// checkLayers finds imports of ours that the layer table does not allow, and packages that it does not know.
func checkLayers(t *tree) (bad []string) {
	for _, dir := range t.folders() {
		allowed, known := layerOf(dir)
		if !known {
			bad = append(bad, dir+": not in the layer table")
			continue
		}
		for _, f := range t.pkgs[dir] {
			t.imports(f, func(p, _, at string) {
				folder, isOurs := ours(p)
				if !isOurs {
					return
				}
				if strings.HasPrefix(folder, "cmd/") {
					bad = append(bad, fmt.Sprintf("%s: nothing imports %s", at, folder))
				} else if !f.test && !matchesAny(allowed, folder) {
					bad = append(bad, fmt.Sprintf("%s: %s may not import %s", at, dir, folder))
				}
			})
		}
	}
	return bad
}

func layerOf(dir string) (allowed []string, known bool) {
	row, known := layers[dir]
	if !known {
		row, known = layers[path.Dir(dir)+"/*"]
	}
	return strings.Fields(row), known
}

// checkPurity finds what a pure package may not have: the world in its imports, clocks, goroutines and channels.
func checkPurity(t *tree) (bad []string) {
	for _, dir := range pure {
		for _, f := range t.pkgs[dir] {
			if f.test {
				continue
			}
			names := map[string]string{} // of a package in this file → its import path
			t.imports(f, func(p, name, at string) {
				names[name] = p
				if below(worldly, p) && !slices.Contains(harmless, p) {
					bad = append(bad, fmt.Sprintf("%s: pure %s imports %s", at, dir, p))
				}
				if name == "." {
					bad = append(bad, fmt.Sprintf("%s: pure %s imports %s namelessly", at, dir, p))
				}
			})
			ast.Inspect(f.ast, func(n ast.Node) bool {
				if what := impurity(n, names); what != "" {
					bad = append(bad, fmt.Sprintf("%s: pure %s has %s", t.at(n), dir, what))
				}
				return true
			})
		}
	}
	return bad
}

func impurity(n ast.Node, names map[string]string) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "a goroutine"
	case *ast.ChanType:
		return "a channel"
	case *ast.SendStmt:
		return "a send"
	case *ast.SelectStmt:
		return "a select"
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			return "a receive"
		}
	case *ast.SelectorExpr:
		if x, ok := n.X.(*ast.Ident); ok && slices.Contains(worldlyNames[names[x.Name]], n.Sel.Name) {
			return x.Name + "." + n.Sel.Name
		}
	}
	return ""
}

// below tells whether an import path is one of roots or below one.
func below(roots []string, p string) bool {
	return slices.ContainsFunc(roots, func(r string) bool { return p == r || strings.HasPrefix(p, r+"/") })
}

// checkBorders finds third-party packages outside the packages that may know them.
func checkBorders(t *tree) (bad []string) {
	for _, dir := range t.folders() {
		for _, f := range t.pkgs[dir] {
			t.imports(f, func(p, _, at string) {
				for border, inside := range borders {
					if !below([]string{border}, p) || matchesAny(strings.Fields(inside), dir) {
						continue
					}
					if f.test && slices.Contains(testOnly, border) {
						continue
					}
					bad = append(bad, fmt.Sprintf("%s: %s stops at its border: %q", at, border, inside))
				}
			})
		}
	}
	return bad
}

// checkDependencies finds direct dependencies that docs/dependencies.md does not explain.
func checkDependencies(t *tree) (bad []string) {
	var modules []string
	for line := range strings.Lines(t.texts["go.mod"]) {
		if words := strings.Fields(strings.TrimPrefix(line, "require ")); len(words) > 1 && strings.Contains(words[0], ".") {
			modules = append(modules, words[0])
		}
	}
	explained := t.texts["docs/dependencies.md"]
	seen := map[string]bool{}
	for _, dir := range t.folders() {
		for _, f := range t.pkgs[dir] {
			t.imports(f, func(p, _, at string) {
				for _, m := range modules {
					if below([]string{m}, p) && !seen[m] && !strings.Contains(explained, "`"+m+"`") {
						seen[m] = true
						bad = append(bad, fmt.Sprintf("%s: docs/dependencies.md has no line for %s", at, m))
					}
				}
			})
		}
	}
	return bad
}

// checkComments finds packages without exactly one package comment, or with one that does not say how they are tested.
func checkComments(t *tree) (bad []string) {
	for _, dir := range t.folders() {
		var docs []string
		name, onlyTests := "", !slices.ContainsFunc(t.pkgs[dir], func(f *goFile) bool { return !f.test })
		for _, f := range t.pkgs[dir] {
			if f.test && !onlyTests {
				continue
			}
			name = strings.TrimSuffix(f.ast.Name.Name, "_test")
			if f.ast.Doc != nil {
				docs = append(docs, f.ast.Doc.Text())
			}
		}
		switch {
		case len(docs) != 1:
			bad = append(bad, fmt.Sprintf("%s: has %d package comments, wants one", dir, len(docs)))
		case name != "main" && !strings.HasPrefix(docs[0], "Package "+name+" "):
			bad = append(bad, fmt.Sprintf("%s: its comment does not begin with %q", dir, "Package "+name))
		case !strings.Contains(strings.ToLower(docs[0]), "test"):
			bad = append(bad, dir+": its comment does not say how it is tested")
		}
	}
	return bad
}

// checkNames finds package names that say nothing.
func checkNames(t *tree) (bad []string) {
	for _, dir := range t.folders() {
		for _, word := range strings.Split(dir, "/") {
			if slices.Contains(emptyNames, word) {
				bad = append(bad, fmt.Sprintf("%s: the name %q says nothing", dir, word))
			}
		}
		for _, f := range t.pkgs[dir] {
			if slices.Contains(emptyNames, f.ast.Name.Name) {
				bad = append(bad, fmt.Sprintf("%s: the name %q says nothing", f.path, f.ast.Name.Name))
			}
		}
	}
	return bad
}

// checkInit finds init functions: what exists is written out in cmd/sidecar.
func checkInit(t *tree) (bad []string) {
	for _, dir := range t.folders() {
		for _, f := range t.pkgs[dir] {
			for _, d := range f.ast.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
					bad = append(bad, t.at(fn)+": has init()")
				}
			}
		}
	}
	return bad
}

// checkSleep finds tests that sleep. In a synctest bubble time is virtual, so sleeping is exact and free there: in what is
// passed to synctest.Test or to a function that calls it, and in a function that calls synctest.Wait.
func checkSleep(t *tree) (bad []string) {
	for _, dir := range t.folders() {
		bubbles := map[string]bool{} // functions of the package that call synctest.Test
		for _, f := range t.pkgs[dir] {
			for _, d := range f.ast.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && f.test {
					bubbles[fn.Name.Name] = calls(fn, "synctest", "Test")
				}
			}
		}
		for _, f := range t.pkgs[dir] {
			if !f.test {
				continue
			}
			ast.Inspect(f.ast, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					return !calls(n, "synctest", "Wait")
				case *ast.CallExpr:
					if fn, ok := n.Fun.(*ast.Ident); (ok && bubbles[fn.Name]) || isName(n.Fun, "synctest", "Test") {
						return false
					}
					if isName(n.Fun, "time", "Sleep") {
						bad = append(bad, t.at(n)+": sleeps; wait for the event, or use synctest")
					}
				}
				return true
			})
		}
	}
	return bad
}

// calls tells whether fn calls pkg.name.
func calls(fn *ast.FuncDecl, pkg, name string) (found bool) {
	ast.Inspect(fn, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		found = found || (ok && isName(call.Fun, pkg, name))
		return !found
	})
	return found
}

func isName(e ast.Expr, pkg, name string) bool {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != name {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == pkg
}

// machinePath fits absolute paths of somebody's machine.
var machinePath = regexp.MustCompile(`(?m)(?:^|[\s"'` + "`" + `(=:])(/(?:work|root|Users/\w+|home/\w+)/[\w./-]*)`)

// checkPaths finds paths that exist on one machine only.
func checkPaths(t *tree) (bad []string) {
	for name, text := range t.texts {
		for _, m := range machinePath.FindAllStringSubmatchIndex(text, -1) {
			line := 1 + strings.Count(text[:m[2]], "\n")
			bad = append(bad, fmt.Sprintf("%s:%d: path of one machine: %s", name, line, text[m[2]:m[3]]))
		}
	}
	slices.Sort(bad)
	return bad
}

var (
	goDirective = regexp.MustCompile(`(?m)^go (\d+\.\d+)`)
	goMention   = regexp.MustCompile(`(?m)(?:golang:|go-version: *["']?)(\d+\.\d+)`)
)

// checkGoVersion finds nested modules, Dockerfiles and workflows with another Go than go.mod's.
func checkGoVersion(t *tree) (bad []string) {
	main := goDirective.FindStringSubmatch(t.texts["go.mod"])
	if main == nil {
		return []string{"go.mod: no go directive"}
	}
	for name, text := range t.texts {
		var found [][]string
		switch base := path.Base(name); {
		case base == "go.mod":
			found = goDirective.FindAllStringSubmatch(text, -1)
		case strings.HasPrefix(base, "Dockerfile"), strings.HasPrefix(name, ".github/"), strings.HasPrefix(name, ".ci/"):
			found = goMention.FindAllStringSubmatch(text, -1)
		}
		for _, m := range found {
			if m[1] != main[1] {
				bad = append(bad, fmt.Sprintf("%s: Go %s, but go.mod says %s", name, m[1], main[1]))
			}
		}
	}
	slices.Sort(bad)
	return bad
}
