package proxy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/snapshot"
	"github.com/sidecar-mesh/sidecar/telemetry"
)

// journalRoom bounds how many changes of switches are remembered.
const journalRoom = 1000

// SwitchEntry is one change of a degradation switch: who, when, what, from what to what (S-221).
type SwitchEntry struct {
	Time     time.Time `json:"time"`
	Switch   string    `json:"switch"`
	Service  string    `json:"service"`
	Level    int       `json:"level"`
	From, To string    `json:"-"`
	By       string    `json:"by"`
	Reason   string    `json:"reason,omitempty"`
}

// SwitchStatus is a switch and its last change, zero if there was none.
type SwitchStatus struct {
	*snapshot.Switch
	Last SwitchEntry
}

// SwitchWrite asks for a change of a switch.
type SwitchWrite struct {
	On      bool
	By      string
	Reason  string
	Confirm bool // needed to turn on a switch of level 3, with a reason (S-159)
}

// What can be wrong with a SwitchWrite.
var (
	ErrNoSwitch    = errors.New("there is no such switch")
	ErrUnconfirmed = errors.New("a switch of level 3 has a large impact: it needs a confirmation (--confirm, \"confirm\": true) and a reason (--reason, \"reason\")")
)

// Switches returns all switches, by name, and the journal, oldest entry first.
func (p *Proxy) Switches() ([]SwitchStatus, []SwitchEntry) {
	s := p.store.Load()
	if s == nil {
		return nil, nil
	}
	p.journalMu.Lock()
	defer p.journalMu.Unlock()
	list := make([]SwitchStatus, 0, len(s.Switches))
	for _, w := range s.Switches {
		st := SwitchStatus{Switch: w}
		for _, e := range slices.Backward(p.journal) {
			if e.Switch == w.Name {
				st.Last = e
				break
			}
		}
		list = append(list, st)
	}
	return list, slices.Clone(p.journal)
}

// SetSwitch changes a switch. The latest write wins, whoever made it.
func (p *Proxy) SetSwitch(name string, c SwitchWrite) (SwitchStatus, error) {
	p.mu.Lock() // so that no Apply comes between finding the switch and writing to it
	defer p.mu.Unlock()
	s := p.store.Load()
	if s == nil {
		return SwitchStatus{}, ErrNoSwitch
	}
	w := s.Switch(name)
	if w == nil {
		if len(s.Switches) == 0 {
			return SwitchStatus{}, fmt.Errorf("%w %q: the configuration has none", ErrNoSwitch, name)
		}
		known := make([]string, len(s.Switches))
		for i, k := range s.Switches {
			known[i] = k.Name
		}
		return SwitchStatus{}, fmt.Errorf("%w %q; there are: %s", ErrNoSwitch, name, strings.Join(known, " "))
	}
	if c.On && w.Config.Level == 3 && (!c.Confirm || strings.TrimSpace(c.Reason) == "") {
		return SwitchStatus{}, ErrUnconfirmed
	}
	return SwitchStatus{w, p.writeSwitch(w, c.On, c.By, c.Reason)}, nil
}

func (p *Proxy) writeSwitch(w *snapshot.Switch, on bool, by, reason string) SwitchEntry {
	from := w.State.Set(on)
	return p.noteSwitch(w, from, w.State.State(), by, reason)
}

// Switched implements pipeline.Observer.
func (p *Proxy) Switched(w *snapshot.Switch, c resilience.SwitchChange) {
	p.noteSwitch(w, c.From, c.To, "auto", "")
}

// noteSwitch writes a change down: journal, event, metric.
func (p *Proxy) noteSwitch(w *snapshot.Switch, from, to resilience.SwitchState, by, reason string) SwitchEntry {
	e := SwitchEntry{
		Time: time.Now(), Switch: w.Name, Service: w.Config.Service, Level: w.Config.Level, From: from.String(), To: to.String(),
		By: by, Reason: reason,
	}
	p.journalMu.Lock()
	if len(p.journal) >= journalRoom {
		p.journal = append(p.journal[:0], p.journal[1:]...)
	}
	p.journal = append(p.journal, e)
	p.journalMu.Unlock()
	detail := fmt.Sprintf("switch %s (level %d, %s)", w.Name, w.Config.Level, w.Config.Mode)
	if reason != "" {
		detail += ": " + reason
	}
	p.o.Recorder.Events().Add(telemetry.Event{
		Kind: telemetry.EventSwitch, Service: w.Config.Service, Route: w.Config.Route, From: e.From, To: e.To, By: by, Detail: detail,
	})
	p.o.Recorder.SwitchState(w.Name, int(to))
	return e
}

// settleSwitches makes an edit of `enabled` the write that it is, whichever source has it. A switch that is gone is off.
func (p *Proxy) settleSwitches(prev, next *snapshot.Snapshot) {
	for _, w := range next.Switches {
		var was *snapshot.Switch
		if prev != nil {
			was = prev.Switch(w.Name)
		}
		switch first := w.Config.Initial(); {
		case was == nil && first.Enabled.Value:
			p.noteSwitch(w, resilience.SwitchOff, w.State.State(), writtenBy(first), first.Reason)
		case was == nil:
			p.o.Recorder.SwitchState(w.Name, int(w.State.State()))
		default:
			if on := w.Config.Enabled.Value; on != was.Config.Enabled.Value {
				p.writeSwitch(w, on, writtenBy(w.Config), w.Config.Reason)
			}
			below, before := w.Config.Below, was.Config.Below
			if below != nil && (before == nil || before.Enabled.Value != below.Enabled.Value) {
				p.writeSwitch(w, below.Enabled.Value, writtenBy(below), below.Reason)
			}
		}
	}
	if prev != nil {
		for _, was := range prev.Switches {
			if state := was.State.State(); state != resilience.SwitchOff && next.Switch(was.Name) == nil {
				p.noteSwitch(was, state, resilience.SwitchOff, "configuration", "it is not in the configuration any more")
			}
		}
	}
	p.o.Recorder.RetainSwitches(func(name string) bool { return next.Switch(name) != nil })
}

// writtenBy names a document as the one who made a write.
func writtenBy(w *config.Switch) string {
	if from := w.From.String(); from != "" {
		return "configuration " + from
	}
	return "configuration"
}
