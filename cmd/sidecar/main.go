// Command sidecar is a per-pod proxy: a service-mesh data plane. It is the composition root: it wires the packages
// together and is imported by none. Each subcommand has a file. Tests: the end-to-end tests of e2e run the real binary;
// what needs no process has tables here.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// Set by the linker.
var (
	version  = "dev"
	revision string
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

		SuggestionsMinimumDistance: 2,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			hint := ""
			if near := c.SuggestionsFor(args[0]); len(near) > 0 {
				hint = ", did you mean " + strings.Join(near, " or ") + "?"
			}
			return usageOf(c, fmt.Errorf("unknown command %q%s", args[0], hint))
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(usageOf)
	root.AddCommand(
		runCommand(), validateCommand(), explainCommand(), statusCommand(), eventsCommand(), simulateCommand(), drainCommand(), quitCommand(),
		versionCommand(), schemaCommand(), demoCommand(), switchCommand(), adviseCommand(), importCommand(), configCommand(), banCommand(),
	)
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

// usageOf is an error about how c was called.
func usageOf(c *cobra.Command, err error) error {
	return &usageError{fmt.Sprintf("%v\nsee: %s --help", err, c.CommandPath())}
}

// exitStatus is 2 for wrong usage and 1 for every other failure.
func exitStatus(err error) int {
	var u *usageError
	if errors.As(err, &u) {
		return 2
	}
	return 1
}

// takes allows exactly as many arguments as there are names.
func takes(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) > len(names):
			return usageOf(c, fmt.Errorf("unexpected argument %q", args[len(names)]))
		case len(args) < len(names):
			return usageOf(c, fmt.Errorf("%s is missing", names[len(args)]))
		}
		return nil
	}
}
