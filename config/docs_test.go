package config

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDocs loads every example of docs/config.md, and wants each key of the language named there.
func TestDocs(t *testing.T) {
	data, err := os.ReadFile("../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	v := newValidator(t)
	examples := 0
	for at, rest := 0, string(data); ; {
		before, block, found := strings.Cut(rest, "```yaml\n")
		if !found {
			break
		}
		text, after, closed := strings.Cut(block, "```")
		if !closed {
			t.Fatal("an example does not end")
		}
		at += strings.Count(before, "\n") + 1
		c, err := LoadBytes("example", []byte(text), RankFile, noEnv)
		if err != nil {
			t.Errorf("the example below line %d: %v", at, err)
		} else if len(c.Warnings) > 0 {
			t.Errorf("the example below line %d: %v", at, c.Warnings)
		}
		if err := v.check(v.root, plain(t, []byte(text)), "$"); err != nil {
			t.Errorf("the example below line %d: %v", at, err)
		}
		at += strings.Count(text, "\n")
		rest, examples = after, examples+1
	}
	if examples < 15 {
		t.Errorf("only %d examples were found", examples)
	}
	for name := range keysOf(v.root) {
		if !regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`).Match(data) {
			t.Errorf("docs/config.md does not name %s", name)
		}
	}
}

// keysOf collects the names of all properties in a schema.
func keysOf(v any) map[string]bool {
	all := map[string]bool{}
	switch v := v.(type) {
	case map[string]any:
		properties, _ := v["properties"].(map[string]any)
		for name := range properties {
			all[name] = true
		}
		for _, e := range v {
			for name := range keysOf(e) {
				all[name] = true
			}
		}
	case []any:
		for _, e := range v {
			for name := range keysOf(e) {
				all[name] = true
			}
		}
	}
	return all
}
