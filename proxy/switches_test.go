package proxy

import (
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

func (a *applied) state(want string) {
	a.t.Helper()
	if got := a.Snapshot().Switch("away").State.State().String(); got != want {
		a.t.Errorf("state %s, want %s", got, want)
	}
}

// TestSwitchWrites: the latest write wins, be it a person's or an edit of the configuration; a reload that does not edit the
// value changes nothing. All of it is in the journal (S-221, S-157).
func TestSwitchWrites(t *testing.T) {
	a := newApplied(t)
	document := func(rest string) string {
		return "listen: {outbound: none}\nservices: {b: {endpoints: ['10.0.0.1:80']}}\nswitches: {away: {service: b, empty: {}, " + rest + "}}\n"
	}
	a.apply(document("enabled: false"))
	a.state("off")
	if _, err := a.SetSwitch("away", SwitchWrite{On: true, By: "ann", Reason: "b is slow"}); err != nil {
		t.Fatal(err)
	}
	a.state("on")
	a.apply(document("enabled: false, owner: team")) // says what it said
	a.state("on")
	a.apply(document("enabled: true, owner: team"))
	a.apply(document("owner: team"))
	a.state("off")
	if _, err := a.SetSwitch("none", SwitchWrite{}); !errors.Is(err, ErrNoSwitch) {
		t.Errorf("unknown switch: %v", err)
	}
	list, journal := a.Switches()
	var b strings.Builder
	for _, e := range journal {
		b.WriteString(e.From + ">" + e.To + " " + strings.TrimRight(e.By, "0123456789:") + " " + e.Reason + "\n")
	}
	const want = "off>on ann b is slow\non>on configuration test \non>off configuration test \n"
	if b.String() != want || len(list) != 1 || list[0].Last.To != "off" {
		t.Errorf("journal:\n%s%+v", b.String(), list)
	}
	events := a.rec.Events().Snapshot()
	if len(events) != 3 || events[0].Kind != telemetry.EventSwitch || events[0].By != "ann" || events[0].To != "on" {
		t.Errorf("events: %+v", events)
	}
	if _, err := a.SetSwitch("away", SwitchWrite{On: true, By: "ann"}); err != nil {
		t.Fatal(err)
	}
	a.apply("listen: {outbound: none}\n")
	list, journal = a.Switches()
	if len(list) != 0 {
		t.Errorf("a switch is left: %+v", list)
	}
	if last := journal[len(journal)-1]; last.From != "on" || last.To != "off" || last.Reason == "" {
		t.Errorf("a switch that was on is gone: %+v", last)
	}
}

// TestSwitchOfTwoSources: a switch that a file has is turned by the config centre too. The latest write counts, whoever made it.
func TestSwitchOfTwoSources(t *testing.T) {
	a := newApplied(t)
	const rest = "services: {b: {endpoints: ['10.0.0.1:80']}}\n"
	apply := func(file, centre string) {
		t.Helper()
		base, err := config.LoadBytes("file", []byte("listen: {outbound: none}\n"+rest+"switches: {away: {service: b, empty: {}"+file+"}}\n"), config.RankFile, nil)
		if err != nil {
			t.Fatal(err)
		}
		var layers []config.Layer
		if centre != "" {
			c, err := config.LoadBytes("kv", []byte(rest+"switches: {away: {service: b, error: {}"+centre+"}}\n"), config.RankCenter, nil)
			if err != nil {
				t.Fatal(err)
			}
			layers = append(layers, config.Layer{Rank: config.RankCenter, Config: c})
		}
		cfg, err := config.Merge(base, layers...)
		if err != nil {
			t.Fatal(err)
		}
		a.applyConfig(cfg)
	}
	for i, step := range []struct{ file, centre, want string }{
		{"", ", enabled: true, reason: r", "on"}, // also at the start
		{"", "", "on"},
		{"", ", enabled: false", "off"},
		{", enabled: true", ", enabled: false", "on"},
		{", enabled: true", ", enabled: true", "on"},
		{", enabled: false", ", enabled: true", "off"},
		{", enabled: false", "", "off"},
	} {
		apply(step.file, step.centre)
		if got := a.Snapshot().Switch("away"); got.State.State().String() != step.want || got.Config.Answer.Kind != config.KindEmpty {
			t.Errorf("step %d: %s with %s, want %s", i, got.State.State(), got.Config.Answer.Kind, step.want)
		}
	}
	_, journal := a.Switches()
	if first := journal[0]; !strings.Contains(first.By, "kv") || first.Reason != "r" {
		t.Errorf("the first entry: %+v", first)
	}
}

// TestSwitchLevel3: it is turned on with a confirmation and a reason only, and off without (S-159, X-20).
func TestSwitchLevel3(t *testing.T) {
	a := newApplied(t)
	a.apply("listen: {outbound: none}\nservices: {b: {endpoints: ['10.0.0.1:80']}}\nswitches: {away: {service: b, level: 3, empty: {}}}\n")
	for _, w := range []SwitchWrite{{On: true}, {On: true, Confirm: true}, {On: true, Reason: "r"}, {On: true, Confirm: true, Reason: "  "}} {
		if _, err := a.SetSwitch("away", w); !errors.Is(err, ErrUnconfirmed) {
			t.Errorf("%+v: %v", w, err)
		}
	}
	a.state("off")
	if _, err := a.SetSwitch("away", SwitchWrite{On: true, Confirm: true, Reason: "r"}); err != nil {
		t.Error(err)
	}
	a.state("on")
	if _, err := a.SetSwitch("away", SwitchWrite{}); err != nil {
		t.Error(err)
	}
	a.state("off")
}

// TestShieldTCP: a connection ends in order (null), behind what there is to say (mock), or is reset (exception); the
// endpoint sees none (S-160).
func TestShieldTCP(t *testing.T) {
	origin, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = origin.Close() }()
	accepted := make(chan net.Conn, 1)
	go func() {
		for {
			nc, err := origin.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- nc
		}
	}()
	for _, tt := range []struct {
		answer, want string
		reset        bool
	}{
		{"empty: {}", "", false},
		{"answer: {body: \"not now\\n\"}", "not now\n", false},
		{"error: {}", "", true},
	} {
		t.Run(tt.answer, func(t *testing.T) {
			a := newApplied(t)
			a.apply("listen: {outbound: none}\nservices: {b: {protocol: tcp, listen: '127.0.0.1:0', endpoints: ['" + origin.Addr().String() +
				"']}}\nswitches: {away: {service: b, enabled: true, " + tt.answer + "}}\n")
			a.mu.Lock()
			address := ""
			for _, l := range a.listeners {
				address = l.ln.Addr().String()
			}
			a.mu.Unlock()
			nc, err := net.Dial("tcp", address)
			if tt.reset && errors.Is(err, syscall.ECONNRESET) {
				return // it was reset before we noticed that it stood
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = nc.Close() }()
			_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
			got, err := io.ReadAll(nc)
			if string(got) != tt.want || (err != nil) != tt.reset {
				t.Errorf("got %q, %v", got, err)
			}
			if len(accepted) > 0 {
				t.Error("the endpoint was called")
			}
		})
	}
}
