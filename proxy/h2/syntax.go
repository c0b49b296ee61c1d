package h2

import (
	"strings"
	"sync"

	"github.com/sidecar-mesh/sidecar/proxy/grammar"
)

const (
	maxName = 1 << 10
	maxPath = 16 << 10
)

func validName(s string) bool {
	return s != "" && len(s) <= maxName && grammar.All(s, grammar.Name)
}

func validToken(s string) bool {
	return s != "" && len(s) <= 32 && grammar.All(s, grammar.Token)
}

// validValue accepts what RFC 9110 5.5 does, without whitespace at the ends (RFC 9113 8.2.1).
func validValue(s string) bool {
	if s == "" {
		return true
	}
	first, last := s[0], s[len(s)-1]
	return first != ' ' && first != '\t' && last != ' ' && last != '\t' && grammar.ValidText(s)
}

func validPath(s, method string) bool {
	if s == "*" {
		return method == "OPTIONS"
	}
	return s != "" && s[0] == '/' && len(s) <= maxPath && grammar.All(s, grammar.Target)
}

// lowered remembers the lower-case forms of names that came over HTTP/1. It is bounded: names come from the network.
var lowered struct {
	mu sync.RWMutex
	m  map[string]string
}

const maxLowered = 1024

// lowerName returns a field name in lower case, mostly without making it anew.
func lowerName(s string) string {
	upper := false
	for i := range len(s) {
		upper = upper || 'A' <= s[i] && s[i] <= 'Z'
	}
	if !upper {
		return s
	}
	lowered.mu.RLock()
	l, ok := lowered.m[s]
	lowered.mu.RUnlock()
	if ok {
		return l
	}
	l = strings.ToLower(s)
	lowered.mu.Lock()
	defer lowered.mu.Unlock()
	if lowered.m == nil {
		lowered.m = make(map[string]string)
	}
	if len(lowered.m) < maxLowered {
		lowered.m[strings.Clone(s)] = l
	}
	return l
}
