package consul

import (
	"encoding/json"
	"hash/maphash"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/sidecar-mesh/sidecar/config"
)

// entry is the useful part of one instance in an answer of /v1/health/service.
type entry struct {
	Node struct {
		Address string
		Meta    map[string]string
	}
	Service struct {
		Address    string
		Port       int
		SocketPath string
		Tags       []string
		Meta       map[string]string
		Weights    *struct{ Passing, Warning int }
		Locality   *struct{ Region, Zone string }
	}
	Checks []struct{ CheckID, Status string }
}

// answer is a list of instances. What it means is looked at only when its bytes are new.
type answer struct {
	seed    maphash.Seed
	last    sums
	raw     uint64
	same    bool // byte for byte what it was
	entries []entry
}

// summed sums up a body before anybody reads it, and says whether it is to be read at all.
func (a *answer) summed(body []byte) (read bool) {
	a.raw = maphash.Bytes(a.seed, body)
	a.same = a.last.known && a.raw == a.last.raw
	return !a.same
}

// UnmarshalJSON implements json.Unmarshaler.
func (a *answer) UnmarshalJSON(data []byte) error {
	if a.same {
		return nil
	}
	if err := json.Unmarshal(data, &a.entries); err != nil {
		return &Error{Kind: BadAnswer, Text: err.Error()}
	}
	return nil
}

// endpoints makes the endpoints of an answer, in the order of addresses.
func (s *Source) endpoints(entries []entry) []*config.Endpoint {
	list := make([]*config.Endpoint, 0, len(entries))
	for i := range entries {
		if s.counts(&entries[i]) {
			if e := s.endpoint(&entries[i], list); e != nil {
				list = append(list, e)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b *config.Endpoint) int { return strings.Compare(a.Address, b.Address) })
	return list
}

// shares is with how many endpoints before it one is compared: instances of a service differ in few labels, if in any.
const shares = 8

// shared returns labels as a recent endpoint of the list has them, if one does. Labels are never written to.
func shared(labels map[string]string, list []*config.Endpoint) map[string]string {
	for _, o := range list[max(len(list)-shares, 0):] {
		if maps.Equal(labels, o.Labels) {
			return o.Labels
		}
	}
	return labels
}

// counts reports whether an instance carries the tags and the metadata that the registry's configuration asks for.
func (s *Source) counts(e *entry) bool {
	for _, tag := range s.reg.Tags {
		if !slices.Contains(e.Service.Tags, tag) {
			return false
		}
	}
	for k, v := range s.reg.Meta {
		if got, ok := e.Service.Meta[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// endpoint makes the endpoint of an instance; nil where it has no address to call. It shares what it can with those before it.
func (s *Source) endpoint(e *entry, list []*config.Endpoint) *config.Endpoint {
	address := addressOf(e)
	if address == "" {
		return nil
	}
	labels := shared(labelsOf(e), list)
	out := &config.Endpoint{
		Address: address,
		Group:   labels["group"],
		Version: labels["version"],
		Zone:    labels["zone"],
		Region:  labels["region"],
		Labels:  labels,
		From:    config.Origin{Source: s.origin},
		Health:  healthOf(e),
	}
	if l := e.Service.Locality; l != nil {
		if out.Zone == "" {
			out.Zone = l.Zone
		}
		if out.Region == "" {
			out.Region = l.Region
		}
	}
	out.Weight = weightOf(e, out.Health, labels["weight"])
	return out
}

// addressOf is the service's own address, or that of its node.
func addressOf(e *entry) string {
	if path := e.Service.SocketPath; path != "" {
		return "unix:" + path
	}
	host := e.Service.Address
	if host == "" {
		host = e.Node.Address
	}
	if host == "" || e.Service.Port <= 0 || e.Service.Port > 65535 {
		return ""
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), strconv.Itoa(e.Service.Port))
}

// labelsOf gives the metadata, and the tags: key=value as written, any other as a label with the value "true". Metadata wins.
func labelsOf(e *entry) map[string]string {
	if len(e.Service.Tags)+len(e.Service.Meta) == 0 {
		return nil
	}
	labels := make(map[string]string, len(e.Service.Tags)+len(e.Service.Meta))
	for _, tag := range e.Service.Tags {
		key, v, pair := strings.Cut(tag, "=")
		if !pair {
			v = "true"
		}
		if key != "" {
			labels[key] = v
		}
	}
	for k, v := range e.Service.Meta {
		labels[k] = v
	}
	return labels
}

// Prefixes of the checks by which an operator takes out a service or a node.
const (
	serviceMaintenance = "_service_maintenance:"
	nodeMaintenance    = "_node_maintenance"
)

// healthOf is the worst of an instance's checks, those of its node included.
func healthOf(e *entry) config.Health {
	h := config.HealthPassing
	for _, c := range e.Checks {
		switch {
		case c.Status == "passing":
		case strings.HasPrefix(c.CheckID, serviceMaintenance) || c.CheckID == nodeMaintenance || c.Status == "maintenance":
			h = max(h, config.HealthMaintenance)
		case c.Status == "warning":
			h = max(h, config.HealthWarning)
		default:
			h = max(h, config.HealthCritical)
		}
	}
	return h
}

// maxWeight is the largest weight an endpoint may have.
const maxWeight = 1_000_000

// weightOf is the weight that Consul has for the state; where that says nothing, the one in the metadata, else 1.
func weightOf(e *entry, h config.Health, meta string) int {
	w := 1
	if e.Service.Weights != nil {
		w = e.Service.Weights.Passing
		if h == config.HealthWarning {
			w = e.Service.Weights.Warning
		}
	}
	if n, err := strconv.Atoi(meta); err == nil && w == 1 {
		w = n
	}
	return min(max(w, 0), maxWeight)
}

// hash sums up what a list says.
func (s *Source) hash(list []*config.Endpoint) uint64 {
	var h maphash.Hash
	h.SetSeed(s.seed)
	for _, e := range list {
		maphash.WriteComparable(&h, [...]string{e.Address, e.Group, e.Version, e.Zone, e.Region})
		maphash.WriteComparable(&h, [...]int{e.Weight, int(e.Health), len(e.Labels)})
		sum := uint64(0) // of labels in any order
		for k, v := range e.Labels {
			sum += maphash.Comparable(s.seed, [2]string{k, v})
		}
		maphash.WriteComparable(&h, sum)
	}
	return h.Sum64()
}
