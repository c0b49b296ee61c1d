package explain

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sidecar-mesh/sidecar/route"
)

// split takes a URL apart: the authority and the request target, as a client would send them.
func split(method, url string) (host, target string, err error) {
	url, _, _ = strings.Cut(url, "#") // a fragment stays with the client
	if strings.ContainsAny(url, " \t\r\n") {
		return "", "", errors.New("the URL must not contain blanks: write %20")
	}
	scheme, rest, ok := strings.Cut(url, "://")
	switch {
	case ok && scheme != "http" && scheme != "https" && scheme != "tcp":
		return "", "", fmt.Errorf("the URL begins with %s://: http:// is expected", scheme)
	case ok:
		url = rest
	case url == "*" && method == "OPTIONS":
		return "", "*", nil
	case url == "":
		return "", "", errors.New("a URL like http://catalog/items is needed")
	}
	if method == "CONNECT" {
		return url, "", nil
	}
	at := strings.IndexAny(url, "/?")
	if at < 0 {
		at = len(url)
	}
	host, target = url[:at], url[at:]
	if i := strings.LastIndexByte(host, '@'); i >= 0 {
		host = host[i+1:] // a name and password before the host are not sent in it
	}
	if strings.HasPrefix(target, "?") {
		target = "/" + target
	}
	return host, target, nil
}

// requestID returns the id by which percentages and splits decide: the first one that can be one.
func requestID(header route.FieldList) (string, bool) {
	for at := 0; ; {
		id, next, ok := header.Next("x-request-id", at)
		if !ok {
			return "", false
		}
		if route.IsRequestID(id) {
			return id, true
		}
		at = next
	}
}
