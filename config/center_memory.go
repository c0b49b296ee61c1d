package config

import (
	"maps"
	"slices"
)

// Restore takes the documents that an earlier run had in force, until the first Set. They count like any others, but what that
// Set does not hold is gone, whatever it is: a restart is the time to let go of it.
func (c *Center) Restore(docs []Document) {
	c.Set(docs)
	for _, d := range c.docs {
		d.restored = true
	}
}

// Good returns the documents as they are in force, of those that are kept the earlier version, by name: what a later run may
// begin with.
func (c *Center) Good() []Document {
	var list []Document
	for _, name := range slices.Sorted(maps.Keys(c.docs)) {
		if d := c.docs[name]; d.good != nil {
			list = append(list, d.goodText)
		}
	}
	return list
}
