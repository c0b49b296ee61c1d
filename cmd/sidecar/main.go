// Command sidecar is a per-pod proxy: a service-mesh data plane. It is the composition root: it wires the packages
// together and is imported by none. Each subcommand has a file. Tests: the end-to-end tests of e2e run the real binary.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

// Set by the linker.
var (
	version  = "dev"
	revision = "unknown"
)

func main() {
	root := &cobra.Command{
		Use:           "sidecar",
		Short:         "A per-pod proxy that routes, balances, retries, ejects and explains",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version,
	}
	root.AddCommand(runCommand())
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "sidecar: "+err.Error())
		os.Exit(1)
	}
}
