package h2

func (s *session) onHeaders(f *frame) error {
	if f.id%2 == 0 {
		return &connError{protocolError, "HEADERS on a stream that no client opens"}
	}
	s.head, s.headID, s.parts, s.raw, s.spill = newHead(), f.id, 0, 0, 0
	s.head.end = f.has(flagEndStream)
	return s.block(f)
}

func (s *session) onContinuation(f *frame) error {
	if s.parts++; s.parts > maxContinuations {
		return &connError{enhanceYourCalm, "too many CONTINUATION frames"}
	}
	return s.block(f)
}

// block decodes one part of a header block.
func (s *session) block(f *frame) error {
	s.raw += len(f.payload)
	if s.raw > maxBlock*s.lim.HeaderBytes {
		return &connError{enhanceYourCalm, "header block too large"}
	}
	if err := s.dec.feed(f.payload, f.has(flagEndHeaders)); err != nil {
		return err
	}
	if !f.has(flagEndHeaders) {
		return nil
	}
	h := s.head
	s.head = nil
	s.suspect.Store(false)
	if h.tooMuch { // decoding it cost more than sending it
		if err := s.charge(costHead + s.spill/headOctets); err != nil {
			h.release()
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.streams[s.headID]; st != nil {
		return st.headersLocked(h)
	}
	return s.owner.headers(s, s.headID, h)
}

// field takes a decoded field. Where a block becomes far too much it is decoded no further: an octet may stand for 4 kB.
func (s *session) field(e *entry) error {
	h := s.head
	if h.tooMuch {
		s.spill += e.size()
	}
	h.add(e, s.lim)
	if h.tooMuch && (h.size > maxBlock*s.lim.HeaderBytes || h.count > maxBlock*s.lim.HeaderCount+pseudoFields) {
		return &connError{enhanceYourCalm, "header block decodes to too much"}
	}
	return nil
}
