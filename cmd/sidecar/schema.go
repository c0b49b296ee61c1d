package main

import (
	"github.com/spf13/cobra"

	"github.com/sidecar-mesh/sidecar/config"
)

func schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of the configuration, for editors",
		Example: "  sidecar schema >sidecar.schema.json",
		Args:    takes(),
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := c.OutOrStdout().Write(config.Schema())
			return err
		},
	}
}
