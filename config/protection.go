package config

// over fills what the files leave open from a weaker source: what is built in does not count.
func (g *UpdateGate) over(weaker *UpdateGate) {
	said(&g.Enabled, &weaker.Enabled)
	said(&g.Percent, &weaker.Percent)
	said(&g.Epoch, &weaker.Epoch)
}

func said[T any](o, weaker *Opt[T]) {
	if o.From.Source == nil && weaker.From.Source != nil {
		*o = *weaker
	}
}

// ServiceProtection is what bounds the answers of registries about a service: what it says itself, and of the rest what
// discovery says.
func (c *Config) ServiceProtection(s *Service) Protection {
	p, d := s.Protection, &c.Discovery.Protection
	inherit(&p.RemovalProtection.Off, &d.RemovalProtection.Off)
	inherit(&p.RemovalProtection.MaxRatio, &d.RemovalProtection.MaxRatio)
	inherit(&p.HalfDead.Off, &d.HalfDead.Off)
	inherit(&p.HalfDead.Below, &d.HalfDead.Below)
	inherit(&p.HalfDead.MinKnown, &d.HalfDead.MinKnown)
	inherit(&p.HalfDead.Hold, &d.HalfDead.Hold)
	inherit(&p.HalfDead.Memory, &d.HalfDead.Memory)
	return p
}
