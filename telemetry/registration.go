package telemetry

// EventRegistration is the kind of event of a service of ours that goes From a state To another in the registry By.
const EventRegistration = "registration"

// RegistrationChanged tells that a service of our own is in another state in a registry.
func (r *Recorder) RegistrationChanged(service, registry, from, to, why string) {
	p := &r.own
	p.mu.Lock()
	if p.states == nil {
		p.states = map[[2]string]string{}
	}
	if key := [2]string{label(service), label(registry)}; len(p.states) < maxListeners || p.states[key] != "" {
		p.states[key] = to
	}
	p.mu.Unlock()
	r.events.Add(Event{Kind: EventRegistration, Service: service, From: from, To: to, By: registry, Detail: why})
}

// RegistrationTried counts an action at a registry.
func (r *Recorder) RegistrationTried(registry, action, result string) {
	p := &r.own
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.actions == nil {
		p.actions = map[[3]string]uint64{}
	}
	if key := [3]string{action, label(registry), result}; len(p.actions) < maxListeners || p.actions[key] > 0 {
		p.actions[key]++
	}
}

// EventPublished is the kind of event of a policy of ours that is To "written" for callers into the registry By, or "failed" to be.
const EventPublished = "published"

// PolicyPublished tells how a try to publish the policy of a service of our own ended. That it was there already is no event, nor
// that it failed again.
func (r *Recorder) PolicyPublished(service, registry string, written bool, err error, again bool) {
	result, detail := "unchanged", ""
	switch {
	case err != nil:
		result, detail = "failed", err.Error()
	case written:
		result = "written"
	}
	r.RegistrationTried(registry, "publish", result)
	if result != "unchanged" && (err == nil || !again) {
		r.events.Add(Event{Kind: EventPublished, Service: service, To: result, By: registry, Detail: detail})
	}
}

// EventLease is the kind of event of a service of ours that is to go out for restart and needs a lease of the registry By: To
// "waiting", "taken", "returned" when it is back, "timeout", "unavailable" or "cut_short" where it goes without, "lost".
const EventLease = "lease"

// Leased tells what became of a lease of a service of our own.
func (r *Recorder) Leased(service, registry, what, detail string) {
	r.RegistrationTried(registry, "lease", what)
	r.events.Add(Event{Kind: EventLease, Service: service, To: what, By: registry, Detail: detail})
}

// RegistrationForgotten tells that a service has left a registry for good.
func (r *Recorder) RegistrationForgotten(service, registry string) {
	p := &r.own
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.states, [2]string{label(service), label(registry)})
}

func (s *scrape) registrations(p *own) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, state := range p.states {
		s.gauge(s.d.own.registered, 1, pair("registry", key[1]), pair("service", key[0]), pair("state", state))
	}
	for key, n := range p.actions {
		s.count(s.d.own.registering, n, pair("action", key[0]), pair("registry", key[1]), pair("result", key[2]))
	}
}
