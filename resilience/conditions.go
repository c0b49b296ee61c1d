package resilience

import "strings"

// ConditionError says which word of a retry's `when` list is not a condition.
type ConditionError struct{ Word string }

// Error names the word and what would fit.
func (e *ConditionError) Error() string {
	return "unknown retry condition \"" + e.Word + "\": want connect, refused, reset, timeout, a status 400 … 599, 4xx, 5xx or grpc:STATUS"
}

// DefaultConditions is the `when` list of a policy that gives none: connect, refused, reset, timeout, 502, 503, 504.
func DefaultConditions() Conditions {
	c := Conditions{Connect: true, Refused: true, Reset: true, Timeout: true}
	c.set(502, 504)
	return c
}

// ParseConditions reads a `when` list. The error is a *ConditionError for the first word that does not fit.
func ParseConditions(words []string) (Conditions, error) {
	var c Conditions
	for _, w := range words {
		switch w {
		case "connect":
			c.Connect = true
		case "refused":
			c.Refused = true
		case "reset":
			c.Reset = true
		case "timeout":
			c.Timeout = true
		case "4xx":
			c.set(400, 499)
		case "5xx":
			c.set(500, 599)
		default:
			if name, ok := strings.CutPrefix(w, "grpc:"); ok {
				g, ok := GRPCNamed(name)
				if !ok {
					return Conditions{}, &ConditionError{Word: w}
				}
				c.GRPC |= 1 << g
				continue
			}
			status, ok := parseStatus(w)
			if !ok {
				return Conditions{}, &ConditionError{Word: w}
			}
			c.set(status, status)
		}
	}
	return c, nil
}

// parseStatus reads a failure status. A retry of an answer that is not one would discard what the caller asked for.
func parseStatus(w string) (int, bool) {
	if len(w) != 3 || w[0] != '4' && w[0] != '5' {
		return 0, false
	}
	n := 0
	for i := range len(w) {
		if w[i] < '0' || w[i] > '9' {
			return 0, false
		}
		n = n*10 + int(w[i]-'0')
	}
	return n, true
}

func (c *Conditions) set(from, to int) {
	for s := from; s <= to; s++ {
		c.Status[s/64] |= 1 << (s % 64)
	}
}

// Answer reports whether a response with the status is retried.
func (c *Conditions) Answer(status int) bool {
	return status >= 0 && status < 64*len(c.Status) && c.Status[status/64]>>(status%64)&1 == 1
}

// Match reports whether c covers o. `connect` is any failed connect, `refused` also a connection that ended before
// anything of the request was taken (as HTTP/2's REFUSED_STREAM).
func (c *Conditions) Match(o Outcome) bool {
	switch o.Kind {
	case Answered:
		return c.Answer(o.Status) || o.GRPC != NotGRPC && c.GRPC>>o.GRPC&1 == 1
	case Refused:
		return c.Connect || c.Refused
	case ConnectTimed:
		return c.Connect
	case TooBusy:
		return c.Reset
	case Reset:
		return c.Reset || c.Refused && !o.Sent
	case TimedOut:
		return c.Timeout
	}
	return false
}

// String writes c as ParseConditions reads it, separated by spaces: whole classes first, then single statuses.
func (c Conditions) String() string {
	var b []byte
	word := func(set bool, w string) {
		if set {
			if len(b) > 0 {
				b = append(b, ' ')
			}
			b = append(b, w...)
		}
	}
	word(c.Connect, "connect")
	word(c.Refused, "refused")
	word(c.Reset, "reset")
	word(c.Timeout, "timeout")
	for class := 4; class <= 5; class++ {
		from := class * 100
		whole := true
		for s := from; s < from+100; s++ {
			whole = whole && c.Answer(s)
		}
		word(whole, string([]byte{'0' + byte(class), 'x', 'x'}))
		for s := from; s < from+100; s++ {
			word(!whole && c.Answer(s), string([]byte{'0' + byte(s/100), '0' + byte(s/10%10), '0' + byte(s%10)}))
		}
	}
	for g := GRPCCancelled; g < GRPCInvalid; g++ {
		word(c.GRPC>>g&1 == 1, "grpc:"+g.String())
	}
	return string(b)
}
