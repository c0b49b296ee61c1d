package snapshot_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/route"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

// words is a script engine whose programs say "fail", or which last parts of addresses they leave.
type words struct{ compiled int }

func (w *words) Compile(source string) (route.Script, error) {
	w.compiled++
	if source == "bad" {
		return nil, errors.New("no program")
	}
	return word(source), nil
}

type word string

func (w word) Choose(call *route.ScriptCall) ([]int, error) {
	want := strings.Fields(string(w))
	if want[0] == "fail" {
		return nil, errors.New("failed")
	}
	if want[0] == "header" {
		v, _ := call.Facts.Fields.Get("x-want")
		want = strings.Fields(v)
	}
	list := []int{-1, 99} // what was not offered is not taken
	for i, e := range call.Endpoints {
		if slices.Contains(want, e.Host[strings.LastIndexByte(e.Host, '.')+1:]) {
			list = append(list, i, i)
		}
	}
	return list, nil
}

func scripted(t *testing.T, engine route.ScriptEngine, prev *snapshot.Snapshot, rules string) (*snapshot.Snapshot, error) {
	t.Helper()
	c, err := config.LoadBytes("test.yaml", []byte("services:\n  a:\n    endpoints: [10.0.0.1:80, 10.0.0.2:80, 10.0.0.3:80]\n    rules: ["+rules+"]\n"), config.RankFile, nil)
	if err != nil {
		t.Fatal(err)
	}
	mesh := &config.Mesh{Config: c, Endpoints: map[string]*config.EndpointSet{"a": {List: c.Services["a"].Endpoints}}}
	return snapshot.Compile(mesh, prev, snapshot.Options{Scripts: engine})
}

// TestScripts: what scripts leave, with and without force, once and for each call.
func TestScripts(t *testing.T) {
	for _, c := range []struct{ rules, header, want string }{
		{`{script: "2 3"}`, "", "2 3"},
		{`{script: "2 3"}, "=> host != 10.0.0.2"`, "", "3"},
		{`{script: "9"}`, "", "1 2 3"},
		{`{script: "9", force: true}`, "", ""},
		{`{script: fail}`, "", "1 2 3"},
		{`{script: fail, force: true}`, "", ""},
		{`{script: header, runtime: true}`, "1 3", "1 3"},
		{`{script: header, runtime: true}`, "9", "1 2 3"},
		{`{script: header, runtime: true, force: true}`, "9", ""},
		{`{script: header, runtime: true}, "=> host != 10.0.0.1"`, "1 3", "3"},
		{`{script: fail, runtime: true}`, "", "1 2 3"},
		{`{script: fail, runtime: true, force: true}`, "", ""},
		{`{script: header, runtime: true}, {script: "1 2", runtime: true}`, "2 3", "2"},
	} {
		s, err := scripted(t, &words{}, nil, c.rules)
		if err != nil {
			t.Fatal(err)
		}
		a, _ := s.Outbound.Get("a")
		f := &route.Facts{Fields: route.FieldList{{Name: "x-want", Value: c.header}}}
		for range 2 {
			got := left(a.Rest.Targets[0].Under("", time.Time{}).Ask(f, ""), "")
			if got != c.want {
				t.Errorf("%s, asked for %q: %q is left, want %q", c.rules, c.header, got, c.want)
			}
		}
	}
}

// TestScriptsAreCompiledOnce: a program whose text did not change is not compiled again; a mistake has its place.
func TestScriptsAreCompiledOnce(t *testing.T) {
	w := &words{}
	s, err := scripted(t, w, nil, `{script: "2"}, {script: "2"}`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = scripted(t, w, s, `{script: "2"}, "=> host = 10.0.0.2"`); err != nil || w.compiled != 1 {
		t.Errorf("compiled %d times, %v", w.compiled, err)
	}
	if _, err = scripted(t, w, s, `{script: bad}`); err == nil || !strings.Contains(err.Error(), "test.yaml:4:13: rules of a[0]: no program") {
		t.Errorf("%v", err)
	}
	if _, err = scripted(t, nil, nil, `{script: x}`); err == nil || !strings.Contains(err.Error(), "not available") {
		t.Errorf("%v", err)
	}
}
