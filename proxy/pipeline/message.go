package pipeline

import "strings"

// FieldID names the fields that the proxy itself looks at, so that their names are compared once, when they are parsed.
type FieldID uint8

// The fields that matter to us; FieldOther is every other.
const (
	FieldOther FieldID = iota
	FieldHost
	FieldContentLength
	FieldTransferEncoding
	FieldConnection
	FieldKeepAlive
	FieldProxyConnection
	FieldTE
	FieldTrailer
	FieldUpgrade
	FieldExpect
	FieldHTTP2Settings
	FieldProxyAuthorization
	FieldProxyAuthenticate
	FieldProxy
	FieldForwarded
	FieldXForwardedFor
	FieldXForwardedProto
	FieldXForwardedHost
	FieldXForwardedOther // port, prefix …
	FieldAlias           // never sent on: names that some take for those of framing or identity, and client-cert without TLS
	FieldXRequestID
	FieldTraceparent
	FieldVia
	FieldXSidecar // names that begin with x-sidecar-
	FieldOffline  // of those, the mark of an endpoint that leaves
	FieldEnvoyTimeout
	FieldContentType
	FieldGRPCTimeout
	FieldGRPCStatus
	FieldGRPCPushback
	FieldGRPCPrevious
)

// Field is one header or trailer field. Its strings point into the buffer of the message it came with.
type Field struct {
	Name, Value string
	ID          FieldID
	Drop        bool // not sent on
	Secret      bool // no hop may keep it for compression (RFC 7541 7.1.3)

	Sum uint32 // of a field that came over HTTP/2, for the engine's use; 0: there is none
}

// Classify tells which field a name means, compared without case.
func Classify(name string) FieldID {
	if len(name) < 2 || len(name) > 32 {
		return FieldOther
	}
	switch name[0] | 0x20 {
	case 'h':
		return pick(name, "host", FieldHost, "http2-settings", FieldHTTP2Settings)
	case 'c':
		switch len(name) {
		case len("connection"):
			return pick(name, "connection", FieldConnection, "", 0)
		case len("content-type"):
			return pick(name, "content-type", FieldContentType, "", 0)
		case len("content-length"):
			return pick(name, "content-length", FieldContentLength, "content_length", FieldAlias)
		}
	case 't':
		switch len(name) {
		case 2:
			return pick(name, "te", FieldTE, "", 0)
		case len("trailer"):
			return pick(name, "trailer", FieldTrailer, "", 0)
		case len("traceparent"):
			return pick(name, "traceparent", FieldTraceparent, "", 0)
		case len("transfer-encoding"):
			return pick(name, "transfer-encoding", FieldTransferEncoding, "transfer_encoding", FieldAlias)
		}
	case 'k':
		return pick(name, "keep-alive", FieldKeepAlive, "", 0)
	case 'u':
		return pick(name, "upgrade", FieldUpgrade, "", 0)
	case 'e':
		return pick(name, "expect", FieldExpect, "", 0)
	case 'g':
		return classifyG(name)
	case 'v':
		return pick(name, "via", FieldVia, "", 0)
	case 'f':
		return pick(name, "forwarded", FieldForwarded, "", 0)
	case 'p':
		return classifyP(name)
	case 'x':
		return classifyX(name)
	}
	return FieldOther
}

func classifyG(name string) FieldID {
	switch len(name) {
	case len("grpc-status"):
		return pick(name, "grpc-status", FieldGRPCStatus, "", 0)
	case len("grpc-timeout"):
		return pick(name, "grpc-timeout", FieldGRPCTimeout, "", 0)
	case len("grpc-retry-pushback-ms"):
		return pick(name, "grpc-retry-pushback-ms", FieldGRPCPushback, "", 0)
	case len("grpc-previous-rpc-attempts"):
		return pick(name, "grpc-previous-rpc-attempts", FieldGRPCPrevious, "", 0)
	}
	return FieldOther
}

func classifyP(name string) FieldID {
	switch len(name) {
	case len("proxy"):
		return pick(name, "proxy", FieldProxy, "", 0)
	case len("proxy-connection"):
		return pick(name, "proxy-connection", FieldProxyConnection, "", 0)
	case len("proxy-authenticate"):
		return pick(name, "proxy-authenticate", FieldProxyAuthenticate, "", 0)
	case len("proxy-authorization"):
		return pick(name, "proxy-authorization", FieldProxyAuthorization, "", 0)
	}
	return FieldOther
}

// classifyX knows the x- fields. A name with an underscore in place of a hyphen is what some applications take for the
// same field, so such an alias of a name that speaks of identity or framing is never sent on.
func classifyX(name string) FieldID {
	if len(name) < len("x-sidecar-") || (name[1] != '-' && name[1] != '_') {
		return FieldOther
	}
	switch name[2] | 0x20 {
	case 'f':
		if !hasPrefixFold(name, "x-forwarded-") {
			return FieldOther
		}
		switch {
		case equalFold(name, "x-forwarded-for"):
			return FieldXForwardedFor
		case equalFold(name, "x-forwarded-proto"):
			return FieldXForwardedProto
		case equalFold(name, "x-forwarded-host"):
			return FieldXForwardedHost
		}
		if strings.IndexByte(name, '_') >= 0 || equalFold(name, "x-forwarded-client-cert") {
			return FieldAlias
		}
		return FieldXForwardedOther
	case 'r':
		return pick(name, "x-request-id", FieldXRequestID, "", 0)
	case 's':
		if hasPrefixFold(name, "x-sidecar-") {
			if equalFold(name, lowOffline) {
				return FieldOffline
			}
			return FieldXSidecar
		}
	case 'e':
		return pick(name, "x-envoy-expected-rq-timeout-ms", FieldEnvoyTimeout, "", 0)
	}
	return FieldOther
}

func pick(name, a string, ida FieldID, b string, idb FieldID) FieldID {
	switch {
	case equalFold(name, a):
		return ida
	case b != "" && equalFold(name, b):
		return idb
	}
	return FieldOther
}

// equalFold compares ASCII without case; lower is in lower case.
func equalFold(s, lower string) bool {
	return len(s) == len(lower) && matchFold(s, lower)
}

func matchFold(s, lower string) bool {
	for i := range len(lower) {
		c := s[i]
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// hasPrefixFold is for names: an underscore counts as a hyphen.
func hasPrefixFold(s, lower string) bool {
	if len(s) < len(lower) {
		return false
	}
	for i := range len(lower) {
		c := s[i]
		switch {
		case 'A' <= c && c <= 'Z':
			c |= 0x20
		case c == '_':
			c = '-'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}
