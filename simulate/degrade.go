package simulate

import (
	"github.com/sidecar-mesh/sidecar/resilience"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

// write is what a person does to switches at this sidecar: those by name, and all by level.
func (c *sidecar) write(ch *Change) {
	for _, w := range c.snap.Switches {
		on, named := ch.Switches[w.Name]
		if ch.Level != nil && !named {
			on, named = w.Config.Level <= *ch.Level, true
		}
		if named {
			c.set(w, on, "a person")
		}
	}
}

func (c *sidecar) set(w *snapshot.Switch, on bool, by string) {
	if was := w.State.Set(on); was != w.State.State() {
		c.tellSwitch(w, by)
	}
}

// settleSwitches makes an edit of `enabled` the write that it is, as the proxy does.
func (c *sidecar) settleSwitches(was *snapshot.Snapshot) {
	for _, w := range c.snap.Switches {
		var before *snapshot.Switch
		if was != nil {
			before = was.Switch(w.Name)
		}
		if before != nil && before.Config.Enabled.Value != w.Config.Enabled.Value {
			c.set(w, w.Config.Enabled.Value, "configuration")
		}
	}
}

// switched tells what the rule of a switch has done.
func (c *sidecar) switched(w *snapshot.Switch, v resilience.SwitchChange) {
	if v.Changed() {
		c.tellSwitch(w, "its rule")
	}
}

func (c *sidecar) tellSwitch(w *snapshot.Switch, by string) {
	c.sim.record.event(c, "switch "+w.State.State().String(), w.Config.Service, "", w.Name+" by "+by)
}

// shielded answers in place of the service where a switch says so.
func (x *call) shielded() bool {
	for _, w := range x.rt.Shields {
		shields, v := w.State.Shields(x.c.sim.now, x.c.aside.next())
		x.c.switched(w, v)
		if shields {
			x.over = true
			return x.standIn(w.Answer, "switch")
		}
	}
	return false
}

// watch tells the switches that watch the route how a call ended that was made, or refused by a meter of ours.
func (x *call) watch(reason resilience.Reason, status int) {
	if !x.asked {
		return
	}
	failed := reason != resilience.None || status >= 500 || x.last.Failed()
	for _, w := range x.rt.Watchers {
		x.c.switched(w, w.State.Record(x.c.sim.now, failed))
	}
}

// standFor returns what answers in place of a failure of the call, or nil: what a switch says, else the policy's fallback.
func (x *call) standFor(reason resilience.Reason) *snapshot.StandIn {
	if !x.asked {
		return nil
	}
	covers := func(f *resilience.Failures) bool {
		if reason != resilience.None {
			return f.Refusal(reason)
		}
		return f.Answer(x.last)
	}
	for _, w := range x.rt.StandIns {
		_, v := w.State.Shields(x.c.sim.now, 0)
		x.c.switched(w, v)
		if w.State.State() != resilience.SwitchOff && covers(&w.When) {
			return w.Answer
		}
	}
	if f := x.rt.Fallback; f != nil && covers(&f.When) {
		return f.Answer
	}
	return nil
}

// standIn answers in place of the service. It reports whether it could. Our own app (local) is taken to answer well at once.
func (x *call) standIn(a *snapshot.StandIn, by string) bool {
	status := a.Config.Status
	switch a.Config.Kind {
	case snapshot.KindStale:
		if x.rt.Fallback == nil || x.rt.Fallback.Stale.Get(x.c.sim.now, x.key(), a.Config.Stale) == nil {
			return false
		}
		status = 200
	case snapshot.KindLocal:
		status = 200
	}
	x.c.sim.record.stoodIn(x, a.Config.Kind != snapshot.KindError && status < 500, by+", "+a.Config.Kind)
	return true
}

// remember keeps a good answer for a fallback that gives the last one. Every answer of the made-up world may be kept.
func (x *call) remember() {
	f := x.rt.Fallback
	if !x.asked || f == nil || f.Stale == nil || x.t.Method != "GET" {
		return
	}
	if key := x.key(); f.Stale.Wants(x.c.sim.now, key) {
		f.Stale.Put(key, &resilience.StaleAnswer{Status: 200, At: x.c.sim.now})
	}
}

// key is what an answer is remembered under.
func (x *call) key() []byte { return []byte(x.svc.Name + "\x00" + x.rt.Name + "\x00" + x.t.Path) }

// mirror sends a copy of the call to the mirror of its route, whose answer nobody waits for.
func (x *call) mirror() {
	m, sim := x.rt.Mirror, x.c.sim
	if m == nil || x.c.aside.unit() >= m.Ratio {
		return
	}
	if m.Running.Load() >= m.Most {
		sim.record.mirrored(x, "full")
		return
	}
	h := x.c.hintAside()
	i, why := m.To.Set.Pick(&h)
	if !why.Chosen() {
		sim.record.mirrored(x, "failed")
		return
	}
	m.Running.Add(1)
	ep := m.To.Endpoints[i]
	ep.Meter.Active.Add(1)
	over := false
	done := func(fate string) {
		if !over {
			over = true
			m.Running.Add(-1)
			ep.Meter.Active.Add(-1)
			sim.record.mirrored(x, fate)
		}
	}
	n := sim.byName[ep.Address]
	half := n.class.Network / 2
	switch {
	case n.silent():
		sim.after(m.Connect, func() { done("failed") })
	case n.refuses():
		sim.after(2*half, func() { done("failed") })
	default:
		sim.after(half, func() { n.take(func(int) { sim.after(half, func() { done("sent") }) }) })
	}
	sim.after(m.Timeout, func() { done("failed") })
}
