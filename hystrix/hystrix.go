// Package hystrix reads the properties of Hystrix commands and writes them as named policies of ours, for teams that move
// (S-155). It is pure: text in, text out. What has no counterpart is listed in comments, with its line, so that nobody takes
// it for carried over. Tests: files under testdata with what becomes of them, which must load.
package hystrix

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// command is what the properties say of one command, or of all ("default").
type command struct {
	timeout, window, sleep                        string
	threshold, volume, buckets, inFlight, waiting string
	noTimeout, noBreaker                          bool
}

// reader collects commands, and what is not carried over.
type reader struct {
	commands map[string]*command
	left     []string
}

// Convert turns the properties of a file into a document with a policy for each command, and defaults.
func Convert(properties string) string {
	r := &reader{commands: map[string]*command{}}
	n := 0
	for line := range strings.Lines(properties) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		i := strings.IndexAny(line, "=:")
		if i < 0 {
			r.leave(n, line, "no property")
			continue
		}
		r.property(n, strings.TrimSpace(line[:i]), strings.TrimSpace(line[i+1:]))
	}
	return r.document()
}

func (r *reader) leave(n int, text, why string) {
	if strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) }) || !utf8.ValidString(text) {
		text = strconv.QuoteToASCII(text) // a comment must not end early
	}
	r.left = append(r.left, fmt.Sprintf("line %d: %s (%s)", n, text, why))
}

// property takes in one property.
func (r *reader) property(n int, key, value string) {
	rest, isCommand := strings.CutPrefix(key, "hystrix.command.")
	if !isCommand {
		var isPool bool
		if rest, isPool = strings.CutPrefix(key, "hystrix.threadpool."); !isPool {
			r.leave(n, key, "not of Hystrix")
			return
		}
	}
	name, knob, ok := split(rest)
	if !ok {
		r.leave(n, key, "no counterpart")
		return
	}
	c := r.commands[name]
	if c == nil {
		c = &command{}
		r.commands[name] = c
	}
	if why := c.set(knob, value); why != "" {
		r.leave(n, key+"="+value, why)
	}
}

// split takes the name of a command, which may have dots, from the knob behind it.
func split(rest string) (name, knob string, ok bool) {
	for _, k := range knobs() {
		if name, ok := strings.CutSuffix(rest, "."+k); ok && name != "" {
			return name, k, true
		}
	}
	return "", "", false
}

func knobs() []string {
	return []string{
		"execution.isolation.thread.timeoutInMilliseconds", "execution.timeout.enabled", "circuitBreaker.enabled",
		"circuitBreaker.requestVolumeThreshold", "circuitBreaker.sleepWindowInMilliseconds",
		"circuitBreaker.errorThresholdPercentage", "circuitBreaker.forceOpen", "circuitBreaker.forceClosed",
		"metrics.rollingStats.timeInMilliseconds", "metrics.rollingStats.numBuckets",
		"execution.isolation.semaphore.maxConcurrentRequests", "coreSize", "maximumSize", "maxQueueSize",
		"queueSizeRejectionThreshold",
	}
}

// set takes a knob over, or says why not.
func (c *command) set(knob, value string) string {
	switch knob {
	case "execution.timeout.enabled", "circuitBreaker.enabled":
		on, err := strconv.ParseBool(value)
		if err != nil {
			return "true or false is expected"
		}
		if knob == "circuitBreaker.enabled" {
			c.noBreaker = !on
		} else {
			c.noTimeout = !on
		}
		return ""
	case "circuitBreaker.forceOpen", "circuitBreaker.forceClosed":
		return "a state is no configuration here: use a degradation switch, or breaker: none"
	}
	number, err := strconv.Atoi(value)
	if err != nil || number < 0 {
		if knob == "maxQueueSize" && value == "-1" { // its queue hands over at once
			c.waiting = "0"
			return ""
		}
		return "a number is expected"
	}
	span := (time.Duration(number) * time.Millisecond).String()
	switch knob {
	case "execution.isolation.thread.timeoutInMilliseconds":
		c.timeout = span
	case "circuitBreaker.sleepWindowInMilliseconds":
		c.sleep = span
	case "metrics.rollingStats.timeInMilliseconds":
		c.window = span
	case "circuitBreaker.requestVolumeThreshold":
		c.volume = value
	case "circuitBreaker.errorThresholdPercentage":
		c.threshold = value + "%"
	case "metrics.rollingStats.numBuckets":
		c.buckets = value
	case "execution.isolation.semaphore.maxConcurrentRequests", "coreSize":
		c.inFlight = value
	case "maximumSize":
		return "coreSize bounds the calls under way"
	default: // the two sizes of a queue: the last one given counts
		c.waiting = value
	}
	return ""
}

// document writes all commands.
func (r *reader) document() string {
	var b strings.Builder
	b.WriteString("# From Hystrix properties. A service takes a policy with: policy: {use: NAME}\n")
	if c := r.commands["default"]; c != nil {
		if p := c.policy(); p != "" {
			fmt.Fprintf(&b, "defaults: %s\n", p)
		}
		delete(r.commands, "default")
	}
	if len(r.commands) > 0 {
		b.WriteString("policies:\n")
	} else {
		b.WriteString("policies: {}\n")
	}
	for _, name := range slices.Sorted(maps.Keys(r.commands)) {
		fmt.Fprintf(&b, "  %s: %s\n", safe(name), cmp.Or(r.commands[name].policy(), "{}"))
	}
	if len(r.left) > 0 {
		b.WriteString("\n# Not carried over:\n")
		for _, l := range r.left {
			b.WriteString("# " + l + "\n")
		}
	}
	return b.String()
}

// safe makes a name that the configuration takes: commands may be called anything, such as Class#method(Long).
func safe(name string) string {
	name = strings.Map(func(r rune) rune {
		if r == '.' || r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, name)
	return strconv.Quote(strings.Trim(name, "-"))
}

// policy writes what is set as a map.
func (c *command) policy() string {
	timeout := c.timeout
	if c.noTimeout {
		timeout = "0s"
	}
	breaker := fields([2]string{"error_threshold", c.threshold}, [2]string{"request_volume", c.volume}, [2]string{"window", c.window},
		[2]string{"buckets", c.buckets}, [2]string{"sleep_window", c.sleep})
	if c.noBreaker {
		breaker = "none"
	}
	return fields([2]string{"timeout", timeout}, [2]string{"breaker", breaker},
		[2]string{"limit", fields([2]string{"in_flight", c.inFlight}, [2]string{"waiting", c.waiting})})
}

// fields writes those that have a value as a map; without any, nothing.
func fields(list ...[2]string) string {
	var parts []string
	for _, f := range list {
		if f[1] != "" {
			parts = append(parts, f[0]+": "+f[1])
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
