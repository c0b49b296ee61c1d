package telemetry

// InheritedCount says how many fields of a policy a provider decided.
type InheritedCount struct {
	Service, Route string // Route is empty for the service itself
	Fields         int
}

// Inherited sets which policies are inherited. The list belongs to the recorder from here on; its names come from
// configuration.
func (r *Recorder) Inherited(list []InheritedCount) { r.parts.inherited.Store(&list) }

// inherited shows which policies are inherited.
func (s *scrape) inherited(p *parts) {
	if list := p.inherited.Load(); list != nil {
		for _, v := range *list {
			s.gauge(s.d.inherited, float64(v.Fields), pair("route", label(v.Route)), pair("service", label(v.Service)))
		}
	}
}
