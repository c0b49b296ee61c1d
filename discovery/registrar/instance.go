package registrar

import (
	"maps"
	"net"
	"os"
	"strconv"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery/registration"
)

// NodeKey is the metadata key that says which sidecar registered an instance: its node, and the port that it listens on, since a
// machine may have several.
const NodeKey = "sidecar"

// instance is what is registered for an inbound service.
func instance(cfg *config.Config, in *config.Inbound) *registration.Instance {
	reg := in.Register
	host, port := inboundAddress(cfg)
	node := nodeID(cfg)
	self := node + ":" + strconv.Itoa(port)
	if reg.Address != "" {
		host = reg.Address
	}
	if reg.Port != 0 {
		port = reg.Port
	}
	i := &registration.Instance{
		ID: reg.ID, Service: in.Service, Address: host, Port: port, Tags: reg.Tags, Weight: reg.Weight,
		Node: self, Group: cfg.Node.Group, TTL: reg.TTL, DeregisterAfter: reg.DeregisterAfter, Rules: reg.Rules,
	}
	if i.ID == "" {
		i.ID = in.Service + "-" + node + "-" + strconv.Itoa(port)
	}
	i.Meta = maps.Clone(cfg.RegisterMeta(in))
	i.Meta[NodeKey] = self
	if reg.Check == config.CheckAgent {
		i.Probe = agentProbe(in)
	}
	return i
}

// nodeID is node.id, or the name of the host.
func nodeID(cfg *config.Config) string {
	if cfg.Node.ID != "" {
		return cfg.Node.ID
	}
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "sidecar"
	}
	return name
}

// inboundAddress is the address that calls for our apps come to; no host where it listens on all of them.
func inboundAddress(cfg *config.Config) (host string, port int) {
	host, text, err := net.SplitHostPort(cfg.Listen.Inbound)
	if err != nil {
		return "", 0
	}
	port, _ = strconv.Atoi(text) // the loader has looked at it
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = ""
	}
	return host, port
}

// agentProbe is the probe of the app as the registry's agent makes it.
func agentProbe(in *config.Inbound) registration.Probe {
	h := in.Health
	p := registration.Probe{Interval: h.Interval, Timeout: h.Timeout}
	switch {
	case h.HTTP != "":
		p.HTTP = "http://" + in.App + h.HTTP
	case h.GRPC && h.Service != "":
		p.GRPC = in.App + "/" + h.Service
	case h.GRPC:
		p.GRPC = in.App
	default:
		p.TCP = in.App
	}
	return p
}
