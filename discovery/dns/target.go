package dns

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	mdns "github.com/miekg/dns"
)

// kind says what is looked up.
type kind uint8

const (
	hostKind kind = iota // addresses, with the port given
	srvKind              // SRV records
	anyKind              // SRV records, or where there are none addresses with the default port
)

// defaultPort is the port of a service from a DNS registry whose name has no SRV record.
const defaultPort = 80

type target struct {
	kind kind
	host string
	port uint16 // of hostKind and anyKind
}

// parseTarget reads a name as Merger asks for it.
func parseTarget(name string) (target, error) {
	var t target
	if srv, ok := strings.CutPrefix(name, "srv:"); ok {
		t = target{kind: srvKind, host: srv}
	} else if host, port, err := net.SplitHostPort(name); err == nil {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return t, fmt.Errorf("%q: the port must be a number from 1 to 65535", name)
		}
		t = target{kind: hostKind, host: host, port: uint16(n)}
	} else if strings.HasPrefix(name, "_") {
		t = target{kind: srvKind, host: name}
	} else {
		t = target{kind: anyKind, host: name, port: defaultPort}
	}
	if _, ok := mdns.IsDomainName(t.host); !ok || t.host == "" || t.host == "." {
		return t, fmt.Errorf("%q is not a name that can be looked up", name)
	}
	return t, nil
}
