package admin

import (
	"net/http"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/internal/meshtest"
)

// status asks an address; 0 when nobody answers.
func status(address, path string) int {
	c := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := c.Get("http://" + address + path)
	if err != nil {
		return 0
	}
	_ = r.Body.Close()
	return r.StatusCode
}

// The listeners follow the configuration: nothing changes before Commit or by Abort.
func TestServer(t *testing.T) {
	_, _, s := rig(t)
	one := &config.Listen{Admin: meshtest.FreeAddress(t), Health: meshtest.FreeAddress(t)}
	c, err := s.Prepare(one)
	if err != nil {
		t.Fatal(err)
	}
	c.Commit()
	if a, h := status(one.Admin, "/config"), status(one.Health, "/config"); a != 200 || h != 404 {
		t.Errorf("admin %d, health %d", a, h)
	}

	two := &config.Listen{Admin: one.Admin, Health: meshtest.FreeAddress(t), Metrics: meshtest.FreeAddress(t)}
	c, err = s.Prepare(two)
	if err != nil {
		t.Fatal(err)
	}
	c.Abort()
	if h, m := status(one.Health, "/ready"), status(two.Metrics, "/metrics"); h != 200 || m != 0 {
		t.Errorf("after Abort: health %d, metrics %d", h, m)
	}
	if c, err = s.Prepare(two); err != nil {
		t.Fatal(err)
	}
	c.Commit()
	if h, m := status(two.Health, "/live"), status(two.Metrics, "/metrics"); h != 200 || m != 200 {
		t.Errorf("after Commit: health %d, metrics %d", h, m)
	}
	deadline := time.Now().Add(5 * time.Second)
	for status(one.Health, "/ready") != 0 && time.Now().Before(deadline) {
		<-time.After(5 * time.Millisecond)
	}
	if h := status(one.Health, "/ready"); h != 0 {
		t.Errorf("the old health listener answers %d", h)
	}

	if _, err := s.Prepare(&config.Listen{Admin: two.Metrics, Health: meshtest.FreeAddress(t)}); err == nil {
		t.Error("a port that is taken was opened")
	}
	if a := status(one.Admin, "/ready"); a != 200 {
		t.Errorf("after a failure: %d", a)
	}

	s.Close(t.Context())
	if a := status(one.Admin, "/ready"); a != 0 {
		t.Errorf("after Close: %d", a)
	}
	if c, err = s.Prepare(one); err == nil {
		c.Commit()
	}
	if a := status(one.Admin, "/ready"); a != 0 {
		t.Errorf("opened after Close: %d", a)
	}
}
