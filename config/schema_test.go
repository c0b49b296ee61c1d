package config

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// validator checks documents against the part of JSON Schema that Schema uses; a keyword it does not know fails the test.
type validator struct{ root map[string]any }

func (v validator) check(s map[string]any, doc any, path string) error {
	for _, key := range slices.Sorted(func(yield func(string) bool) {
		for k := range s {
			if !yield(k) {
				return
			}
		}
	}) {
		if err := v.keyword(s, key, doc, path); err != nil {
			return err
		}
	}
	return nil
}

func (v validator) keyword(s map[string]any, key string, doc any, path string) error {
	text, isText := doc.(string)
	number, isNumber := doc.(float64)
	object, isObject := doc.(map[string]any)
	array, isArray := doc.([]any)
	bad := func(ok bool) error {
		if ok {
			return nil
		}
		return fmt.Errorf("%s: %v breaks %s %v", path, doc, key, s[key])
	}
	switch key {
	case "$schema", "$defs", "title", "description", "required":
		for _, name := range anyList(s["required"]) {
			if _, has := object[name.(string)]; isObject && !has {
				return fmt.Errorf("%s: lacks %v", path, name)
			}
		}
		return nil
	case "$ref":
		name := strings.TrimPrefix(s[key].(string), "#/$defs/")
		return v.check(v.root["$defs"].(map[string]any)[name].(map[string]any), doc, path)
	case "type":
		return bad(slices.ContainsFunc(append(anyList(s[key]), s[key]), func(t any) bool {
			return t == "string" && isText || t == "object" && isObject || t == "array" && isArray || t == "boolean" && (doc == true || doc == false) ||
				t == "number" && isNumber || t == "integer" && isNumber && number == math.Trunc(number)
		}))
	case "enum":
		return bad(slices.Contains(s[key].([]any), doc))
	case "const":
		return bad(doc == s[key])
	case "pattern":
		return bad(!isText || regexp.MustCompile(s[key].(string)).MatchString(text))
	case "minLength":
		return bad(!isText || float64(len(text)) >= s[key].(float64))
	case "minimum":
		return bad(!isNumber || number >= s[key].(float64))
	case "maximum":
		return bad(!isNumber || number <= s[key].(float64))
	case "minItems":
		return bad(!isArray || float64(len(array)) >= s[key].(float64))
	case "minProperties":
		return bad(!isObject || float64(len(object)) >= s[key].(float64))
	case "maxProperties":
		return bad(!isObject || float64(len(object)) <= s[key].(float64))
	case "not":
		return bad(v.check(s[key].(map[string]any), doc, path) != nil)
	case "anyOf":
		var reasons []string
		for _, one := range s[key].([]any) {
			err := v.check(one.(map[string]any), doc, path)
			if err == nil {
				return nil
			}
			reasons = append(reasons, err.Error())
		}
		return fmt.Errorf("%s: none of (%s)", path, strings.Join(reasons, " | "))
	case "items":
		for i, e := range array {
			if err := v.check(s[key].(map[string]any), e, fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
		return nil
	case "properties", "additionalProperties":
		return v.properties(s, key, object, path)
	}
	return fmt.Errorf("the schema uses %s, which this test does not know", key)
}

func (v validator) properties(s map[string]any, key string, object map[string]any, path string) error {
	known, _ := s["properties"].(map[string]any)
	for name, val := range object {
		one, is := known[name].(map[string]any)
		if key == "additionalProperties" {
			if is {
				continue
			}
			if one, is = s[key].(map[string]any); !is {
				return fmt.Errorf("%s: unknown key %s", path, name)
			}
		}
		if !is {
			continue
		}
		if err := v.check(one, val, path+"."+name); err != nil {
			return err
		}
	}
	return nil
}

func anyList(v any) []any {
	l, _ := v.([]any)
	return l
}

// plain reads a document the way an editor's YAML plug-in does.
func plain(t *testing.T, data []byte) any {
	t.Helper()
	var doc any
	if err := yaml.Unmarshal(version11(data), &doc); err != nil {
		if err = json.Unmarshal(data, &doc); err != nil {
			t.Fatal(err)
		}
		return doc
	}
	encoded, err := json.Marshal(doc)
	if err == nil {
		err = json.Unmarshal(encoded, &doc)
	}
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func newValidator(t *testing.T) validator {
	t.Helper()
	var root map[string]any
	if err := json.Unmarshal(Schema(), &root); err != nil {
		t.Fatal(err)
	}
	return validator{root: root}
}

// goodFiles are the files under testdata that load.
func goodFiles(t *testing.T) []string {
	return slices.DeleteFunc(append(testdata(t, "*.yaml"), testdata(t, "*.json")...), func(f string) bool {
		return strings.Contains(f, ".bad.") || strings.HasSuffix(f, "later.yaml")
	})
}

func TestGoodFilesLoadAndFitTheSchema(t *testing.T) {
	v := newValidator(t)
	for _, f := range goodFiles(t) {
		if _, err := Load([]string{f}, testEnv); err != nil {
			t.Errorf("%s: %v", f, err)
		}
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := v.check(v.root, plain(t, data), "$"); err != nil {
			t.Errorf("%s: %v", f, err)
		}
	}
}

func TestSchemaRefuses(t *testing.T) {
	v := newValidator(t)
	for _, text := range []string{
		"nodes: {}", "node: {service: 5}", "defaults: {timeout: 5}", "defaults: {retry: many}", "defaults: {lb: {adaptive: {slow_weight: 0}}}",
		"defaults: {breaker: off}", "services: {a: {endpoints: [{weight: 1}]}}", "registries: {a: {}}", "limits: {half_close: x}",
		"defaults: {outlier: {error_ratio: 20}}", "switches: {a: {service: b, level: 4, empty: {}}}", "inbound: [{app: 'a:1', routes: [{to: {service: a}}]}]",
	} {
		if err := v.check(v.root, plain(t, []byte(text)), "$"); err == nil {
			t.Errorf("fits the schema: %s", text)
		}
	}
}

// TestSchemaDescribesEveryField wants a description for each key, so that editors have something to show.
func TestSchemaDescribesEveryField(t *testing.T) {
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			properties, _ := v["properties"].(map[string]any)
			for name, p := range properties {
				described := p.(map[string]any)["description"] != nil
				if !described && !strings.Contains(path, "anyOf") {
					t.Errorf("%s.%s has no description", path, name)
				}
			}
			for k, e := range v {
				walk(path+"."+k, e)
			}
		case []any:
			for i, e := range v {
				walk(fmt.Sprintf("%s[%d]", path, i), e)
			}
		}
	}
	walk("$", newValidator(t).root)
}
