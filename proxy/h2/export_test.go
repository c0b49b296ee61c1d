package h2

// Burn has the connections of a pool run out of identifiers.
func Burn(p *Pool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.session.mu.Lock()
		c.session.nextID = lastStream + 1
		c.session.mu.Unlock()
	}
}
