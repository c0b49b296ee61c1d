package admin

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestSwitches: they are listed with the journal, and set by PUT; who asks from a web page is refused.
func TestSwitches(t *testing.T) {
	p, _, s := rig(t)
	p.switches = []Switch{{Name: "away", Service: "b", Level: 1, State: "off"}, {Name: "big", Service: "b", Level: 3, State: "off"}}
	p.journal = []SwitchChange{{Time: time.Unix(1, 0).UTC(), Switch: "big", Old: "on", New: "off", By: "ann"}}
	for _, tt := range []struct {
		method, path, body, origin string
		status                     int
		want                       string
	}{
		{"GET", "/switches", "", "", 200, `"name": "big"`},
		{"GET", "/switches/big", "", "", 200, `"by": "ann"`},
		{"GET", "/switches/none", "", "", 404, "no such switch"},
		{"PUT", "/switches/away", `{"enabled": true, "reason": "slow"}`, "", 200, `"state": "on"`},
		{"PUT", "/switches/away", `{"enabled": false, "by": "ann"}`, "", 200, `"state": "off"`},
		{"PUT", "/switches/none", `{"enabled": true}`, "", 404, "no such switch"},
		{"PUT", "/switches/big", `{"enabled": true}`, "", 409, `"detail": "level 3"`},
		{"PUT", "/switches/big", `{"enabled": true, "confirm": true, "reason": "r"}`, "", 200, `"state": "on"`},
		{"PUT", "/switches/away", `{}`, "", 400, "is expected"},
		{"PUT", "/switches/away", `{"enabled": "yes"}`, "", 400, "is expected"},
		{"PUT", "/switches/away", `{"enabled": true, "reason": "a\nb"}`, "", 400, "one line"},
		{"PUT", "/switches/away", `{"enabled": true, "by": "\u001b[2J"}`, "", 400, "one line"},
		{"PUT", "/switches/away", `{"enable": true}`, "", 400, "is expected"},
		{"PUT", "/switches/away", `{"enabled": true}`, "http://evil.test", 403, "web page"},
		{"PUT", "/switches", `{"enabled": true}`, "", 405, "takes GET, HEAD"},
		{"POST", "/switches/away", `{"enabled": true}`, "", 405, "takes GET, HEAD, PUT"},
	} {
		q := httptest.NewRequest(tt.method, "http://localhost"+tt.path, strings.NewReader(tt.body))
		q.RemoteAddr = "127.0.0.1:9"
		if tt.origin != "" {
			q.Header.Set("Origin", tt.origin)
		}
		w := httptest.NewRecorder()
		s.api.full().ServeHTTP(w, q)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%s %s %s: %d %s", tt.method, tt.path, tt.body, w.Code, w.Body)
		}
	}
	if len(p.writes) != 3 || p.writes[0].By != "127.0.0.1:9" || p.writes[0].Reason != "slow" || p.writes[1].By != "ann" {
		t.Errorf("writes: %+v", p.writes)
	}
}
