package guard

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
)

// swing is a registry that loses its instances and has them registered anew, one after the other, over and over; how far it has come
// when it is asked is chance. All endpoints live, and none has said that it goes.
type swing struct {
	world
	n      int       // endpoints
	above  time.Time // since when enough are listed; zero: they are not
	fell   int       // how often enough became too few
	losses int       // ends of protection that took more than the share that may go
}

// ask gives the guard an answer with the first endpoints of the list, or the last ones.
func (s *swing) ask(listed int, first bool) {
	var list []*config.Endpoint
	for i := range s.n {
		if first && i < listed || !first && i >= s.n-listed {
			list = append(list, &config.Endpoint{Address: fmt.Sprintf("e%02d", i), Weight: 1})
		}
	}
	s.list = list
	before := s.last.Mode
	s.g.Answer(s.now, list)
	s.settle()
	short := 2*listed < s.n
	switch {
	case short && !s.above.IsZero():
		s.fell, s.above = s.fell+1, time.Time{}
	case !short && s.above.IsZero():
		s.above = s.now
	}
	used := len(s.last.Use)
	switch {
	case (s.last.Mode == HalfDead || listed == 0) && used != s.n:
		s.t.Fatalf("%d of %d listed: %d used, %s", listed, s.n, used, s.last.Mode)
	case before == HalfDead && s.last.Mode == Believed && s.n-used > max(1, s.n/5):
		s.losses++
		need := s.r.Hold
		if s.fell > 1 {
			need *= patience
		}
		if lasted := s.now.Sub(s.above); lasted < need {
			s.t.Fatalf("%d of %d go after %v of a list that fell %d times", s.n-used, s.n, lasted, s.fell)
		}
	}
}

// TestSwinging: whoever lives and has not said that it goes is used whenever the list is too short, though the protection may have ended
// between with only a part of them; and more than the share for failed health goes only when a list that swings has stayed for long (S-46).
func TestSwinging(t *testing.T) {
	lost := 0
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		s := &swing{world: world{t: t, now: begin, dead: map[string]bool{}, intent: map[string]bool{}}, n: 3 + rnd.IntN(18)}
		s.r = Rules{MaxRemoval: 0.2, Below: 0.5, MinKnown: 3, Hold: 2 * time.Second, Memory: 10 * time.Minute}
		s.above = begin
		s.ask(s.n, true)
		for range 200 { // for about four minutes, a second and a bit apart
			s.now = s.now.Add(time.Duration(900+rnd.IntN(400)) * time.Millisecond)
			s.ask(rnd.IntN(s.n+1), rnd.IntN(2) == 0)
		}
		lost += s.losses
		// Back for good, it is believed again, after the hold: nobody is missing.
		s.ask(s.n, true)
		s.now = s.now.Add(s.r.Hold)
		s.ask(s.n, true)
		if s.last.Mode != Believed || len(s.last.Use) != s.n {
			t.Fatalf("%s, %d of %d used", s.last.Mode, len(s.last.Use), s.n)
		}
	}
	t.Logf("a protection ended %d times with more than the share that may go missing", lost)
}
