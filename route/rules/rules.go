// Package rules reads and applies the rules between a caller and the endpoints of a service: condition rules as Dubbo
// writes them (S-114 … S-122), bare, as condition:// URLs or in parts, and script rules, whose language is somebody
// else's business. It is pure: a rule set is immutable, a narrowing is a function of caller, method and endpoints, and
// each answer names the rule that gave it. It imports nothing of the project. Tests: the examples of the specification
// as printed, tables of what is tolerated and refused, a fuzz test of the parser, and properties of narrowing.
package rules

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Rule is one rule, parsed.
type Rule struct {
	Name     string
	Text     string // as it was understood, in one form
	From     string // where it is written
	When     Clause // which calls it is about; empty: all
	Then     Clause // which endpoints it leaves
	Forbid   bool   // it leaves none: the caller is refused (S-117)
	Consumer Pattern
	Priority int       // larger acts first; equal ones in the order written
	Enabled  bool      // false: kept, and not applied
	Force    bool      // what leaves no endpoint: true refuses, false is passed over
	Until    time.Time // it acts no more from then on; zero: it always acts
	Runtime  bool      // a script is asked for each call, not once for each list of endpoints
	Script   *Script
}

// Script is a program that chooses endpoints.
type Script struct {
	Language string
	Source   string
}

// Clause is a conjunction of terms; the empty one always fits.
type Clause []Term

// Term asks for one attribute. Any value of In must fit, if there are some, and none of Out.
type Term struct {
	Key     string
	In, Out []Pattern
}

// Host is an address as text and, if it is an IP address, as such.
type Host struct {
	Text string
	Addr netip.Addr
}

// HostOf makes a host of the text of an address; brackets of IPv6 are left out.
func HostOf(text string) Host {
	text = strings.Trim(text, "[]")
	a, err := netip.ParseAddr(text)
	if err != nil {
		return Host{Text: text}
	}
	return AddrHost(a)
}

// AddrHost makes a host of an IP address.
func AddrHost(a netip.Addr) Host {
	a = a.Unmap().WithZone("")
	return Host{Text: a.String(), Addr: a}
}

// Party is one side of a call: who asks, or an endpoint.
type Party struct {
	// Hosts are its addresses: a pod may have several. A value fits if it fits one of them.
	Hosts []Host
	// Attr gives any other attribute but the method; nil: there are none.
	Attr func(key string) (value string, ok bool)
	// Partial says that Attr does not know all there is: a clause that needs what it does not know fits nothing.
	Partial bool
}

// fits tells whether a party has all that the clause asks for, except the method. ref is what $name stands for.
func (c Clause) fits(p, ref *Party) bool {
	for i := range c {
		if t := &c[i]; t.Key != keyMethod && !t.fits(p, ref) {
			return false
		}
	}
	return true
}

const (
	keyHost   = "host"
	keyMethod = "method"
)

func (t *Term) fits(p, ref *Party) bool {
	if t.Key == keyHost {
		if len(p.Hosts) == 0 {
			return !p.Partial && len(t.In) == 0
		}
		return (len(t.In) == 0 || anyHost(t.In, p.Hosts, ref)) && !anyHost(t.Out, p.Hosts, ref)
	}
	value, ok := "", false
	if p.Attr != nil {
		value, ok = p.Attr(t.Key)
	}
	if !ok {
		return !p.Partial && len(t.In) == 0
	}
	return t.holds(value, ref)
}

// holds compares one value.
func (t *Term) holds(value string, ref *Party) bool {
	return (len(t.In) == 0 || anyText(t.In, value, ref)) && !anyText(t.Out, value, ref)
}

func anyHost(list []Pattern, hosts []Host, ref *Party) bool {
	for i := range list {
		for j := range hosts {
			if list[i].fitsHost(&hosts[j], ref) {
				return true
			}
		}
	}
	return false
}

func anyText(list []Pattern, value string, ref *Party) bool {
	for i := range list {
		if list[i].fitsText(value, ref) {
			return true
		}
	}
	return false
}

// fitsMethod tells whether the clause's terms about the method hold.
func (c Clause) fitsMethod(method string) bool {
	for i := range c {
		if t := &c[i]; t.Key == keyMethod {
			if method == "" {
				if len(t.In) > 0 {
					return false
				}
				continue
			}
			if !t.holds(method, nil) {
				return false
			}
		}
	}
	return true
}

// asksMethod tells whether the method matters.
func (c Clause) asksMethod() bool {
	return slices.ContainsFunc(c, func(t Term) bool { return t.Key == keyMethod })
}

// String writes the clause as a rule has it.
func (c Clause) String() string {
	var b strings.Builder
	for i := range c {
		t := &c[i]
		for _, side := range []struct {
			op   string
			list []Pattern
		}{{" = ", t.In}, {" != ", t.Out}} {
			if len(side.list) == 0 {
				continue
			}
			if b.Len() > 0 {
				b.WriteString(" & ")
			}
			b.WriteString(t.Key)
			b.WriteString(side.op)
			for j := range side.list {
				if j > 0 {
					b.WriteByte(',')
				}
				b.WriteString(side.list[j].text)
			}
		}
	}
	return b.String()
}

// over tells whether the time of the rule has passed.
func (r *Rule) over(now time.Time) bool { return !r.Until.IsZero() && !now.Before(r.Until) }

// Refusal says, to whom it refuses, which rule it is.
func (r *Rule) Refusal() string {
	s := "the rule " + r.Label() + " forbids it"
	if !r.Until.IsZero() {
		s += " until " + r.Until.UTC().Format(time.RFC3339)
	}
	if r.From != "" {
		s += " (" + r.From + ")"
	}
	return s
}

// Label is the name of the rule, or its text.
func (r *Rule) Label() string {
	if r.Name != "" {
		return r.Name
	}
	return `"` + r.Text + `"`
}
