package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/sidecar-mesh/sidecar"

// tree is the source of a module.
type tree struct {
	fset  *token.FileSet
	pkgs  map[string][]*goFile // by folder, "." the root
	texts map[string]string    // every small text file, by path
}

// goFile is one parsed Go file.
type goFile struct {
	path string
	test bool
	ast  *ast.File
}

// parseTree reads all Go and text files of fsys but those of nested modules, testdata and hidden folders; of the hidden
// ones .github and .ci are read.
func parseTree(fsys fs.FS) (*tree, error) {
	t := &tree{fset: token.NewFileSet(), pkgs: map[string][]*goFile{}, texts: map[string]string{}}
	return t, fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if d.IsDir() {
			hidden := strings.HasPrefix(base, ".") && name != "." && base != ".github" && base != ".ci"
			if hidden || name == "bin" || base == "node_modules" {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || !isText(base) {
			return nil
		}
		src, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		t.texts[name] = string(src)
		if path.Ext(name) != ".go" || strings.Contains("/"+name, "/testdata/") || inNestedModule(fsys, name) {
			return nil
		}
		file, err := parser.ParseFile(t.fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := path.Dir(name)
		t.pkgs[dir] = append(t.pkgs[dir], &goFile{path: name, test: strings.HasSuffix(name, "_test.go"), ast: file})
		return nil
	})
}

// isText tells by its name whether a file is source, script or documentation.
func isText(base string) bool {
	switch path.Ext(base) {
	case ".go", ".mod", ".md", ".sh", ".py", ".yml", ".yaml", ".txt", ".tmpl", ".html", ".js", ".css", ".service":
		return true
	}
	return base == "Makefile" || strings.HasPrefix(base, "Dockerfile") || base == "run"
}

func inNestedModule(fsys fs.FS, name string) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if _, err := fs.Stat(fsys, path.Join(dir, "go.mod")); err == nil {
			return true
		}
	}
	return false
}

// folders lists the folders of packages in order.
func (t *tree) folders() []string {
	dirs := make([]string, 0, len(t.pkgs))
	for dir := range t.pkgs {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	return dirs
}

// at names a place in the source.
func (t *tree) at(n ast.Node) string {
	p := t.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

// imports calls yield for each import of f: its path, the name it goes by in the file, and its place.
func (t *tree) imports(f *goFile, yield func(importPath, name, at string)) {
	for _, spec := range f.ast.Imports {
		p, _ := strconv.Unquote(spec.Path.Value)
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		} else if isVersion(name) {
			name = path.Base(path.Dir(p))
		}
		yield(p, name, t.at(spec))
	}
}

// isVersion tells a module's major version suffix such as v2.
func isVersion(s string) bool {
	_, err := strconv.Atoi(strings.TrimPrefix(s, "v"))
	return err == nil && strings.HasPrefix(s, "v")
}

// ours cuts the module's path off an import path of this module.
func ours(importPath string) (folder string, ok bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// matches tells whether a folder fits a pattern of the tables: a folder, "dir/*" for what is directly below dir, "*" for
// everything.
func matches(pattern, folder string) bool {
	if parent, ok := strings.CutSuffix(pattern, "/*"); ok {
		return path.Dir(folder) == parent
	}
	return pattern == "*" || pattern == folder
}

func matchesAny(patterns []string, folder string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, folder) })
}
