package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// own shows how our own apps are doing, and where they are registered.
func (v *status) own(b *strings.Builder) {
	w := tabwriter.NewWriter(b, 0, 1, 2, ' ', 0)
	head := "\nAPP\tSTATE\tSINCE\tWHY\n"
	for _, s := range v.Services {
		if s.App != nil {
			fmt.Fprintf(w, "%s%s\t%s\t%s\t%s\n", head, s.Name, s.App.State, s.App.Since.Format(time.DateTime), s.App.Reason)
			head = ""
		}
	}
	_ = w.Flush()
	head = "\nREGISTERED\tIN\tAS\tSTATE\tSINCE\tWHY\n"
	for _, s := range v.Services {
		for _, r := range s.Registrations {
			fmt.Fprintf(w, "%s%s\t%s\t%s\t%s\t%s\t%s\n", head, s.Name, r.Registry, r.ID, r.State, r.Since.Format(time.DateTime), r.Reason)
			head = ""
		}
	}
	_ = w.Flush()
}
