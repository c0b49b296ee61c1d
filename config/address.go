package config

import (
	"net/netip"
	"strconv"
	"strings"
)

// prefix shortens the name in the grammar.
type prefix = netip.Prefix

// endpointAddress is host:port, [v6]:port, a name with a port, or unix:PATH.
func endpointAddress() value[string] { return checked(text(), addressProblem) }

// hostPort is an address without unix:.
func hostPort() value[string] {
	return checked(text(), func(s string) string { return hostPortProblem(s, 1) })
}

// addressProblem says what is wrong with the address of an endpoint.
func addressProblem(s string) string {
	path, unix := strings.CutPrefix(s, "unix:")
	switch {
	case !unix:
		return hostPortProblem(s, 1)
	case path == "" || path == "@":
		return "unix: needs the path of a socket, like unix:/run/app.sock"
	case len(path) > 107:
		return "the path of a socket has at most 107 bytes"
	case strings.ContainsAny(path, "\x00\r\n"):
		return "the path of a socket must not contain line breaks or NUL"
	}
	return ""
}

// hostPortProblem says what is wrong with host:port.
func hostPortProblem(s string, lowest int) string {
	const form = "host:port, [v6]:port or unix:PATH is expected, got "
	if scheme, _, ok := strings.Cut(s, "://"); ok {
		return form + strconv.Quote(s) + ": it has no " + strconv.Quote(scheme+"://")
	}
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return form + strconv.Quote(s) + ": the port is missing"
	}
	host, port := s[:i], s[i+1:]
	if p, err := strconv.Atoi(port); err != nil || p < lowest || p > 65535 || port[0] == '+' {
		return form + strconv.Quote(s) + ": a port is a number from " + strconv.Itoa(lowest) + " to 65535"
	}
	if inner, bracket := strings.CutPrefix(host, "["); bracket {
		inner, closed := strings.CutSuffix(inner, "]")
		if a, err := netip.ParseAddr(inner); !closed || err != nil || !a.Is6() {
			return form + strconv.Quote(s) + ": " + host + " is no IPv6 address"
		}
		return ""
	}
	if strings.Contains(host, ":") {
		return form + strconv.Quote(s) + ": an IPv6 address stands in brackets"
	}
	if problem := nameOrIPProblem(host); problem != "" {
		return form + strconv.Quote(s) + ": " + problem
	}
	return ""
}

// nameOrIPProblem says what is wrong with a host name or an IPv4 address.
func nameOrIPProblem(host string) string {
	name := strings.TrimSuffix(host, ".")
	switch {
	case name == "":
		return "the host is missing"
	case len(name) > 253:
		return "a host name has at most 253 characters"
	}
	digits := true
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return "each part of a host name has 1 to 63 characters"
		}
		for i := range len(label) {
			c := label[i]
			if c < '0' || c > '9' {
				digits = false
				if c != '-' && c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') {
					return "a host name consists of letters, digits, - and dots"
				}
			}
		}
	}
	if digits {
		if _, err := netip.ParseAddr(name); err != nil {
			return name + " is no IPv4 address"
		}
	}
	return ""
}

// listener is an address to listen on, or none.
func listener() value[string] {
	v := convert(text(), func(s string) (string, string) {
		if s == "none" {
			return "", ""
		}
		return s, listenProblem(s)
	})
	return v
}

// listenAddress is an address to listen on.
func listenAddress() value[string] { return checked(text(), listenProblem) }

// listenProblem says what is wrong with a listen address: an IP address, localhost or nothing, and a port.
func listenProblem(s string) string {
	const form = "an address to listen on is expected (like 127.0.0.1:15001, [::1]:15001 or :15001), got "
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return form + strconv.Quote(s) + ": the port is missing"
	}
	if host := s[:i]; host != "" && host != "localhost" {
		if a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")); err != nil || a.Is6() != (host[0] == '[') {
			return form + strconv.Quote(s) + ": the host is an IP address, localhost or left out"
		}
	}
	if p, err := strconv.Atoi(s[i+1:]); err != nil || p < 0 || p > 65535 || s[i+1] == '+' || s[i+1] == '-' {
		return form + strconv.Quote(s) + ": a port is a number from 0 to 65535"
	}
	return ""
}

// network is a CIDR or one address.
func network() value[prefix] {
	return convert(text(), func(s string) (prefix, string) {
		p, ok := parseNetwork(s)
		if !ok {
			return p, "a network is expected (like 10.0.0.0/8 or 127.0.0.1), got " + strconv.Quote(s)
		}
		return p, ""
	}).as(schema{"type": "string"})
}

func parseNetwork(s string) (prefix, bool) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), true
	}
	p, err := netip.ParsePrefix(s)
	return p.Masked(), err == nil
}

// hostPattern is a host that callers use: a name, *.suffix or *, with or without a port; kept in lower case.
func hostPattern() value[string] {
	return convert(text(), func(s string) (string, string) {
		s = lowerASCII(s)
		return s, hostProblem(s)
	}).as(schema{"type": "string", "minLength": 1})
}

// lowerASCII leaves the rest as it is, so that what must be ASCII is still refused (strings.ToLower makes a k of U+212A).
func lowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, s)
}

// hostProblem says what is wrong with a host pattern.
func hostProblem(s string) string {
	const form = "a host is expected (like catalog, *.catalog.internal or *), got "
	if s == "*" {
		return ""
	}
	host, port, hasPort := strings.Cut(s, ":")
	if strings.HasPrefix(s, "[") {
		inner, rest, closed := strings.Cut(s[1:], "]")
		if a, err := netip.ParseAddr(inner); !closed || err != nil || !a.Is6() {
			return form + strconv.Quote(s)
		}
		host = "v6"
		if port, hasPort = strings.CutPrefix(rest, ":"); !hasPort && rest != "" {
			return form + strconv.Quote(s)
		}
	}
	if p, err := strconv.Atoi(port); hasPort && (err != nil || p < 1 || p > 65535 || port[0] == '+') {
		return form + strconv.Quote(s) + ": a port is a number from 1 to 65535"
	}
	host = strings.TrimPrefix(host, "*.")
	if strings.Contains(host, "*") {
		return form + strconv.Quote(s) + ": * stands alone or as the first part"
	}
	if problem := nameOrIPProblem(host); problem != "" {
		return form + strconv.Quote(s) + ": " + problem
	}
	return ""
}

// logTarget is where a log goes.
func logTarget() value[string] {
	return checked(text(), func(s string) string {
		path, file := strings.CutPrefix(s, "file:")
		if s == "stdout" || s == "stderr" || file && path != "" && !strings.ContainsAny(path, "\r\n") {
			return ""
		}
		return "stdout, stderr or file:/path is expected, got " + strconv.Quote(s)
	}).as(schema{"type": "string", "pattern": `^(stdout|stderr|file:.+|.*\$\{.*)$`})
}
