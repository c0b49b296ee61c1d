package main

import (
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/sidecar-mesh/sidecar/admin"
)

func drainCommand() *cobra.Command {
	var address string
	var wait time.Duration
	var o output
	c := &cobra.Command{
		Use:   "drain [--admin ADDR]",
		Short: "Drain a running sidecar; it stays",
		Long: `Drain a running sidecar: it is not ready any more, finishes what is in flight and takes nothing new. It does not end: that
is what SIGTERM and quit are for.`,
		Example: "  sidecar drain\n  sidecar drain --admin 127.0.0.1:15000 --wait 30s",
		Args:    takes(),
		RunE: func(c *cobra.Command, _ []string) error {
			query := url.Values{}
			client := newClient(address)
			if wait > 0 {
				query.Set("wait", wait.String())
				client.http.Timeout = patience + wait
			}
			var v admin.Drain
			if _, err := client.call("POST", "/drain", query, &v); err != nil {
				return err
			}
			return o.write(c.OutOrStdout(), v, func() string { return drainText(v) })
		},
	}
	adminFlag(c, &address, defaultAdmin)
	c.Flags().DurationVar(&wait, "wait", 0, "wait so long at most until nothing is left")
	outputFlag(c, &o)
	return c
}

func quitCommand() *cobra.Command {
	var address string
	var o output
	c := &cobra.Command{
		Use:     "quit [--admin ADDR]",
		Short:   "End a running sidecar, as a job does when its work is done",
		Long:    `End a running sidecar: it takes nothing new, gives what is in flight 5 s, and exits with 0.`,
		Example: "  sidecar quit\n  sidecar quit --admin 127.0.0.1:15000",
		Args:    takes(),
		RunE: func(c *cobra.Command, _ []string) error {
			var v admin.Drain
			if _, err := newClient(address).call("POST", "/quit", nil, &v); err != nil {
				return err
			}
			return o.write(c.OutOrStdout(), v, func() string { return drainText(v) })
		},
	}
	adminFlag(c, &address, defaultAdmin)
	outputFlag(c, &o)
	return c
}

func drainText(v admin.Drain) string {
	if v.Cut > 0 {
		return fmt.Sprintf("%s, %s cut off\n", v.State, plural(v.Cut, "connection"))
	}
	return v.State + "\n"
}
