package rules

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// parseURL reads what stands behind condition:// or script:// (S-114, S-123).
func parseURL(scheme, rest string) ([]Rule, []string, error) {
	p := &parser{}
	if scheme != "condition" && scheme != "script" {
		return nil, nil, fmt.Errorf("a rule of the kind %s:// is not supported: condition:// and script:// are", scheme)
	}
	place, query, _ := strings.Cut(rest, "?")
	host, _, _ := strings.Cut(place, "/")
	params, text, err := p.params(query)
	if err != nil {
		return nil, p.warnings, err
	}
	var list []Rule
	if scheme == "script" {
		list, err = p.script(text, params["type"])
	} else {
		var warnings []string
		list, warnings, err = parseConditions(strings.TrimSpace(text))
		p.warnings = append(p.warnings, warnings...)
	}
	if err != nil {
		return nil, p.warnings, err
	}
	base, err := p.settings(params)
	if err != nil {
		return nil, p.warnings, err
	}
	if host != "" && host != anyHostText {
		if base.Consumer, err = newPattern(keyHost, host); err != nil {
			return nil, p.warnings, err
		}
	}
	for i := range list {
		r := &list[i]
		r.Name, r.Consumer, r.Priority = base.Name, base.Consumer, base.Priority
		r.Enabled, r.Force, r.Runtime, r.Until = base.Enabled, base.Force, base.Runtime, base.Until
	}
	return list, p.warnings, nil
}

const anyHostText = "0.0.0.0" // all callers

// params takes the query apart; text is the value of rule.
func (p *parser) params(query string) (params map[string]string, text string, err error) {
	params, found := map[string]string{}, false
	for query != "" {
		if after, ok := strings.CutPrefix(query, "rule="); ok {
			found = true
			var behind string
			text, behind = p.ruleText(after)
			query = behind
			continue
		}
		pair := query
		pair, query, _ = strings.Cut(query, "&")
		name, value, _ := strings.Cut(pair, "=")
		if name == "" {
			continue
		}
		if params[name], err = unescape(value); err != nil {
			return nil, "", err
		}
	}
	if !found {
		return nil, "", errors.New("the URL has no rule=")
	}
	if !strings.ContainsAny(text, " =>") {
		text, err = unescape(text)
	}
	return params, text, err
}

// ruleText returns the value of rule and what follows it. One that was not encoded takes all the rest.
func (p *parser) ruleText(s string) (text, rest string) {
	if inner, ok := strings.CutPrefix(strings.TrimLeft(s, "\" +"), "URL.encode("); ok {
		p.warn("URL.encode(…) is read as what stands in it")
		return strings.Trim(strings.TrimSuffix(strings.TrimSpace(inner), ")"), `"`), ""
	}
	value, rest, _ := strings.Cut(s, "&")
	if strings.ContainsAny(value, " =>") {
		p.warn("the rule is not URL-encoded: all behind rule= is taken for it")
		return s, ""
	}
	return value, rest
}

// settings reads what a URL says beside the rule.
func (p *parser) settings(params map[string]string) (Rule, error) {
	r := Rule{Enabled: true}
	for _, name := range sortedKeys(params) {
		value := params[name]
		switch name {
		case "priority":
			n, err := strconv.Atoi(value)
			if err != nil {
				return r, fmt.Errorf("priority: a whole number is expected, got %q", value)
			}
			r.Priority = n
		case "enabled", "force", "runtime":
			b, err := strconv.ParseBool(value)
			if err != nil {
				return r, fmt.Errorf("%s: true or false is expected, got %q", name, value)
			}
			*map[string]*bool{"enabled": &r.Enabled, "force": &r.Force, "runtime": &r.Runtime}[name] = b
		case "until":
			t, err := time.Parse(time.RFC3339, value)
			if err != nil {
				return r, fmt.Errorf("until: a time like 2026-12-01T10:00:00Z is expected, got %q", value)
			}
			r.Until = t
		case "name":
			r.Name = value
		case "category":
			if value != "routers" {
				p.warn("category %s is read as routers", value)
			}
		case "dynamic", "type", "router", "version", "group", "interface", "application", "valid", "timestamp": // known, and without meaning here
		default:
			p.warn("the parameter %s says nothing here", name)
		}
	}
	return r, nil
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// script makes a rule of a program.
func (p *parser) script(source, language string) ([]Rule, error) {
	r, err := NewScript(source, language)
	if err != nil {
		return nil, err
	}
	return []Rule{r}, nil
}

// NewScript makes a rule of a program; an empty language is JavaScript.
func NewScript(source, language string) (Rule, error) {
	switch language = strings.ToLower(language); language {
	case "", "js", "javascript":
	case "groovy", "jruby", "ruby":
		return Rule{}, fmt.Errorf("a script in %s needs a Java virtual machine, which a proxy beside each pod cannot afford: write it in JavaScript", language)
	default:
		return Rule{}, fmt.Errorf("a script in %q is not supported: JavaScript is", language)
	}
	if strings.TrimSpace(source) == "" {
		return Rule{}, errors.New("the script is empty")
	}
	return Rule{Enabled: true, Text: "script", Script: &Script{Language: "javascript", Source: source}}, nil
}

// unescape takes URL encoding away, as Java's URLEncoder writes it: + is a blank.
func unescape(s string) (string, error) {
	if !strings.ContainsAny(s, "%+") {
		return s, nil
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '+':
			b = append(b, ' ')
		case '%':
			if i+2 >= len(s) {
				return "", fmt.Errorf("the escape %q is cut off", s[i:])
			}
			n, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
			if err != nil {
				return "", fmt.Errorf("%q is no escape", s[i:i+3])
			}
			b = append(b, byte(n))
			i += 2
		default:
			b = append(b, s[i])
		}
	}
	return string(b), nil
}
