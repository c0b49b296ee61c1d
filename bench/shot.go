//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// shot is what one run of wrk or h2load found.
type shot struct {
	requests  float64
	perSecond float64
	failed    float64
	octets    float64 // of bodies; h2load only
}

// wrk runs a closed loop over so many connections.
func (b *bench) wrk(ctx context.Context, address, host, path string, connections int, duration time.Duration) (shot, error) {
	seconds := max(1, int(duration.Round(time.Second)/time.Second))
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds+10)*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "wrk", "-t1", "--timeout", "10s", "-c", strconv.Itoa(connections), "-d", strconv.Itoa(seconds),
		"-H", "Host: "+host, "http://"+address+path)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return shot{}, fmt.Errorf("wrk: %w: %s", err, out)
	}
	s, err := parseWrk(string(out))
	if err == nil && s.failed > s.requests/1000 {
		err = fmt.Errorf("%g of %g requests failed", s.failed, s.requests)
	}
	return s, err
}

// parseWrk reads wrk's summary.
func parseWrk(out string) (s shot, err error) {
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		var connect, read, write, timeout, other float64
		if n, _ := fmt.Sscanf(line, "%g requests in", &other); n == 1 && strings.Contains(line, " requests in ") {
			s.requests = other
		}
		if n, _ := fmt.Sscanf(line, "Requests/sec: %g", &other); n == 1 {
			s.perSecond = other
		}
		if n, _ := fmt.Sscanf(line, "Non-2xx or 3xx responses: %g", &other); n == 1 {
			s.failed += other
		}
		if n, _ := fmt.Sscanf(line, "Socket errors: connect %g, read %g, write %g, timeout %g", &connect, &read, &write, &timeout); n == 4 {
			s.failed += connect + read + write + timeout
		}
	}
	if s.requests == 0 || s.perSecond == 0 {
		return s, errors.New("wrk: no requests: " + out)
	}
	return s, nil
}

// h2load runs h2load with some of its arguments against a path.
func h2load(ctx context.Context, patience time.Duration, address, path string, args ...string) (shot, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	args = append(args, "-t1", "-H", ":authority: bench", "http://"+address+path)
	out, err := exec.CommandContext(ctx, "h2load", args...).CombinedOutput()
	if err != nil {
		return shot{}, fmt.Errorf("h2load: %w: %.500s", err, out)
	}
	s, err := parseH2load(string(out))
	if err == nil && s.failed > s.requests/1000 {
		err = fmt.Errorf("%g requests failed, %g did not", s.failed, s.requests)
	}
	return s, err
}

// parseH2load reads h2load's summary. Only answers with 2xx count as requests.
func parseH2load(out string) (s shot, err error) {
	for line := range strings.Lines(out) {
		name, rest, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "status "), " ")
		for part := range strings.SplitSeq(rest, ", ") {
			var n float64
			var unit string
			if k, _ := fmt.Sscanf(part, "%g %s", &n, &unit); k != 2 {
				if at := strings.IndexByte(part, '('); name == "traffic:" && at >= 0 {
					_, _ = fmt.Sscanf(part[at:], "(%g) %s", &n, &unit)
				}
			}
			switch name + unit {
			case "finishedreq/s":
				s.perSecond = n
			case "requests:failed":
				s.failed += n
			case "codes:2xx":
				s.requests = n
			case "traffic:data":
				s.octets = n
			}
		}
	}
	if s.requests == 0 || s.perSecond == 0 {
		return s, errors.New("h2load: no requests: " + out)
	}
	return s, nil
}
