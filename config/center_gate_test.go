package config

import "testing"

// TestCenterGate: a document update_gate sets what the files leave open, and what it said is over when it is deleted.
func TestCenterGate(t *testing.T) {
	k := newCentre(t, "discovery: {update_gate: {percent: 5%}}")
	if g := k.put("update_gate", "{enabled: true, percent: 50%, epoch: 1m}").Discovery.UpdateGate; !g.Enabled.Value ||
		g.Percent.Value != 0.05 || g.Epoch.Value.String() != "1m0s" || g.Enabled.From.Source == nil {
		t.Errorf("%+v", g)
	}
	if g := k.put("update_gate", "{enabled: maybe}").Discovery.UpdateGate; !g.Enabled.Value {
		t.Errorf("a bad document: %+v", g)
	}
	if g := k.put("update_gate", "").Discovery.UpdateGate; g.Enabled.Value || g.Percent.Value != 0.05 || g.Epoch.Value.String() != "30s" {
		t.Errorf("%+v", g)
	}
}
