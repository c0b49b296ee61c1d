package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func versionCommand() *cobra.Command {
	var o output
	c := &cobra.Command{
		Use:     "version",
		Short:   "Say which version this is",
		Example: "  sidecar version\n  sidecar version -o json",
		Args:    takes(),
		RunE: func(c *cobra.Command, _ []string) error {
			v := struct {
				Version  string `json:"version"`
				Revision string `json:"revision"`
				Go       string `json:"go"`
				Platform string `json:"platform"`
			}{version, sourceRevision(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			return o.write(c.OutOrStdout(), v, func() string {
				return fmt.Sprintf("sidecar %s (revision %s, %s, %s)\n", v.Version, v.Revision, v.Go, v.Platform)
			})
		},
	}
	outputFlag(c, &o)
	return c
}

// sourceRevision is what the linker or else the build says about the source.
func sourceRevision() string {
	if revision != "" {
		return revision
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value[:min(12, len(s.Value))]
			}
		}
	}
	return "unknown"
}
