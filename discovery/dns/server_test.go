package dns

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	mdns "github.com/miekg/dns"
	"go.uber.org/goleak"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const deadline = time.Minute

// server is a name server with a script.
type server struct {
	t    *testing.T
	addr string

	mu      sync.Mutex
	names   map[string]bool
	records map[string][]string // by "name TYPE": records in zone-file form
	rcodes  map[string]int      // by "name TYPE" or "name"
	silent  bool
	short   bool // truncates every UDP answer
	noEDNS  bool // FORMERR for EDNS0
	asked   []string
	busy    int
	most    int           // questions at once
	hold    chan struct{} // answers wait for it
	stop    func()
}

// serve starts a server on addr; an empty one means any port of the loopback interface.
func serve(t *testing.T, addr string) *server {
	t.Helper()
	s := &server{t: t, names: make(map[string]bool), records: make(map[string][]string), rcodes: make(map[string]int)}
	s.listen(addr)
	t.Cleanup(func() { s.stop() })
	return s
}

func (s *server) listen(addr string) {
	s.t.Helper()
	var tcp net.Listener
	var udp net.PacketConn
	for try := 0; ; try++ {
		var err error
		want := addr
		if want == "" {
			want = "127.0.0.1:0"
		}
		if tcp, err = net.Listen("tcp", want); err == nil {
			s.addr = tcp.Addr().String()
			if udp, err = net.ListenPacket("udp", s.addr); err == nil {
				break
			}
			_ = tcp.Close()
		}
		if try == 20 {
			s.t.Fatal(err)
		}
	}
	var done sync.WaitGroup
	var servers []*mdns.Server
	for _, srv := range []*mdns.Server{{Listener: tcp}, {PacketConn: udp}} {
		up := make(chan struct{})
		srv.NotifyStartedFunc = func() { close(up) }
		srv.Handler = s
		done.Go(func() { _ = srv.ActivateAndServe() })
		<-up
		servers = append(servers, srv)
	}
	s.stop = sync.OnceFunc(func() {
		for _, srv := range servers {
			_ = srv.Shutdown()
		}
		done.Wait()
	})
}

// ServeDNS implements dns.Handler.
func (s *server) ServeDNS(w mdns.ResponseWriter, q *mdns.Msg) {
	name := strings.ToLower(q.Question[0].Name)
	key := name + " " + mdns.TypeToString[q.Question[0].Qtype]
	r := new(mdns.Msg)
	r.SetReply(q)

	s.mu.Lock()
	s.asked = append(s.asked, key)
	s.busy++
	s.most = max(s.most, s.busy)
	hold, silent := s.hold, s.silent
	_, isUDP := w.RemoteAddr().(*net.UDPAddr)
	if !s.names[name] {
		r.Rcode = mdns.RcodeNameError
	}
	for _, k := range []string{name, key} {
		if code, ok := s.rcodes[k]; ok {
			r.Rcode = code
		}
	}
	if s.noEDNS && q.IsEdns0() != nil {
		r.Rcode = mdns.RcodeFormatError
	}
	if r.Rcode == mdns.RcodeSuccess {
		for _, text := range s.records[key] {
			rr, err := mdns.NewRR(text)
			if err != nil {
				s.t.Error(err)
				continue
			}
			r.Answer = append(r.Answer, rr)
		}
		for _, text := range s.records[name+" EXTRA"] {
			rr, _ := mdns.NewRR(text)
			r.Extra = append(r.Extra, rr)
		}
	}
	if isUDP {
		size := mdns.MinMsgSize
		if o := q.IsEdns0(); o != nil {
			size = int(o.UDPSize())
		}
		r.Truncate(size)
		if s.short {
			r.Answer, r.Truncated = nil, true
		}
	}
	s.mu.Unlock()
	if hold != nil {
		<-hold
	}
	s.mu.Lock()
	s.busy--
	s.mu.Unlock()
	if !silent {
		_ = w.WriteMsg(r)
	}
}

func (s *server) set(key string, records ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, _, _ := strings.Cut(key, " ")
	s.names[name] = true
	s.records[key] = records
}

func (s *server) fail(key string, rcode int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rcodes[key] = rcode
}

// change does something to the server's fields under its lock.
func (s *server) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *server) times(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, k := range s.asked {
		if k == key {
			n++
		}
	}
	return n
}

// source makes a Source that asks the servers and looks at files of the test only.
func source(t *testing.T, reg config.DNSRegistry, servers ...*server) *Source {
	t.Helper()
	for _, s := range servers {
		reg.Servers = append(reg.Servers, s.addr)
	}
	s, err := New(&config.Registry{Name: "dns", DNS: &reg})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s.client.system = &system{resolv: filepath.Join(dir, "resolv.conf"), hostsFile: filepath.Join(dir, "hosts")}
	s.retry, s.gone = 2*time.Millisecond, 50*time.Millisecond
	return s
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// quick is a registry whose answers count for some milliseconds.
func quick() config.DNSRegistry {
	return config.DNSRegistry{MinTTL: 5 * time.Millisecond, MaxTTL: 10 * time.Millisecond, Timeout: 1500 * time.Millisecond}
}

// once looks a target up and gives what it resolves to, with weights other than 1.
func once(t *testing.T, s *Source, name string) (string, error) {
	t.Helper()
	tg, err := parseTarget(name)
	if err != nil {
		return "", err
	}
	res := s.lookup(t.Context(), tg, nil)
	return show(res.endpoints), res.err
}

func show(list []*config.Endpoint) string {
	var all []string
	for _, e := range list {
		a := e.Address
		if e.Weight != 1 {
			a += "*" + string(rune('0'+e.Weight))
		}
		all = append(all, a)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// run starts a source that wants names.
type run struct {
	t       *testing.T
	want    chan []string
	updates chan discovery.Update
}

func start(t *testing.T, s *Source, names ...string) *run {
	t.Helper()
	r := &run{t: t, want: make(chan []string, 1), updates: make(chan discovery.Update)}
	r.want <- names
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- s.Run(ctx, r.want, func(u discovery.Update) {
			select {
			case r.updates <- u:
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

// until reads updates until one fits, and gives it.
func (r *run) until(what string, fits func(discovery.Update) bool) discovery.Update {
	r.t.Helper()
	over := time.After(deadline)
	for {
		select {
		case u := <-r.updates:
			if fits(u) {
				return u
			}
		case <-over:
			r.t.Fatalf("never: %s", what)
		}
	}
}

func (r *run) untilSet(want string) {
	r.t.Helper()
	r.until(want, func(u discovery.Update) bool { return u.Err == nil && show(u.Endpoints) == want })
}

func (r *run) untilError(part string) {
	r.t.Helper()
	r.until("error "+part, func(u discovery.Update) bool { return u.Err != nil && strings.Contains(u.Err.Error(), part) })
}
