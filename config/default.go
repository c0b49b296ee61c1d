package config

import "time"

// Default is what holds where a document says nothing.
func Default() *Config {
	return &Config{
		Listen: Listen{
			Outbound: "127.0.0.1:15001",
			Inbound:  "0.0.0.0:15006",
			Admin:    "127.0.0.1:15000",
			Health:   "0.0.0.0:15021",
			Metrics:  "0.0.0.0:15090",
		},
		Limits: Limits{
			HeaderBytes:   60 << 10,
			HeaderCount:   100,
			HeaderTimeout: 10 * time.Second,
			IdleTimeout:   time.Minute,
			DrainGrace:    time.Second,
			DrainTimeout:  30 * time.Second,
			ReplayBytes:   64 << 10,
			HalfClose:     "serve",
			WindowMemory:  32 << 20,
		},
		Registries: map[string]*Registry{},
		Discovery: Discovery{
			ReadyWait:   5 * time.Second,
			SnapshotDir: "/var/lib/sidecar",
			Protection: Protection{
				RemovalProtection: RemovalProtection{Off: builtIn(false), MaxRatio: builtIn(0.2)},
				HalfDead: HalfDead{
					Off: builtIn(false), Below: builtIn(0.5), MinKnown: builtIn(3),
					Hold: builtIn(30 * time.Second), Memory: builtIn(10 * time.Minute),
				},
			},
			UpdateGate: UpdateGate{Enabled: builtIn(false), Percent: builtIn(0.1), Epoch: builtIn(30 * time.Second)},
		},
		Policies:  map[string]*Policy{},
		Bulkheads: map[string]*Bulkhead{},
		Services:  map[string]*Service{},
		Telemetry: Telemetry{AccessLog: AccessLog{To: "stdout", Format: "json"}},
	}
}

// BuiltIn is the policy below all others. What it leaves open (per_try_timeout, idempotent, locality, warmup) stays open.
func BuiltIn() Policy {
	return Policy{
		Timeout:        builtIn(15 * time.Second),
		ConnectTimeout: builtIn(time.Second),
		IdleTimeout:    builtIn(5 * time.Minute),
		Retry: Retry{
			Count:              builtIn(0),
			When:               builtIn([]string{"connect", "refused", "reset", "timeout", "502", "503", "504"}),
			BackoffBase:        builtIn(25 * time.Millisecond),
			BackoffMax:         builtIn(250 * time.Millisecond),
			BudgetRatio:        builtIn(0.2),
			BudgetMinPerSecond: builtIn(3),
		},
		TellDeadline: builtIn(false),
		Backup:       Backup{MaxRatio: builtIn(0.15)},
		LB:           builtIn(LB{Kind: "round_robin"}),
		Breaker: Breaker{
			Off:            builtIn(false),
			Per:            builtIn("service"),
			ErrorThreshold: builtIn(0.5),
			RequestVolume:  builtIn(20),
			Window:         builtIn(10 * time.Second),
			Buckets:        builtIn(10),
			SleepWindow:    builtIn(5 * time.Second),
			HalfOpenProbes: builtIn(1),
			SlowRatio:      builtIn(0.8),
		},
		Outlier: Outlier{
			Off:                 builtIn(false),
			ConsecutiveFailures: builtIn(5),
			ErrorRatio:          builtIn(0.5),
			TimeoutRatio:        builtIn(0.5),
			RequestVolume:       builtIn(20),
			Window:              builtIn(10 * time.Second),
			EjectFor:            builtIn(10 * time.Second),
			EjectMax:            builtIn(5 * time.Minute),
			MaxEjected:          builtIn(0.2),
			Probe:               builtIn(defaultProbe()),
		},
		Limit: Limit{Connections: builtIn(1024), InFlight: builtIn(1024), Waiting: builtIn(1024)},
		Panic: builtIn("serve_all"),
	}
}

// BuiltInCritical is BuiltIn for a service that is critical (S-154): its breaker gives it up later and tries it again sooner.
func BuiltInCritical() Policy {
	p := BuiltIn()
	p.Breaker.ErrorThreshold, p.Breaker.SleepWindow = builtIn(0.75), builtIn(2*time.Second)
	return p
}

func builtIn[T any](v T) Opt[T] { return Opt[T]{Value: v, Set: true} }

func defaultProbe() Probe { return Probe{Interval: 10 * time.Second, Timeout: time.Second} }

func defaultSlowNode() SlowNode { return SlowNode{Every: 10 * time.Second, Points: 5, Exceed: 4} }

func defaultAdaptive() AdaptiveLB {
	return AdaptiveLB{SlowFraction: 0.2, SlowWeight: 3, NormalWeight: 5, Interval: time.Minute}
}

func defaultDNS() DNSRegistry {
	return DNSRegistry{MinTTL: time.Second, MaxTTL: 5 * time.Minute, Timeout: 2 * time.Second}
}
