package snapshot

import (
	"testing"

	"github.com/sidecar-mesh/sidecar/config"
)

func TestUnheard(t *testing.T) {
	s := &Service{Sources: []config.SourceState{{Name: "main", Answered: true}, {Name: "other", Stale: true, Err: "refused"}, {Name: "late"}}}
	if got, want := s.Unheard(), ", and nothing is heard from other"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s.Endpoints = []*Endpoint{{}}
	if got := s.Unheard(); got != "" {
		t.Errorf("got %q where there are endpoints", got)
	}
	if got := (&Service{}).Unheard(); got != "" {
		t.Errorf("got %q without sources", got)
	}
}
