package main

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sidecar-mesh/sidecar/admin"
)

func adviseCommand() *cobra.Command {
	var address string
	var o output
	c := &cobra.Command{
		Use:   "advise [--admin ADDR]",
		Short: "Compare time limits with what a running sidecar observed",
		Long: `Compare the time limits that are configured with the latencies that a running sidecar has seen in the last one to two
minutes (P999 and P9999 from 1000 calls on; a limit that cuts many calls is told sooner), with the retries they leave room for, and with how long our own callers wait.`,
		Example: "  sidecar advise\n  sidecar advise --admin 127.0.0.1:15000 -o json",
		Args:    takes(),
		RunE: func(c *cobra.Command, _ []string) error {
			list, err := advice(newClient(address))
			if err != nil {
				return err
			}
			return o.write(c.OutOrStdout(), list, func() string { return adviceText(list) })
		},
	}
	adminFlag(c, &address, defaultAdmin)
	outputFlag(c, &o)
	return c
}

// advice asks for that of all services.
func advice(c *client) ([]admin.Advice, error) {
	var v struct{ Services []admin.Service }
	if _, err := c.call("GET", "/services", nil, &v); err != nil {
		return nil, err
	}
	list := []admin.Advice{}
	for _, s := range v.Services {
		var d admin.ServiceDetail
		if _, err := c.call("GET", "/services/"+url.PathEscape(s.Name), url.Values{"direction": {s.Direction}}, &d); err != nil {
			return nil, err
		}
		list = append(list, d.Advice...)
	}
	return list, nil
}

func adviceText(list []admin.Advice) string {
	if len(list) == 0 {
		return "nothing to say: the time limits fit what was observed, as far as there was traffic\n"
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 1, 2, ' ', 0)
	fmt.Fprintf(w, "SERVICE\tROUTE\tFIELD\tCONFIGURED\tOBSERVED\tSUGGESTED\tWHY\n")
	for _, a := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", a.Service, cmp.Or(a.Route, "-"), a.Field, a.Configured,
			cmp.Or(a.Observed, "-"), cmp.Or(a.Suggested, "-"), a.Text)
	}
	_ = w.Flush() // a builder takes everything
	return b.String()
}
