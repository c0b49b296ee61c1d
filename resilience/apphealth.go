package resilience

// AppHealth is the verdict about our own app, as answers to active probes make it. The zero value knows nothing. It
// belongs to one goroutine.
type AppHealth struct {
	known, well bool
	against     int // answers in a row that speak against the verdict
}

// AppConfig says how many answers in a row change the verdict; both are at least 1.
type AppConfig struct{ UnhealthyAfter, HealthyAfter int }

// Told takes an answer in and reports whether the verdict changed. The first answer makes one; absent says that there is
// nobody to ask, which needs no second opinion (S-52).
func (h *AppHealth) Told(c AppConfig, ok, absent bool) (changed bool) {
	if h.known && ok == h.well {
		h.against = 0
		return false
	}
	h.against++
	enough := c.UnhealthyAfter
	if ok {
		enough = c.HealthyAfter
	}
	if h.known && !absent && h.against < enough {
		return false
	}
	h.known, h.well, h.against = true, ok, 0
	return true
}

// Well returns the verdict, and whether there is one.
func (h *AppHealth) Well() (well, known bool) { return h.well, h.known }
