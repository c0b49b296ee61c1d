package config

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// banPrefix begins the names of rules that are bans.
const banPrefix = "ban "

// Ban adds to a document of rules (which may be empty) one that refuses a caller until a time (S-120). A ban of the same caller is
// replaced, and bans that are over at now are left out; whatever else there is stays as it is written.
func Ban(document []byte, caller string, until, now time.Time) ([]byte, error) {
	root, list, err := ruleList(document)
	if err != nil {
		return nil, err
	}
	withoutBans(list, func(name string, end time.Time) bool {
		return name == banPrefix+caller || !end.IsZero() && !now.Before(end)
	})
	attribute := "application"
	if isHost(caller) {
		attribute = "host"
	}
	list.Content = append(list.Content, mapNode(
		textNode("name"), textNode(banPrefix+caller), textNode("when"), mapNode(textNode(attribute), textNode(caller)),
		textNode("forbid"), &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: "true"},
		textNode("until"), textNode(until.UTC().Format(time.RFC3339)),
	))
	return yaml.Marshal(root)
}

// Unban takes the ban of a caller out of a document of rules. It reports whether there was one; what is left may be no rule at all.
func Unban(document []byte, caller string) (left []byte, found bool, err error) {
	root, list, err := ruleList(document)
	if err != nil {
		return nil, false, err
	}
	n := len(list.Content)
	withoutBans(list, func(name string, _ time.Time) bool { return name == banPrefix+caller })
	if left, err = yaml.Marshal(root); err != nil {
		return nil, false, err
	}
	return left, len(list.Content) < n, nil
}

// ruleList parses a document of rules. One alone becomes a list.
func ruleList(document []byte) (root, list *yaml.Node, err error) {
	root = new(yaml.Node)
	if err := yaml.Unmarshal(document, root); err != nil {
		return nil, nil, err
	}
	if root.Kind == 0 {
		list = &yaml.Node{Kind: yaml.SequenceNode}
		return list, list, nil
	}
	switch at := root.Content[0]; at.Kind {
	case yaml.SequenceNode:
		return root, at, nil
	case yaml.ScalarNode:
		list = &yaml.Node{Kind: yaml.SequenceNode}
		if !isNull(at) {
			list.Content = []*yaml.Node{at}
		}
		root.Content[0] = list
		return root, list, nil
	}
	return nil, nil, errors.New("a list of rules is expected")
}

// withoutBans takes out the bans that drop is true for, by name and end.
func withoutBans(list *yaml.Node, drop func(name string, end time.Time) bool) {
	kept := list.Content[:0]
	for _, n := range list.Content {
		var rule struct {
			Name  string `yaml:"name"`
			Until string `yaml:"until"`
		}
		if n.Kind == yaml.MappingNode && n.Decode(&rule) == nil && strings.HasPrefix(rule.Name, banPrefix) {
			end, _ := time.Parse(time.RFC3339, rule.Until) // none: zero
			if drop(rule.Name, end) {
				continue
			}
		}
		kept = append(kept, n)
	}
	list.Content = kept
}

// isHost reports whether a caller is meant by its address: one, a network, or dotted text with a star.
func isHost(caller string) bool {
	if _, err := netip.ParseAddr(caller); err == nil {
		return true
	}
	if _, err := netip.ParsePrefix(caller); err == nil {
		return true
	}
	return strings.HasSuffix(caller, "*") && strings.Trim(caller, "0123456789.*") == ""
}

// CheckCaller says why a caller cannot be banned by that name.
func CheckCaller(caller string) error {
	if caller == "" || strings.ContainsAny(caller, " \t\r\n,&=!>") {
		return fmt.Errorf("%q: an address, a network or the name of an application is expected", caller)
	}
	if net, err := netip.ParsePrefix(caller); err == nil && net.Bits() == 0 || strings.Trim(caller, "*.") == "" {
		return fmt.Errorf("%q is everybody: a switch answers in place of a service (sidecar switch)", caller)
	}
	if !isHost(caller) && strings.Trim(caller, "0123456789.:/*[]") == "" {
		return fmt.Errorf("%q: no address (10.1.1.1, without a port) and no network (10.1.0.0/16, 10.1.*)", caller)
	}
	return nil
}

func textNode(text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
}

func mapNode(pairs ...*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Content: pairs, Style: yaml.FlowStyle}
}
