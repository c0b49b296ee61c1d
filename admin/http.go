package admin

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// methods says what answers a path.
type methods struct {
	get, post, put handler
}

// allow lists the methods in the form of the Allow header.
func (m methods) allow() string {
	switch {
	case m.get != nil && m.put != nil:
		return "GET, HEAD, PUT"
	case m.get != nil && m.post != nil:
		return "GET, HEAD, POST"
	case m.post != nil:
		return "POST"
	}
	return "GET, HEAD"
}

// table is what one listener answers.
type table struct {
	paths map[string]methods
	// below answers what lies under a prefix that ends with a slash.
	below map[string]methods
	// open says that nothing here can be misused by a page in somebody's browser: any Host is welcome.
	open bool
	// host is the configured address, which may be used as Host.
	host string
}

// list returns the paths, sorted.
func (t *table) list() []string {
	all := slices.AppendSeq(slices.Collect(maps.Keys(t.paths)), maps.Keys(t.below))
	slices.Sort(all)
	return all
}

// ServeHTTP implements http.Handler.
func (t *table) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if !t.open && !t.trusts(r.Host) {
		refuse(w, r, problem{Status: http.StatusForbidden, Title: "host not allowed", Detail: fmt.Sprintf(
			"the Host %q is neither an IP address, localhost nor the configured address: a name that leads here could belong to a web page", cut(r.Host))})
		return
	}
	m, ok := t.find(r.URL.Path)
	if !ok {
		refuse(w, r, problem{Status: http.StatusNotFound, Title: "no such path", Detail: "there is: " + strings.Join(t.list(), " ")})
		return
	}
	serve := m.get
	switch {
	case r.Method == http.MethodPost:
		serve = m.post
	case r.Method == http.MethodPut:
		serve = m.put
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		serve = nil
	}
	if serve == nil {
		h.Set("Allow", m.allow())
		refuse(w, r, problem{Status: http.StatusMethodNotAllowed, Title: "method not allowed", Detail: r.URL.Path + " takes " + m.allow()})
		return
	}
	if (r.Method == http.MethodPost || r.Method == http.MethodPut) && (r.Header.Get("Origin") != "" || crossSite(r.Header.Get("Sec-Fetch-Site"))) {
		refuse(w, r, problem{Status: http.StatusForbidden, Title: "origin not allowed", Detail: "a request that changes something must not come from a web page"})
		return
	}
	serve(w, r)
}

func (t *table) find(path string) (methods, bool) {
	if m, ok := t.paths[path]; ok {
		return m, true
	}
	for prefix, m := range t.below {
		if len(path) > len(prefix) && strings.HasPrefix(path, prefix) {
			return m, true
		}
	}
	return methods{}, false
}

func crossSite(site string) bool { return site == "cross-site" || site == "same-site" }

// trusts keeps out pages that had their own name resolve to us (DNS rebinding): they cannot make a browser send an
// address as Host.
func (t *table) trusts(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.ToLower(strings.Trim(name, "[]")), ".")
	if name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	own, _, err := net.SplitHostPort(t.host)
	return err == nil && strings.EqualFold(own, name)
}

func cut(s string) string {
	if len(s) > 100 {
		return s[:100] + "…"
	}
	return s
}

// problem is a problem document (RFC 9457), with a few members of our own.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`

	Reason  string    `json:"reason,omitempty"`
	Waiting []Waiting `json:"waiting,omitempty"`
}

// refuse answers with a problem document.
func refuse(w http.ResponseWriter, _ *http.Request, p problem) {
	p.Type = "about:blank"
	write(w, p.Status, "application/problem+json", p)
}

// answer answers with JSON.
func answer(w http.ResponseWriter, status int, v any) { write(w, status, "application/json", v) }

func write(w http.ResponseWriter, status int, kind string, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		status, kind, body = http.StatusInternalServerError, "application/problem+json", []byte(`{"type":"about:blank","title":"internal error","status":500}`)
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a client that has left cannot be told; for HEAD the server drops it
}
