package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/sidecar-mesh/sidecar/telemetry"
)

func eventsCommand() *cobra.Command {
	var address, service, kind string
	var follow bool
	var o output
	c := &cobra.Command{
		Use:   "events [--follow] [--admin ADDR]",
		Short: "Show what a running sidecar decided: ejections, breakers, switches, reloads",
		Long: `Show the last events of a running sidecar, oldest first: every change of verdict with its reason. With --follow it goes on
with new ones until it is interrupted or the sidecar ends. A line with ! says that something works less well than before.`,
		Example: "  sidecar events\n  sidecar events --follow --service catalog\n  sidecar events --follow --kind breaker -o json",
		Args:    takes(),
		RunE: func(c *cobra.Command, _ []string) error {
			query := url.Values{}
			for name, value := range map[string]string{"service": service, "kind": kind} {
				if value != "" {
					query.Set(name, value)
				}
			}
			if follow {
				ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
				defer stop()
				return followEvents(ctx, newClient(address), query, o, c.OutOrStdout())
			}
			var v struct {
				Events []telemetry.Event `json:"events"`
			}
			if _, err := newClient(address).call("GET", "/events", query, &v); err != nil {
				return err
			}
			return o.write(c.OutOrStdout(), v, func() string {
				var b strings.Builder
				for i := range v.Events {
					b.WriteString(eventLine(&v.Events[i]))
				}
				return b.String()
			})
		},
	}
	adminFlag(c, &address, defaultAdmin)
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with new events")
	c.Flags().StringVar(&service, "service", "", "only events of this `service`")
	c.Flags().StringVar(&kind, "kind", "", "only events of this `kind`, such as ejected or breaker")
	outputFlag(c, &o)
	return c
}

// followEvents prints events as they come: with -o json one object a line.
func followEvents(ctx context.Context, c *client, query url.Values, o output, out io.Writer) error {
	query.Set("follow", "true")
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/events?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	c.http.Timeout = 0
	resp, err := c.http.Do(q)
	if err != nil {
		return unlessInterrupted(ctx, fmt.Errorf("the admin API does not answer: %w", err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET /events: %s", resp.Status)
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue // only says that the other side is there
		}
		var e telemetry.Event
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("GET /events: %w", err)
		}
		text := string(line) + "\n"
		if o != "json" {
			text = eventLine(&e)
		}
		if _, err := io.WriteString(out, text); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) { // that is a sidecar which was killed
		return unlessInterrupted(ctx, err)
	}
	return nil
}

// unlessInterrupted is err, but for a person who has seen enough.
func unlessInterrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// eventLine is an event as one line for people.
func eventLine(e *telemetry.Event) string {
	mark := " "
	if e.Alarming() {
		mark = "!"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s", e.Time.Local().Format(time.DateTime+".000"), mark, e.Kind)
	for _, f := range []struct{ name, value string }{
		{"service", e.Service}, {"route", e.Route}, {"endpoint", e.Endpoint}, {"by", e.By},
	} {
		if f.value != "" {
			fmt.Fprintf(&b, " %s=%s", f.name, f.value)
		}
	}
	switch {
	case e.From != "" && e.To != "":
		fmt.Fprintf(&b, " %s → %s", e.From, e.To)
	case e.To != "":
		b.WriteString(" → " + e.To)
	}
	if e.Detail != "" {
		b.WriteString(": " + strings.Map(printable, e.Detail))
	}
	return b.String() + "\n"
}

// printable keeps what somebody else wrote from moving the cursor of who reads it.
func printable(r rune) rune {
	if unicode.IsControl(r) {
		return ' '
	}
	return r
}
