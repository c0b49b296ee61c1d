package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sidecar-mesh/sidecar/admin"
	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery/consul"
)

func configPublish() *cobra.Command {
	var s store
	var methods bool
	c := &cobra.Command{
		Use:   "publish -c FILE|DIR",
		Short: "Publish how our inbound services are to be called",
		Long: `Write the policy of each inbound service of a file to published/NAME: callers use it wherever their own configuration is
silent. Of a service with publish_policy: method, and of all with --methods, the policies of the routes go with it; where many
services have many methods, callers had better say such details themselves. What did not change is not written. A service with
publish_policy: none is left out and named; where that leaves none, the command fails.`,
		Example: "  sidecar config publish -c sidecar.yaml\n  sidecar config publish -c sidecar.yaml --methods",
		Args:    takes(),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := needsConfig(c, s.paths); err != nil {
				return err
			}
			return s.with(c, func(ctx context.Context, kv *consul.KV, cfg *config.Config) error {
				services, refusals := publishable(cfg)
				if len(services) == 0 && len(refusals) > 0 {
					return errors.Join(refusals...)
				}
				for _, err := range refusals {
					fmt.Fprintln(c.ErrOrStderr(), "warning: "+err.Error())
				}
				return publishAll(ctx, c, kv, services, methods)
			})
		},
	}
	configFlag(c, &s.paths)
	c.Flags().BoolVar(&methods, "methods", false, "the policies of routes too, of all services")
	return c
}

// publishable are the inbound services whose policies may be published, and why others may not (S-8 … S-13).
func publishable(cfg *config.Config) (services []*config.Inbound, refusals []error) {
	for _, in := range cfg.Inbound {
		if err := refusal(in); err != nil {
			refusals = append(refusals, err)
			continue
		}
		services = append(services, in)
	}
	return services, refusals
}

func refusal(in *config.Inbound) error {
	if in.Register.MayPublish() {
		return nil
	}
	return fmt.Errorf("%s is not published: inbound.%s.register (%s) says publish_policy: none", in.Service, in.Service, in.Register.From)
}

// mayPut refuses a document that the file beside it says is not to be: of an own service with publish_policy: none.
func mayPut(cfg *config.Config, name string) error {
	service, ok := strings.CutPrefix(name, publishedPrefix)
	if !ok || cfg == nil {
		return nil
	}
	for _, in := range cfg.Inbound {
		if in.Service == service {
			return refusal(in)
		}
	}
	return nil
}

// largePolicy is the length of a document from which it is told what it costs (S-9, S-11).
const largePolicy = 64 << 10

func publishAll(ctx context.Context, c *cobra.Command, kv *consul.KV, services []*config.Inbound, methods bool) error {
	for _, in := range services {
		routes := methods || in.Register != nil && in.Register.PublishPolicy == config.PublishMethod
		text, err := admin.Published(in, routes)
		written := false
		if len(text) > largePolicy {
			fmt.Fprintf(c.ErrOrStderr(), "warning: %s%s has %d KiB, which every caller is sent with each change: details of methods are better written where they are called\n",
				publishedPrefix, in.Service, len(text)>>10)
		}
		if err == nil && text != nil {
			written, err = publish(ctx, kv, in.Service, text)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", in.Service, err)
		}
		switch {
		case written:
			fmt.Fprintf(c.OutOrStdout(), "%s%s: written\n", publishedPrefix, in.Service)
		case text != nil:
			fmt.Fprintf(c.OutOrStdout(), "%s%s: says so already\n", publishedPrefix, in.Service)
		default:
			fmt.Fprintf(c.OutOrStdout(), "%s%s: not written, there is no policy to publish\n", publishedPrefix, in.Service)
		}
	}
	return nil
}

// publishedPrefix begins the names of the documents by which providers say how they are to be called.
const publishedPrefix = "published/"

// publish writes a document, if it is not there yet.
func publish(ctx context.Context, kv *consul.KV, service string, text []byte) (written bool, err error) {
	name := publishedPrefix + service
	doc, err := kv.Get(ctx, name)
	if err != nil || doc != nil && bytes.Equal(doc.Data, text) {
		return false, err
	}
	if err := kv.Put(ctx, name, text, nil); err != nil {
		return false, err
	}
	return true, nil
}
