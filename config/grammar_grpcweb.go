package config

import (
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

func grpcWebValue() value[GRPCWeb] {
	v := orNone(func(w *GRPCWeb) *Opt[bool] { return &w.Off }, object(
		in("origins", "pages whose scripts may call: https://host, https://*.domain or *; left out: none of another origin", func(w *GRPCWeb) *[]string { return &w.Origins }, some(checked(line(), originProblem))),
		opt("credentials", "scripts may send cookies and authorization (false)", func(w *GRPCWeb) *Opt[bool] { return &w.Credentials }, boolean()),
		opt("max_age", "for so long a browser need not ask again (10m)", func(w *GRPCWeb) *Opt[time.Duration] { return &w.MaxAge }, duration(0, 24*time.Hour)),
	))
	return then(v, func(d *decoder, n *yaml.Node, w *GRPCWeb) bool {
		switch {
		case w.Off.Value:
			return true
		case len(w.Origins) == 0 && (w.Credentials.Set || w.MaxAge.Set):
			return d.fail(n, "credentials and max_age say how scripts of origins may call: origins is missing")
		case !w.Credentials.Value:
			return true
		}
		for _, o := range w.Origins {
			if o == "*" {
				return d.failIn(n, "credentials", "with origins \"*\" any page could act for its visitors: name the origins")
			}
		}
		return true
	})
}

// grpcWebFits says what is wrong with grpc_web beside a protocol.
func (d *decoder) grpcWebFits(n *yaml.Node, protocol string) bool {
	if w := at(n, "grpc_web"); w != nil && protocol != "grpc" {
		return d.fail(w, "gRPC-Web is bridged to protocol: grpc only, here it is %s", protocol)
	}
	return true
}

// originProblem says what is wrong with an origin as browsers write it (RFC 6454 6.2).
func originProblem(s string) string {
	if s == "*" {
		return ""
	}
	scheme, host, ok := strings.Cut(s, "://")
	switch {
	case !ok || scheme == "":
		return "an origin is expected, like https://shop.example, https://*.example or *"
	case s != strings.ToLower(s):
		return "browsers write origins in lower case"
	case strings.ContainsAny(host, "/?#@ "):
		return "an origin ends with its host and port: no path"
	case scheme == "https" && strings.HasSuffix(host, ":443") || scheme == "http" && strings.HasSuffix(host, ":80"):
		return "browsers leave the scheme's own port out"
	}
	bare, wild := strings.CutPrefix(host, "*.")
	if bare == "" || strings.Contains(bare, "*") || wild && !strings.Contains(bare, ".") {
		return "a * stands for the first labels of a host only, like https://*.shop.example"
	}
	return ""
}
