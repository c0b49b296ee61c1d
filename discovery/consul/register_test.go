package consul

import (
	"net/http"
	"testing"
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
