package config

import "testing"

// TestBalancerByPlaceholder: one document, and each deployment names its balancer by a variable (S-7).
func TestBalancerByPlaceholder(t *testing.T) {
	const document = `services: {a: {endpoints: ["127.0.0.1:1"], policy: {lb: "${LB:-round_robin}"}}}`
	for _, tt := range []struct{ set, want string }{
		{"", "round_robin"}, {"least_active", "least_active"}, {"adaptive", "adaptive"},
	} {
		c, err := LoadBytes("a.yaml", []byte(document), RankFile, func(name string) (string, bool) { return tt.set, name == "LB" && tt.set != "" })
		if err != nil {
			t.Fatal(err)
		}
		if got := c.ServicePolicy(c.Services["a"]).LB.Value.Kind; got != tt.want {
			t.Errorf("LB=%q: %s, want %s", tt.set, got, tt.want)
		}
	}
	if _, err := LoadBytes("a.yaml", []byte(document), RankFile, func(string) (string, bool) { return "fastest", true }); err == nil {
		t.Error("LB=fastest was taken")
	}
}
