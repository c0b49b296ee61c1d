package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/user"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sidecar-mesh/sidecar/admin"
)

func switchCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "switch list|on|off|level",
		Short: "Show and set the degradation switches of a running sidecar",
		Long: `Show and set the degradation switches of a running sidecar. The latest write counts, whoever made it; each is written into a
journal with who, when, what and why.`,
		Example: "  sidecar switch list\n  sidecar switch on reviews-off --reason 'reviews is slow'\n  sidecar switch off reviews-off\n" +
			"  sidecar switch level 1\n  sidecar switch level 0",
		Args: takes(),
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(switchListCommand(), switchSetCommand(true), switchSetCommand(false), switchLevelCommand())
	return c
}

// switches is the answer of /switches.
type switches struct {
	Switches []admin.Switch       `json:"switches"`
	Journal  []admin.SwitchChange `json:"journal"`
}

func switchListCommand() *cobra.Command {
	var address string
	var o output
	var journal bool
	c := &cobra.Command{
		Use:     "list",
		Short:   "Show the switches, or the journal of their changes",
		Example: "  sidecar switch list\n  sidecar switch list --journal\n  sidecar switch list -o json",
		Args:    takes(),
		RunE: func(c *cobra.Command, _ []string) error {
			var v switches
			if _, err := newClient(address).call("GET", "/switches", nil, &v); err != nil {
				return err
			}
			return o.write(c.OutOrStdout(), v, func() string {
				if journal {
					return journalText(v.Journal)
				}
				return switchesText(v.Switches)
			})
		},
	}
	adminFlag(c, &address, defaultAdmin)
	outputFlag(c, &o)
	c.Flags().BoolVar(&journal, "journal", false, "show who changed what, when and why")
	return c
}

// write is what the flags of a change say.
type switchFlags struct {
	address, reason, by string
	confirm             bool
	o                   output
}

func (f *switchFlags) add(c *cobra.Command) {
	adminFlag(c, &f.address, defaultAdmin)
	outputFlag(c, &f.o)
	c.Flags().StringVar(&f.reason, "reason", "", "why, for the journal; level 3 needs one")
	c.Flags().StringVar(&f.by, "by", myself(), "who, for the journal")
	c.Flags().BoolVar(&f.confirm, "confirm", false, "yes, also a switch of level 3: its impact is large")
}

// myself is the user who asks, and where.
func myself() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

func (f *switchFlags) set(name string, on bool) (admin.Switch, error) {
	body, err := json.Marshal(admin.SwitchWrite{Enabled: &on, Reason: f.reason, By: f.by, Confirm: f.confirm})
	if err != nil {
		return admin.Switch{}, err
	}
	var v admin.Switch
	_, err = newClient(f.address).send("PUT", "/switches/"+url.PathEscape(name), bytes.NewReader(body), &v)
	return v, err
}

func switchSetCommand(on bool) *cobra.Command {
	word, short := "off", "Turn a switch off: calls are made again, at once"
	if on {
		word, short = "on", "Turn a switch on"
	}
	var f switchFlags
	c := &cobra.Command{
		Use:     word + " NAME",
		Short:   short,
		Example: "  sidecar switch " + word + " reviews-off --reason 'reviews is slow'",
		Args:    takes("NAME"),
		RunE: func(c *cobra.Command, args []string) error {
			v, err := f.set(args[0], on)
			if err != nil {
				return err
			}
			return f.o.write(c.OutOrStdout(), v, func() string { return switchesText([]admin.Switch{v}) })
		},
	}
	f.add(c)
	return c
}

func switchLevelCommand() *cobra.Command {
	var f switchFlags
	c := &cobra.Command{
		Use:   "level 0|1|2|3",
		Short: "Turn on all switches up to a level, and off those above",
		Long: `Turn on all switches up to a level, and off those above: 0 turns all of them off. Level 3 needs --confirm and --reason, and
then nothing is changed without them.`,
		Example: "  sidecar switch level 1 --reason 'sale begins'\n  sidecar switch level 3 --confirm --reason 'data centre lost'\n  sidecar switch level 0",
		Args:    takes("LEVEL"),
		RunE: func(c *cobra.Command, args []string) error {
			level, err := strconv.Atoi(args[0])
			if err != nil || level < 0 || level > 3 {
				return usageOf(c, fmt.Errorf("a level from 0 to 3 is expected, got %q", args[0]))
			}
			if level == 3 && (!f.confirm || f.reason == "") {
				return usageOf(c, errors.New("level 3 needs --confirm and --reason"))
			}
			list, err := f.level(level)
			if err != nil {
				return err
			}
			return f.o.write(c.OutOrStdout(), list, func() string { return switchesText(list) })
		},
	}
	f.add(c)
	return c
}

// level sets all switches that do not stand as the level wants, those of lower levels first (S-159).
func (f *switchFlags) level(level int) ([]admin.Switch, error) {
	var v switches
	if _, err := newClient(f.address).call("GET", "/switches", nil, &v); err != nil {
		return nil, err
	}
	var errs []error
	for at := 1; at <= 3; at++ {
		for i, s := range v.Switches {
			on := s.Level <= level
			if s.Level != at || on == (s.State == "on") && s.State != "auto" && s.State != "ramp" {
				continue
			}
			now, err := f.set(s.Name, on)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			v.Switches[i] = now
		}
	}
	return v.Switches, errors.Join(errs...)
}

func switchesText(list []admin.Switch) string {
	if len(list) == 0 {
		return "there is no switch\n"
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 1, 2, ' ', 0)
	fmt.Fprintf(w, "SWITCH\tSTATE\tLEVEL\tMODE\tANSWER\tSERVICE\tROUTE\tOWNER\tLAST CHANGE\tDESCRIPTION\n")
	for _, s := range list {
		last := "-"
		if s.Last != nil {
			last = s.Last.Time.Local().Format(time.DateTime) + " by " + s.Last.By
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Name, s.State, s.Level, s.Mode, s.Answer, s.Service,
			cmp.Or(s.Route, "-"), cmp.Or(s.Owner, "-"), last, s.Description)
	}
	_ = w.Flush() // a builder takes everything
	return b.String()
}

func journalText(list []admin.SwitchChange) string {
	if len(list) == 0 {
		return "no switch was changed since the start\n"
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 1, 2, ' ', 0)
	fmt.Fprintf(w, "TIME\tSWITCH\tOLD\tNEW\tBY\tREASON\n")
	for _, e := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", e.Time.Local().Format(time.DateTime), e.Switch, e.Old, e.New, e.By, e.Reason)
	}
	_ = w.Flush()
	return b.String()
}
