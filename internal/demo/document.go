package demo

import (
	"fmt"
	"strings"
)

// document is the configuration of the demo, as an operator would write it. Times are shorter than the defaults, so that
// the story is short.
func (s *stage) document() string {
	return fmt.Sprintf(`node: {service: shop}
listen: {outbound: %q}
services:
  catalog:
    endpoints: [%s]
    policy:
      timeout: 10s
      retry: 2
      outlier: {consecutive_failures: 5, eject_for: %s, probe: {interval: %s, timeout: 1s}}
  search:
    endpoints: [%s]
    policy:
      timeout: 10s
      per_try_timeout: %s
      retry: 2
      outlier: {consecutive_failures: 5, eject_for: %s, probe: {http: /healthz, interval: %s, timeout: %s}}
  payments:
    endpoints: [%s]
    policy:
      breaker: {error_threshold: 50%%, request_volume: 20, window: 2s, sleep_window: %s}
`,
		s.address, addresses(s.catalog), s.pace.eject, s.pace.probe,
		addresses(s.search), s.pace.perTry, s.pace.eject, s.pace.probe, s.pace.perTry,
		addresses(s.payments), s.pace.sleep)
}

// withCanary is the configuration with a new version of the catalog beside the old ones, and with an answer for what is
// gone.
func (s *stage) withCanary() string {
	was := fmt.Sprintf("    endpoints: [%s]\n", addresses(s.catalog))
	var list strings.Builder
	list.WriteString("    endpoints:\n")
	for _, t := range s.catalog {
		fmt.Fprintf(&list, "      - {address: %q, labels: {version: v1}}\n", t.address)
	}
	fmt.Fprintf(&list, "      - {address: %q, labels: {version: v2}}\n", s.canary.address)
	list.WriteString(`    routes:
      - name: canary
        match: /items/*
        to: {split: [{weight: 90, labels: {version: v1}}, {weight: 10, labels: {version: v2}}]}
      - match: /old
        respond: {status: 410, body: "this page is gone\n"}
`)
	return strings.Replace(s.document(), was, list.String(), 1)
}

// The mistakes that the broken configuration makes.
const (
	goodTimeout, badTimeout = "      timeout: 10s\n", "      timeout: 10\n"
	goodRetry, badRetry     = "      retry: 2\n", "      retrie: 2\n"
)

// mistaken is the configuration with two mistakes.
func (s *stage) mistaken() string {
	text := strings.Replace(s.withCanary(), goodTimeout, badTimeout, 1)
	return strings.Replace(text, goodRetry, badRetry, 1)
}

// lineOf returns the number of the first line of text that holds part.
func lineOf(text, part string) int {
	before, _, _ := strings.Cut(text, part)
	return strings.Count(before, "\n") + 1
}

// added returns the lines of next that prev does not have.
func added(prev, next string) string {
	have := map[string]bool{}
	for line := range strings.Lines(prev) {
		have[line] = true
	}
	var b strings.Builder
	for line := range strings.Lines(next) {
		if !have[line] {
			b.WriteString(line)
		}
	}
	return b.String()
}

func addresses(toys []*toy) string {
	list := make([]string, len(toys))
	for i, t := range toys {
		list[i] = fmt.Sprintf("%q", t.address)
	}
	return strings.Join(list, ", ")
}
