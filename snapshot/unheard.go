package snapshot

// Unheard says of a service without endpoints which of its sources cannot be heard, to be put behind a sentence; empty: all can, or
// there are endpoints.
func (s *Service) Unheard() string {
	if len(s.Endpoints) > 0 {
		return ""
	}
	text := ""
	for i := range s.Sources {
		if st := &s.Sources[i]; st.Stale {
			text += " " + st.Name
		}
	}
	if text == "" {
		return ""
	}
	return ", and nothing is heard from" + text
}
