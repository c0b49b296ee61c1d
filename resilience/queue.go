package resilience

import "time"

// The queue of a Limiter: for each rank the waiters in order of arrival.

// expireLocked drops waiters at the head of each rank that are over their time: they are never admitted.
func (s *limiterState) expireLocked(now time.Time) {
	for rank := range s.first {
		for w := s.first[rank]; w != nil && !w.until.IsZero() && !now.Before(w.until); w = s.first[rank] {
			s.n.Add(^uint64(oneWaiting - 1))
			s.unlinkLocked(w, waiterExpired)
		}
	}
}

// bestLocked is the waiter whose turn it is, nil if nobody waits.
func (s *limiterState) bestLocked() *Waiter {
	for _, w := range s.first {
		if w != nil {
			return w
		}
	}
	return nil
}

// worstLocked is the last of the waiters that matter least, nil if all matter as much as one of a rank does.
func (s *limiterState) worstLocked(rank uint8) *Waiter {
	for i := Ranks - 1; i > int(rank); i-- {
		if w := s.first[i]; w != nil {
			return w.prev
		}
	}
	return nil
}

func (s *limiterState) pushLocked(w *Waiter) {
	first := &s.first[w.Rank]
	w.state, w.next = waiterQueued, nil
	if *first == nil {
		*first, w.prev = w, w
		return
	}
	last := (*first).prev
	last.next, w.prev, (*first).prev = w, last, w
}

func (s *limiterState) unlinkLocked(w *Waiter, state waiterState) {
	first := &s.first[w.Rank]
	switch {
	case *first == w:
		if *first = w.next; *first != nil {
			(*first).prev = w.prev
		}
	default:
		w.prev.next = w.next
		if w.next != nil {
			w.next.prev = w.prev
		} else {
			(*first).prev = w.prev
		}
	}
	w.prev, w.next, w.state = nil, nil, state
}
