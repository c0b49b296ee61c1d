package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/sidecar-mesh/sidecar/hystrix"
)

func importCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "import",
		Short:   "Write the configuration of another system in our language",
		Example: "  sidecar import hystrix application.properties >policies.yaml",
		Args:    takes(),
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(&cobra.Command{
		Use:   "hystrix FILE",
		Short: "Turn hystrix.command.* properties into named policies",
		Long: `Turn the properties of Hystrix commands and thread pools into named policies: time limit, breaker, bounds. What has no
counterpart is listed in comments, with its line.`,
		Example: "  sidecar import hystrix application.properties >policies.yaml",
		Args:    takes("FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			data, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			_, err = io.WriteString(c.OutOrStdout(), hystrix.Convert(string(data)))
			return err
		},
	})
	return c
}
