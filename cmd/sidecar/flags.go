package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// configFlag adds -c, which may be given more than once.
func configFlag(c *cobra.Command, paths *[]string) {
	c.Flags().StringArrayVarP(paths, "config", "c", nil, "configuration `file` or folder (may be repeated)")
}

// needsConfig is what is missing when -c is.
func needsConfig(c *cobra.Command, paths []string) error {
	if len(paths) == 0 {
		return usageOf(c, errors.New("-c FILE or -c DIR is needed"))
	}
	return nil
}

// adminFlag adds --admin.
func adminFlag(c *cobra.Command, address *string, byDefault string) {
	c.Flags().StringVar(address, "admin", byDefault, "`address` of the admin API of a running sidecar")
}

const defaultAdmin = "127.0.0.1:15000"

// output is the value of -o.
type output string

// outputFlag adds -o.
func outputFlag(c *cobra.Command, o *output) {
	*o = "text"
	c.Flags().VarP(o, "output", "o", "`text` for people or json for programs")
}

// String implements pflag.Value.
func (o *output) String() string { return string(*o) }

// Type implements pflag.Value.
func (o *output) Type() string { return "format" }

// Set implements pflag.Value.
func (o *output) Set(s string) error {
	if s != "text" && s != "json" {
		return errors.New("text or json is expected")
	}
	*o = output(s)
	return nil
}

// write writes v as JSON or, for people, what text returns.
func (o *output) write(w io.Writer, v any, text func() string) error {
	if *o == "json" {
		b, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s\n", b)
		return err
	}
	_, err := io.WriteString(w, text())
	return err
}
