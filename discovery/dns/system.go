package dns

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	mdns "github.com/miekg/dns"
)

// maxSystemFile bounds what is read of a system file.
const maxSystemFile = 8 << 20

// system is what the machine says of names: its resolver's configuration, its hosts file, its addresses.
type system struct {
	// Set when it is made, then read-only.
	resolv, hostsFile string
	every             time.Duration // how often the files are looked at

	mu     sync.Mutex // guards what follows
	looked time.Time
	marks  [2]mark
	now    *facts
}

// mark tells one version of a file from another.
type mark struct {
	changed time.Time
	size    int64
}

// facts is one immutable reading of it.
type facts struct {
	servers []string // host:port, at least one
	conf    *mdns.ClientConfig
	hosts   map[string][]netip.Addr // by lower-case name
	six     bool                    // IPv6 is preferred, as there is no IPv4
}

// current gives the newest facts, reading the files again when they changed. What cannot be read stays as it was.
func (s *system) current() *facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now != nil && time.Since(s.looked) < s.every {
		return s.now
	}
	s.looked = time.Now()
	next := facts{six: onlySix()}
	if s.now != nil {
		next.servers, next.conf, next.hosts = s.now.servers, s.now.conf, s.now.hosts
	}
	if data, ok := readNew(s.resolv, &s.marks[0]); ok || next.conf == nil {
		next.conf, _ = mdns.ClientConfigFromReader(bytes.NewReader(data)) // it takes everything
		next.servers = nil
		for _, server := range next.conf.Servers {
			next.servers = append(next.servers, net.JoinHostPort(server, next.conf.Port))
		}
		if len(next.servers) == 0 {
			next.servers = []string{"127.0.0.1:53"} // resolv.conf(5)
		}
	}
	if data, ok := readNew(s.hostsFile, &s.marks[1]); ok {
		next.hosts = parseHosts(string(data))
	}
	s.now = &next
	return s.now
}

// readNew reads a file if it is not the one that was read before.
func readNew(path string, last *mark) ([]byte, bool) {
	f, err := os.Open(path)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, false
	}
	m := mark{changed: info.ModTime(), size: info.Size()}
	if m == *last {
		return nil, false
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSystemFile))
	if err != nil {
		return nil, false
	}
	*last = m
	return data, true
}

// parseHosts reads hosts(5).
func parseHosts(text string) map[string][]netip.Addr {
	hosts := make(map[string][]netip.Addr)
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		ip, err := netip.ParseAddr(fields[0])
		if err != nil {
			continue
		}
		for _, name := range fields[1:] {
			name = strings.ToLower(strings.TrimSuffix(name, "."))
			hosts[name] = append(hosts[name], ip.Unmap())
		}
	}
	return hosts
}

// candidates lists the full names that a name may stand for, in the order in which they are tried.
func (f *facts) candidates(name string) []string {
	if strings.HasPrefix(name, "_") {
		return []string{mdns.Fqdn(name)} // a record of a service is named in full
	}
	return f.conf.NameList(name)
}

// onlySix reports whether the machine has a global IPv6 address and no IPv4 address but loopback.
func onlySix() bool {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	six := false
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok || n.IP.IsLoopback() {
			continue
		}
		if n.IP.To4() != nil {
			return false
		}
		six = six || n.IP.IsGlobalUnicast()
	}
	return six
}
