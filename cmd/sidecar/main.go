// Command sidecar is a per-pod proxy: a service-mesh data plane. It is the composition root: it wires the packages
// together and is imported by none. Each subcommand has a file. Tests: the end-to-end tests of e2e run the real binary.
package main

import (
	"errors"
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
	err := rootCommand().Execute()
	var code exitCode
	switch {
	case err == nil:
	case errors.As(err, &code):
		os.Exit(int(code))
	default:
		fmt.Fprintln(os.Stderr, "sidecar: "+err.Error())
		os.Exit(exitStatus(err))
	}
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "sidecar",
		Short: "A per-pod proxy that routes, balances, retries, ejects and explains",
		Example: "  sidecar validate -c sidecar.yaml\n  sidecar run -c sidecar.yaml\n" +
			"  sidecar explain -c sidecar.yaml http://catalog/items",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version,
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return usageOf(c, err) })
	root.AddCommand(runCommand())
	return root
}

// exitCode ends the process with a code and no message.
type exitCode int

// Error implements error.
func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// usageError is a command line that makes no sense: exit code 2.
type usageError struct{ text string }

// Error implements error.
func (e *usageError) Error() string { return e.text }

func usage(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

func usageOf(c *cobra.Command, err error) error {
	return usage("%v\nsee: %s --help", err, c.CommandPath())
}

// exitStatus is 2 for wrong usage and 1 for every other failure.
func exitStatus(err error) int {
	var u *usageError
	if errors.As(err, &u) {
		return 2
	}
	return 1
}
