package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sidecar-mesh/sidecar/admin"
	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

func validateCommand() *cobra.Command {
	var paths []string
	var o output
	c := &cobra.Command{
		Use:   "validate -c FILE|DIR",
		Short: "Check a configuration: all mistakes at once, each with its place",
		Long: `Check a configuration as run would: load, merge, compile. Nothing is opened or looked up. All mistakes go to stderr and
the exit code is 1; warnings go to stderr too and change nothing.`,
		Example: "  sidecar validate -c sidecar.yaml\n  sidecar validate -c /etc/sidecar/ -o json",
		Args:    takes(),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := needsConfig(c, paths); err != nil {
				return err
			}
			return validate(c, paths, &o)
		},
	}
	configFlag(c, &paths)
	outputFlag(c, &o)
	return c
}

// verdict is what validate says as JSON.
type verdict struct {
	Valid    bool            `json:"valid"`
	Errors   []admin.Mistake `json:"errors"`
	Warnings []string        `json:"warnings"`
}

func validate(c *cobra.Command, paths []string, o *output) error {
	v := verdict{Errors: []admin.Mistake{}, Warnings: []string{}}
	cfg, warnings, err := check(paths)
	if err != nil {
		v.Errors = mistakes(err)
	}
	v.Valid = err == nil
	for i := range warnings {
		v.Warnings = append(v.Warnings, warnings[i].Error())
	}
	if *o == "json" {
		if err := o.write(c.OutOrStdout(), v, nil); err != nil {
			return err
		}
	}
	for _, w := range v.Warnings {
		fmt.Fprintln(c.ErrOrStderr(), "warning: "+w)
	}
	if !v.Valid {
		for _, e := range v.Errors {
			fmt.Fprintln(c.ErrOrStderr(), e.Text)
		}
		return exitCode(1)
	}
	if *o == "text" {
		fmt.Fprintf(c.OutOrStdout(), "%s: ok, %s\n", strings.Join(paths, " "), summary(cfg))
	}
	return nil
}

// check loads, merges and compiles. On an error the configuration may be nil.
func check(paths []string) (*config.Config, []config.Error, error) {
	cfg, err := load(paths)
	if err != nil {
		return nil, nil, err
	}
	merged, err := config.Merge(cfg)
	if err != nil {
		return cfg, cfg.Warnings, err
	}
	compiled, err := snapshot.Compile(fixed(merged), nil, snapshot.Options{Scripts: scripts(nil)})
	if err != nil {
		return merged, merged.Warnings, err
	}
	return merged, slices.Concat(merged.Warnings, compiled.Warnings, merged.Expired(time.Now())), nil
}

// fixed is a mesh of what is written alone.
func fixed(cfg *config.Config) *config.Mesh {
	m := &config.Mesh{Config: cfg, Endpoints: map[string]*config.EndpointSet{}}
	for name, s := range cfg.Services {
		m.Endpoints[name] = &config.EndpointSet{List: s.Endpoints}
	}
	return m
}

func summary(cfg *config.Config) string {
	routes, endpoints := 0, 0
	for _, s := range cfg.Services {
		routes += len(s.Routes)
		endpoints += len(s.Endpoints)
	}
	return fmt.Sprintf("%s, %s, %s, %s",
		plural(len(cfg.Services), "service"), plural(routes, "route"), plural(endpoints, "fixed endpoint"), plural(len(cfg.Inbound), "inbound service"))
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
