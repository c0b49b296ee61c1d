package balance

import (
	"fmt"
	"testing"
	"time"
)

func BenchmarkPick(b *testing.B) {
	for _, n := range []int{3, 10_000} {
		for _, kind := range kinds {
			e := alike(n)
			for i := range e {
				e[i].Weight = uint32(1 + i%10)
				if i%10 == 3 {
					e[i].Meter.State.Store(StateEjected)
				}
				e[i].Meter.Observe(epoch, time.Millisecond)
			}
			s := New(Spec{Kind: kind}, e, nil)
			s.Pick(&Hint{Now: epoch})
			b.Run(fmt.Sprintf("%v/%d", kind, n), func(b *testing.B) {
				h := &Hint{Now: epoch}
				for b.Loop() {
					h.Rand = mix(h.Rand + golden)
					h.Now = h.Now.Add(10 * time.Microsecond)
					s.Pick(h)
				}
			})
		}
	}
}

func BenchmarkNew(b *testing.B) {
	e := alike(10_000)
	for i := range e {
		e[i].Weight = uint32(1 + i%40)
		e[i].Near = i%2 == 0
	}
	for _, kind := range kinds {
		b.Run(kind.String(), func(b *testing.B) {
			var prev *Set
			for b.Loop() {
				prev = New(Spec{Kind: kind, PreferNear: true, SpillBelow: 0.7}, e, prev)
			}
		})
	}
	b.Run("ring", func(b *testing.B) {
		for b.Loop() {
			New(Spec{Kind: ConsistentHash}, e, nil).ringOf()
		}
	})
	b.Run("ring_on_previous", func(b *testing.B) {
		prev := New(Spec{Kind: ConsistentHash}, e, nil)
		prev.ringOf()
		for b.Loop() {
			New(Spec{Kind: ConsistentHash}, e[1:], prev).ringOf()
		}
	})
}
