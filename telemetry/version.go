package telemetry

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/sidecar-mesh/sidecar/resilience"
)

// Version counts the exchanges that ended at endpoints of one version of a service, so that old and new can be compared side
// by side (S-226). Its methods may be called by any goroutine.
type Version struct {
	name    string
	classes [6]atomic.Uint64 // by class of the status
	failed  atomic.Uint64    // reason of ours, 5xx, or a gRPC status that counts as failure
	took    atomic.Uint64    // nanoseconds, all together
}

// versions are those of one service.
type versions struct {
	mu   sync.Mutex
	list []*Version // guarded by mu
}

// Version returns the handle of a version, the same one for the same name. Names come from configuration and registries:
// beyond 32 they are counted together.
func (u *Upstream) Version(name string) *Version {
	v := &u.versions
	v.mu.Lock()
	defer v.mu.Unlock()
	if name = label(name); len(v.list) >= maxValues {
		name = v.knownLocked(name)
	}
	for _, known := range v.list {
		if known.name == name {
			return known
		}
	}
	made := &Version{name: name}
	v.list = append(v.list, made)
	return made
}

// knownLocked is the name, if there is such a version already.
func (v *versions) knownLocked(name string) string {
	for _, known := range v.list {
		if known.name == name {
			return name
		}
	}
	return overflow
}

func (v *Version) add(o *Outcome, took time.Duration) {
	v.classes[statusClass(o.Status)].Add(1)
	v.took.Add(uint64(max(took, 0)))
	ours := o.Reason != resilience.None && o.Reason != resilience.CallerGone
	if ours || (resilience.Outcome{Kind: resilience.Answered, Status: o.Status, GRPC: o.GRPC}).Failed() {
		v.failed.Add(1)
	}
}

// versions shows the versions of a service.
func (s *scrape) versions(v *versions, svc *dto.LabelPair) {
	v.mu.Lock()
	list := slices.Clone(v.list)
	v.mu.Unlock()
	for _, one := range list {
		version := pair("version", one.name)
		for class := range one.classes {
			if n := one.classes[class].Load(); n > 0 {
				s.count(s.d.versionRequests, n, svc, pair("status", statusName(uint32(class))), version)
			}
		}
		s.count(s.d.versionFailed, one.failed.Load(), svc, version)
		s.total(s.d.versionSeconds, float64(one.took.Load())/1e9, svc, version)
	}
}
