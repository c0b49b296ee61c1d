package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sidecar-mesh/sidecar/internal/demo"
)

func demoCommand() *cobra.Command {
	o := demo.Options{Out: os.Stdout}
	c := &cobra.Command{
		Use:   "demo",
		Short: "Show in half a minute what the proxy does: toy services, faults, traffic, in one process",
		Long: `Run toy services, a proxy before them and an app that calls through it, all in this process and on loopback. Endpoints
die, hang and come back, and the configuration changes, while the app goes on. Every line that claims something is
checked; the exit code is 1 when one of them does not hold.`,
		Example: "  sidecar demo",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			o.Colour = isTerminal(os.Stdout) && os.Getenv("NO_COLOR") == ""
			err := demo.Run(ctx, o)
			if ctx.Err() != nil {
				return errors.New("interrupted")
			}
			return err
		},
	}
	c.Flags().BoolVar(&o.Short, "short", false, "the same with shorter times")
	_ = c.Flags().MarkHidden("short")
	return c
}

// isTerminal reports whether people look at a file right now.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
