package proxy

import (
	"github.com/sidecar-mesh/sidecar/proxy/pipeline"
	"github.com/sidecar-mesh/sidecar/proxy/upstream"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

// linkedPool keeps the connections of each class of calls apart: what one class sends and how it fills windows is nothing to
// the others (S-184, S-185). Itself it is the pool of the calls that belong to no class.
type linkedPool struct {
	pool
	classes []pool
}

// Link implements pipeline.Linked.
func (l *linkedPool) Link(class int) pipeline.Pool { return l.classes[class-1] }

// Ready implements pipeline.Prompt for the calls that belong to no class.
func (l *linkedPool) Ready(v pipeline.Version) bool {
	p, ok := l.pool.(pipeline.Prompt)
	return !ok || p.Ready(v)
}

// bound sets the limits of each class.
func (l *linkedPool) bound(s *snapshot.Service, rest upstream.Settings) {
	l.pool.Set(rest)
	for i, c := range l.classes {
		own := rest
		own.MaxOpen = s.Links[i].Connections
		c.Set(own)
	}
}

// Sweep implements pool.
func (l *linkedPool) Sweep() {
	l.pool.Sweep()
	for _, c := range l.classes {
		c.Sweep()
	}
}

// Close implements pool.
func (l *linkedPool) Close() {
	l.pool.Close()
	for _, c := range l.classes {
		c.Close()
	}
}

// Counts implements pool.
func (l *linkedPool) Counts() (open, idle, waiting int) {
	open, idle, waiting = l.pool.Counts()
	for _, c := range l.classes {
		o, i, w := c.Counts()
		open, idle, waiting = open+o, idle+i, waiting+w
	}
	return open, idle, waiting
}
