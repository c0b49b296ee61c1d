package main

import (
	"net"
	"net/netip"
	"os"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/script"
)

// scripts is what runs script rules; failed is told each run that failed.
func scripts(failed func(error)) *script.Engine { return script.New(script.Options{Failed: failed}) }

// load reads a configuration and fills what the machine knows better than a file: the addresses of the pod.
func load(paths []string) (*config.Config, error) {
	cfg, err := config.Load(paths, os.LookupEnv)
	if err == nil && len(cfg.Node.Addresses) == 0 {
		cfg.Node.Addresses = interfaceAddresses()
	}
	return cfg, err
}

// interfaceAddresses lists the addresses of the network interfaces, loopback included, link-local ones left out.
func interfaceAddresses() []netip.Addr {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil // rules about hosts then fit nobody; node.address mends it
	}
	var all []netip.Addr
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLinkLocalUnicast() {
			all = append(all, p.Addr().Unmap())
		}
	}
	return all
}
