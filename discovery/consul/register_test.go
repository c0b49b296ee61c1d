package consul

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery/registration"
)

// TestRefresh: a service whose query waits for a change is asked for at once, and once; others are left alone.
func TestRefresh(t *testing.T) {
	srv := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("index") == "" {
			body(w, 5, list("10.0.0.1:80"))
			return
		}
		<-r.Context().Done()
	})
	r := start(t, registry("http://"+srv.address()), "a")
	r.expect("10.0.0.1:80")
	eventually(t, "the query that waits", func() bool { return len(srv.asked()) == 2 })
	for _, name := range []string{"other", "a", "a"} {
		r.source.Refresh(name)
	}
	r.expect("10.0.0.1:80")
	eventually(t, "the next query that waits", func() bool { return len(srv.asked()) == 4 })
	if again := srv.asked()[2]; again.index != "" {
		t.Errorf("%+v", again)
	}
}

// TestAllows: addresses, networks and node ids, with or without the port that the sidecar listens on.
func TestAllows(t *testing.T) {
	for name, tc := range map[string]struct {
		list string
		want bool
	}{
		"nobody":          {"", false},
		"the address":     {"10.0.0.7", true},
		"another":         {"10.0.0.70", false},
		"a network":       {"192.168.0.0/16\n10.0.0.0/24\n", true},
		"another network": {"10.0.1.0/24", false},
		"the node":        {"# ours\n  pod-7 # the seventh\n", true},
		"this sidecar":    {"pod-7:15006", true},
		"another sidecar": {"pod-7:15007", false},
		"a comment":       {"#10.0.0.7", false},
		"nonsense":        {"10.0.0.0/99\n*", false},
	} {
		if got := allows(tc.list, "10.0.0.7", "pod-7:15006"); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestElsewhere: an agent registers in its own datacenter, whatever a registry says of its queries; one of another is told of, and
// gets nothing.
func TestElsewhere(t *testing.T) {
	var wrote atomic.Int32
	srv := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/agent/self":
			_, _ = io.WriteString(w, `{"Config": {"Datacenter": "dc1", "NodeName": "n"}, "Member": {"Addr": "10.0.0.1"}}`)
		case "/v1/agent/service/register":
			wrote.Add(1)
		}
	})
	for _, tc := range []struct {
		datacenter, text string
		writes           int32
	}{
		{"dc2", "the agent is of the datacenter dc1, and would register it there: to register in dc2, the first address has to be an agent of it", 0},
		{"DC1", "", 1},
		{"", "", 1},
	} {
		reg := registry("http://" + srv.address())
		reg.Datacenter = tc.datacenter
		r, err := NewRegistry(&config.Registry{Name: "main", Consul: &reg})
		if err != nil {
			t.Fatal(err)
		}
		wrote.Store(0)
		got := r.Register(t.Context(), &registration.Instance{ID: "i", Service: "shop", Port: 1}, false)
		if got.Text != tc.text || (got.Kind == registration.OK) != (tc.text == "") || wrote.Load() != tc.writes {
			t.Errorf("%q: %+v, %d writes", tc.datacenter, got, wrote.Load())
		}
		r.Close()
	}
}

// TestHostOf: the host of each form of an agent's address.
func TestHostOf(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:8500": "127.0.0.1", "https://consul.internal:8501": "consul.internal", "[::1]:8500": "::1", "unix:/run/consul.sock": "",
	} {
		if got := hostOf(address); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
}
