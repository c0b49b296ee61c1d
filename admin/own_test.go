package admin

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestOwn: what is known of our own services stands beside their traffic, and counts for /ready only where that is asked.
func TestOwn(t *testing.T) {
	p, _, s := rig(t)
	p.readiness = Readiness{Ready: true}
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p.regs = []Registration{{Service: "shop", Registry: "main", ID: "shop-1", State: "critical", Reason: "refused", Since: since}}
	for _, tc := range []struct {
		app   App
		ready int
	}{
		{App{Service: "shop", State: "unknown", Since: since}, 503},
		{App{Service: "shop", State: "ill", Reason: "refused", Since: since}, 503},
		{App{Service: "shop", State: "well", Since: since}, 200},
	} {
		p.apps = []App{tc.app}
		var v Service
		look(t, s, "/services/shop", 200, &v)
		if v.App == nil || v.App.State != tc.app.State || v.App.Reason != tc.app.Reason {
			t.Errorf("app: %+v", v.App)
		}
		if len(v.Registrations) != 1 || v.Registrations[0].State != "critical" || v.Registrations[0].Registry != "main" {
			t.Errorf("registrations: %+v", v.Registrations)
		}
		look(t, s, "/ready", 200, nil)
		look(t, s, "/ready?app", tc.ready, nil)
	}
	var v Service
	look(t, s, "/services/catalog", 200, &v)
	if v.App != nil || v.Registrations != nil {
		t.Errorf("what we call is none of our own: %+v", v)
	}
}

// look asks the full API.
func look(t *testing.T, s *Server, path string, status int, out any) {
	t.Helper()
	w := httptest.NewRecorder()
	q := httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+path, nil)
	s.api.full().ServeHTTP(w, q)
	if w.Code != status {
		t.Fatalf("GET %s: %d %s", path, w.Code, w.Body)
	}
	if out != nil {
		if err := json.Unmarshal(w.Body.Bytes(), out); err != nil {
			t.Fatal(err)
		}
	}
}
