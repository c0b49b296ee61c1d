package telemetry

import (
	"maps"
	"slices"
	"sync"
)

// states are those of degradation switches, by name.
type states struct {
	mu sync.Mutex
	m  map[string]int // guarded by mu
}

// SwitchState tells where a degradation switch stands, by the number of its state.
func (r *Recorder) SwitchState(name string, state int) {
	s := &r.parts.switches
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil {
		s.m = map[string]int{}
	}
	s.m[name] = state
}

// RetainSwitches forgets the switches for which live returns false.
func (r *Recorder) RetainSwitches(live func(name string) bool) {
	s := &r.parts.switches
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.m, func(name string, _ int) bool { return !live(name) })
}

// each calls f for every switch, by name.
func (s *states) each(f func(name string, state int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.m)) {
		f(name, s.m[name])
	}
}
