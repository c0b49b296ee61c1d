package config

import (
	"maps"
	"time"
)

// Register is how a service of our app is told to registries (S-3, S-25).
type Register struct {
	To              []string // registries
	ID              string   // unique among the instances of the registry's agent; empty: service, node.id and port
	Address         string   // that callers use; empty: where listen.inbound listens, or that of the node
	Port            int      // 0: that of listen.inbound
	Tags            []string
	Meta            map[string]string
	Weight          int
	Check           string        // who asks the app: CheckReport or CheckAgent
	TTL             time.Duration // without a report for so long the registry counts the instance as dead
	DeregisterAfter time.Duration // it is removed when it was critical for so long; 0: never
	Rules           string        // prefix of keys that say who may register; empty: everybody
	PublishPolicy   string        // what callers are told of how to call it: PublishNone, PublishService, PublishMethod, or empty: not said
	Lease           *Lease        // that it takes before it goes out; nil: it needs none
	From            Origin
}

// Lease bounds how many instances of a service are out for restart at a time (S-136).
type Lease struct {
	MaxOut float64       // share of the instances, at least one of them
	Wait   time.Duration // for a place; then it goes without
	TTL    time.Duration // the place of one that was killed, or has ended, is free after so long, or twice that
	Prefix string        // of the keys, with its final slash
}

func defaultLease() Lease {
	return Lease{MaxOut: 0.1, Wait: 5 * time.Minute, TTL: 15 * time.Second, Prefix: "sidecar-leases/"}
}

// Who asks the app.
const (
	CheckReport = "report" // we do, and tell the registry
	CheckAgent  = "agent"  // the registry's agent does
)

// What is published of the policies of an inbound service (S-8). Where nothing is said the sidecar publishes nothing, and somebody may
// do so by hand.
const (
	PublishNone    = "none"    // nothing, by whom ever
	PublishService = "service" // that of the service
	PublishMethod  = "method"  // those of its routes too
)

// Publishes reports whether the sidecar itself is to publish policies of the service.
func (r *Register) Publishes() bool {
	return r != nil && (r.PublishPolicy == PublishService || r.PublishPolicy == PublishMethod)
}

// MayPublish reports whether policies of the service may be published by hand: unless it says that nothing is.
func (r *Register) MayPublish() bool { return r == nil || r.PublishPolicy != PublishNone }

func defaultRegister() Register {
	return Register{Weight: 1, Check: CheckReport, TTL: 15 * time.Second, DeregisterAfter: 10 * time.Minute}
}

// Bounds of what an instance carries: lists of instances are sent whenever one of them changes (S-9).
const (
	maxMeta      = 16
	maxMetaBytes = 1 << 10
)

// RegisterMeta is what a registry is told about an inbound service beside its address.
func (c *Config) RegisterMeta(in *Inbound) map[string]string {
	meta := map[string]string{}
	maps.Copy(meta, c.Node.Labels)
	maps.Copy(meta, in.Register.Meta)
	for k, v := range map[string]string{
		"group": c.Node.Group, "version": c.Node.Version, "zone": c.Node.Zone, "region": c.Node.Region,
		"tenant": c.Node.Tenant, "environment": c.Node.Environment,
	} {
		if v != "" {
			meta[k] = v
		}
	}
	if in.Protocol != "auto" {
		meta["protocol"] = in.Protocol
	}
	return meta
}
