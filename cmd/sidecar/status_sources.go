package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sidecar-mesh/sidecar/explain"
)

// documents shows what the config centre said and does not count.
func (v *status) documents(w io.Writer) {
	c := v.Center
	switch {
	case c == nil:
		return
	case c.Restored != nil:
		fmt.Fprintf(w, "documents\t%s has not answered since the start: those kept at %s are in force\n", c.Source, c.Restored.Format(time.DateTime))
	case !c.Heard:
		fmt.Fprintf(w, "documents\t%s has not answered\n", c.Source)
	}
	for _, d := range c.Documents {
		if len(d.Errors) == 0 {
			continue
		}
		counts := ""
		if d.State == "kept" {
			counts = ", an earlier version is in force"
		}
		fmt.Fprintf(w, "document\t%s refused%s:\n", d.Name, counts)
		for _, text := range d.Errors {
			fmt.Fprintf(w, "\t%s\n", text)
		}
	}
}

// unheard is a source of endpoints that cannot be heard, for the same reason of several services.
type unheard struct {
	source   explain.Source
	services []string
}

// named is how many services a line names.
const named = 5

// sources shows which sources of endpoints cannot be heard.
func (v *status) sources(b *strings.Builder) {
	var list []*unheard
	index := map[string]*unheard{}
	for _, s := range v.Services {
		for _, src := range s.Failing {
			key := src.Name + "\x00" + src.Error
			u := index[key]
			if u == nil {
				u = &unheard{source: src}
				index[key] = u
				list = append(list, u)
			}
			u.services = append(u.services, s.Name)
		}
	}
	if len(list) == 0 {
		return
	}
	w := tabwriter.NewWriter(b, 0, 1, 2, ' ', 0)
	fmt.Fprintf(w, "\nNOT HEARD\tOF SERVICES\tSINCE\tWHY\n")
	for _, u := range list {
		since := "-"
		if u.source.Since != nil {
			since = u.source.Since.Format(time.DateTime)
		}
		services := strings.Join(u.services[:min(named, len(u.services))], " ")
		if n := len(u.services) - named; n > 0 {
			services += fmt.Sprintf(" and %d more", n)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", u.source.Name, services, since, u.source.Error)
	}
	_ = w.Flush()
}
