package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery"
	"github.com/sidecar-mesh/sidecar/explain"
	"github.com/sidecar-mesh/sidecar/snapshot"
)

// inquiry is the command line of explain.
type inquiry struct {
	paths                                   []string
	admin, method, caller, address, service string
	headers                                 []string
	inbound                                 bool
}

func explainCommand() *cobra.Command {
	var i inquiry
	var o output
	c := &cobra.Command{
		Use:   "explain [-c FILE|DIR | --admin ADDR] URL",
		Short: "Say what would become of a request, and why",
		Long: `Say what would become of a request: which service takes it and which route, why the earlier ones do not fit, what is
rewritten, the policy with the place of each field, the endpoints with whether they are usable and why not, and who would be
picked next. With -c the files are compiled and discovery is asked once; else the running sidecar answers, with the
state it is in.`,
		Example: `  sidecar explain -c sidecar.yaml http://catalog/v1/items/7
  sidecar explain -c sidecar.yaml -X POST -H 'x-user: 42' http://catalog/v1/items
  sidecar explain --admin 127.0.0.1:15000 -o json http://catalog/v1/items/7`,
		Args: takes("the URL"),
		RunE: func(c *cobra.Command, args []string) error {
			e, err := i.ask(c, args[0])
			if err != nil {
				return err
			}
			return o.write(c.OutOrStdout(), e, func() string { return e.Text(time.Now()) })
		},
	}
	f := c.Flags()
	configFlag(c, &i.paths)
	adminFlag(c, &i.admin, defaultAdmin)
	f.StringVarP(&i.method, "request", "X", "GET", "`method` of the request")
	f.StringArrayVarP(&i.headers, "header", "H", nil, "`\"NAME: VALUE\"`, a header field (may be repeated)")
	f.BoolVar(&i.inbound, "inbound", false, "a request to our own app")
	f.StringVar(&i.caller, "caller", "", "`service` that calls")
	f.StringVar(&i.address, "address", "", "`IP` of the caller")
	f.StringVar(&i.service, "service", "", "`name` of the service at whose own port the request comes in")
	outputFlag(c, &o)
	return c
}

// ask gets the explanation, from a running sidecar or from the files.
func (i *inquiry) ask(c *cobra.Command, target string) (*explain.Explanation, error) {
	switch {
	case len(i.paths) > 0 && c.Flags().Changed("admin"):
		return nil, usageOf(c, errors.New("either -c FILE or --admin ADDR, not both"))
	case len(i.paths) == 0:
		return i.online(target)
	}
	q, err := i.request(target)
	if err != nil {
		return nil, usageOf(c, err)
	}
	s, err := offline(c.Context(), i.paths)
	if err != nil {
		return nil, err
	}
	e, err := explain.Explain(s, q, time.Now())
	if err != nil {
		return nil, usageOf(c, err)
	}
	return e, nil
}

func (i *inquiry) online(target string) (*explain.Explanation, error) {
	v := url.Values{"url": {target}, "method": {i.method}, "header": i.headers}
	for name, value := range map[string]string{"caller": i.caller, "address": i.address, "service": i.service} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if i.inbound {
		v.Set("direction", "inbound")
	}
	var e explain.Explanation
	if _, err := newClient(i.admin).call("GET", "/explain", v, &e); err != nil {
		return nil, err
	}
	return &e, nil
}

func (i *inquiry) request(target string) (explain.Request, error) {
	q := explain.Request{
		Method: i.method, URL: target, Inbound: i.inbound, Service: i.service, Caller: i.caller,
	}
	for _, h := range i.headers {
		field, err := explain.ParseHeader(h)
		if err != nil {
			return q, fmt.Errorf("-H %w", err)
		}
		q.Header = append(q.Header, field)
	}
	if i.address != "" {
		addr, err := netip.ParseAddr(i.address)
		if err != nil {
			return q, fmt.Errorf("--address %q: an IP address is expected", i.address)
		}
		q.Address = addr
	}
	return q, nil
}

// offline compiles what the files say, after discovery has answered once or was waited for long enough.
func offline(ctx context.Context, paths []string) (*snapshot.Snapshot, error) {
	if ctx == nil {
		ctx = context.Background()
	}
	cfg, err := load(paths)
	if err != nil {
		return nil, err
	}
	var store snapshot.Store
	seed := rand.Uint64()
	merger := discovery.New(discovery.Options{Open: openRegistry, Apply: func(m *config.Mesh) error {
		next, err := snapshot.Compile(m, store.Load(), snapshot.Options{Seed: seed, Scripts: scripts(nil)})
		if err == nil {
			store.Swap(next)
		}
		return err
	}})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- merger.Run(ctx, cfg) }()
	select {
	case err := <-done:
		return nil, err
	case <-merger.Ready():
	}
	for _, w := range merger.Waiting() {
		fmt.Fprintf(os.Stderr, "warning: %s has not answered for service %s: %s\n", w.Source, w.Service, w.Err)
	}
	cancel()
	return store.Load(), <-done
}
