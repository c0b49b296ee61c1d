package config

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Error is one mistake in a document, with its place.
type Error struct {
	File      string
	Line, Col int
	Path      string // of the field, like services.catalog.policy.timeout; empty for the document as a whole
	Msg       string
}

// Error gives the mistake in the form file:line:col: path: message.
func (e Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		b.WriteByte(':')
		b.WriteString(strconv.Itoa(e.Line))
		b.WriteByte(':')
		b.WriteString(strconv.Itoa(max(e.Col, 1)))
	}
	b.WriteString(": ")
	if e.Path != "" {
		b.WriteString(e.Path)
		b.WriteString(": ")
	}
	b.WriteString(e.Msg)
	return b.String()
}

// Errors is every mistake of one load, ordered by file and position.
type Errors []Error

// Error lists the mistakes, one a line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	return strings.Join(lines, "\n")
}

// sorted orders by file and position and drops what is said twice.
func (e Errors) sorted() Errors {
	slices.SortStableFunc(e, func(a, b Error) int {
		return cmp.Or(
			cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col),
			cmp.Compare(a.Path, b.Path), cmp.Compare(a.Msg, b.Msg),
		)
	})
	return slices.Compact(e)
}

// asError gives nil for an empty list.
func (e Errors) asError() error {
	if len(e) == 0 {
		return nil
	}
	return e.sorted()
}

// String gives the place as source:line:col; the zero Origin is "built in".
func (o Origin) String() string {
	switch {
	case o.Source == nil:
		return "built in"
	case o.Line == 0:
		return o.Source.Name
	}
	return o.Source.Name + ":" + strconv.Itoa(int(o.Line)) + ":" + strconv.Itoa(int(max(o.Col, 1)))
}

// source gives the source, or an empty one.
func (o Origin) source() Source {
	if o.Source == nil {
		return Source{}
	}
	return *o.Source
}

// errorAt places a message.
func (o Origin) errorAt(path, msg string) Error {
	e := Error{Line: int(o.Line), Col: int(o.Col), Path: path, Msg: msg}
	if o.Source != nil {
		e.File = o.Source.Name
	}
	return e
}

// nearest finds the known name that a person most likely meant; empty when none is close.
func nearest(name string, known []string) string {
	best, bestDistance := "", 1+max(1, min(3, len(name)/3))
	for _, k := range known {
		if strings.EqualFold(strings.ReplaceAll(name, "-", "_"), k) {
			return k
		}
		if n := distance(name, k, bestDistance); n < bestDistance {
			best, bestDistance = k, n
		}
	}
	return best
}

// distance counts the insertions, removals, replacements and swaps of neighbours between a and b, up to limit.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	before, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev, row = prev, row, before
	}
	return prev[len(b)]
}
