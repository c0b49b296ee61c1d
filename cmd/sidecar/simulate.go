package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/sidecar-mesh/sidecar/simulate"
)

func simulateCommand() *cobra.Command {
	var page string
	var seed uint64
	var o output
	c := &cobra.Command{
		Use:   "simulate SCENARIO.yaml",
		Short: "Try policies in a made-up world, in virtual time",
		Long: `Play a scenario: services with latencies, queues and faults, callers behind sidecars, registries that lie. The sidecars decide
as the running proxy does, under policies in the language of the configuration; nothing is opened, and no time passes. The
same seed gives the same result. The exit code is 1 when something that the scenario expects did not come true.`,
		Example: "  sidecar simulate examples/scenarios/backup-requests.yaml\n" +
			"  sidecar simulate examples/scenarios/backup-requests.yaml --page backup.html\n" +
			"  sidecar simulate examples/scenarios/backup-requests.yaml --seed 7 -o json",
		Args: takes("SCENARIO.yaml"),
		RunE: func(c *cobra.Command, args []string) error {
			data, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			s, err := simulate.Load(args[0], data)
			if err != nil {
				return err
			}
			if c.Flags().Changed("seed") {
				s.Seed = seed
			}
			r, err := simulate.Run(s)
			if err != nil {
				return err
			}
			if page != "" {
				if err := os.WriteFile(page, []byte(r.Page()), 0o644); err != nil { //nolint:gosec // a report for anybody
					return err
				}
			}
			if err := o.write(c.OutOrStdout(), r, r.Text); err != nil {
				return err
			}
			if !r.Met() {
				return errors.New("the scenario expects what did not come true")
			}
			return nil
		},
	}
	c.Flags().StringVar(&page, "page", "", "write a page with plots to this `file`")
	c.Flags().Uint64Var(&seed, "seed", 1, "what chance depends on; default: that of the scenario")
	outputFlag(c, &o)
	return c
}
