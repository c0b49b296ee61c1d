package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sidecar-mesh/sidecar/admin"
)

func statusCommand() *cobra.Command {
	var address string
	var o output
	c := &cobra.Command{
		Use:     "status [--admin ADDR]",
		Short:   "Show how a running sidecar is doing",
		Example: "  sidecar status\n  sidecar status --admin 127.0.0.1:15000 -o json",
		Args:    takes(),
		RunE: func(c *cobra.Command, _ []string) error {
			v, err := overview(newClient(address))
			if err != nil {
				return err
			}
			return o.write(c.OutOrStdout(), v, v.text)
		},
	}
	adminFlag(c, &address, defaultAdmin)
	outputFlag(c, &o)
	return c
}

// status is an overview of a running sidecar.
type status struct {
	Ready   bool            `json:"ready"`
	Reason  string          `json:"reason,omitempty"`
	Detail  string          `json:"detail,omitempty"`
	Waiting []admin.Waiting `json:"waiting,omitempty"`

	Revision   string        `json:"revision,omitempty"`
	Loaded     time.Time     `json:"loaded,omitzero"`
	Trigger    string        `json:"trigger,omitempty"`
	Sources    []string      `json:"sources,omitempty"`
	LastFailed *admin.Reload `json:"last_failed_reload"`
	Warnings   []string      `json:"warnings,omitempty"`
	Center     *admin.Center `json:"config_center,omitempty"`

	Downstream []admin.Listener `json:"downstream"`
	Services   []admin.Service  `json:"services"`
}

// overview asks for all that the overview is made of.
func overview(c *client) (*status, error) {
	v := &status{}
	if _, err := c.call("GET", "/ready", nil, v, http.StatusServiceUnavailable); err != nil {
		return nil, err
	}
	for _, path := range []string{"/config", "/connections", "/services"} {
		var part json.RawMessage
		code, err := c.call("GET", path, nil, &part, http.StatusServiceUnavailable)
		if err != nil {
			return nil, err
		}
		if code != http.StatusOK {
			continue // nothing is in force yet
		}
		if err := json.Unmarshal(part, v); err != nil {
			return nil, fmt.Errorf("GET %s: %w", path, err)
		}
	}
	return v, nil
}

func (v *status) text() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 1, 2, ' ', 0)
	if v.Ready {
		fmt.Fprintf(w, "ready\tyes\n")
	} else {
		fmt.Fprintf(w, "ready\tno, %s: %s\n", v.Reason, v.Detail)
	}
	for _, s := range v.Waiting {
		fmt.Fprintf(w, "\twaiting for %s: service %s %s\n", s.Source, s.Service, s.Error)
	}
	if v.Revision != "" {
		fmt.Fprintf(w, "revision\t%s, since %s (%s), from %s\n",
			v.Revision, v.Loaded.Format(time.DateTime), v.Trigger, strings.Join(v.Sources, " "))
	}
	if r := v.LastFailed; r != nil {
		fmt.Fprintf(w, "reload\trefused at %s (%s), %s:\n", r.Time.Format(time.DateTime), r.Trigger, plural(len(r.Errors), "error"))
		for _, e := range r.Errors {
			fmt.Fprintf(w, "\t%s\n", e.Text)
		}
	}
	for _, text := range v.Warnings {
		fmt.Fprintf(w, "warning\t%s\n", text)
	}
	v.documents(w)
	_ = w.Flush() // a builder takes everything
	v.listeners(&b)
	v.services(&b)
	v.sources(&b)
	v.own(&b)
	return b.String()
}

func (v *status) listeners(b *strings.Builder) {
	if len(v.Downstream) == 0 {
		return
	}
	w := tabwriter.NewWriter(b, 0, 1, 2, ' ', 0)
	fmt.Fprintf(w, "\nLISTENER\tDIRECTION\tADDRESS\tOPEN\tACTIVE\n")
	for _, l := range v.Downstream {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\n", l.Name, l.Direction, l.Address, l.Open, l.Active)
	}
	_ = w.Flush()
}

func (v *status) services(b *strings.Builder) {
	if len(v.Services) == 0 {
		return
	}
	w := tabwriter.NewWriter(b, 0, 1, 2, ' ', 0)
	fmt.Fprintf(w, "\nSERVICE\tDIRECTION\tUSABLE\tBREAKER\tREQUESTS\tFAILED\tPER SECOND\tP50\tP99\tIN FLIGHT\n")
	for _, s := range v.Services {
		rate, p50, p99 := "-", "-", "-"
		if s.Traffic.Rate != nil {
			rate = strconv.FormatFloat(*s.Traffic.Rate, 'f', 1, 64)
		}
		if l := s.Traffic.Latency; l != nil {
			p50, p99 = fmt.Sprintf("%.1fms", l.P50), fmt.Sprintf("%.1fms", l.P99)
		}
		fmt.Fprintf(w, "%s\t%s\t%d of %d\t%s\t%d\t%d\t%s\t%s\t%s\t%d\n", s.Name, s.Direction, s.Usable, s.Known,
			s.Breaker, s.Traffic.Requests, s.Traffic.Failed, rate, p50, p99, s.Traffic.InFlight)
	}
	_ = w.Flush()
	active := false
	for _, s := range v.Services {
		for _, what := range s.Active {
			if !active {
				b.WriteString("\nACTIVE NOW\n")
			}
			active = true
			fmt.Fprintf(b, "%s: %s\n", s.Name, what)
		}
	}
}
