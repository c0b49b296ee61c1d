package pipeline

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/sidecar-mesh/sidecar/resilience"
)

// pushback reads grpc-retry-pushback-ms: what cannot be read forbids retries, as a negative value does (gRPC A6).
func pushback(fields []Field) time.Duration {
	for i := range fields {
		if fields[i].ID != FieldGRPCPushback {
			continue
		}
		n, err := strconv.ParseUint(fields[i].Value, 10, 31)
		if err != nil || len(fields[i].Value) > 1 && fields[i].Value[0] == '0' {
			return -1
		}
		return max(1, time.Duration(n)*time.Millisecond)
	}
	return 0
}

// holdOff is how long an HTTP answer asks not to be asked again. A 429 is about the caller, so that it holds for every
// endpoint; a 503 is about the endpoint that gave it, and another one may answer at once (S-142).
func (x *Exchange) holdOff(o *resilience.Outcome) time.Duration {
	if o.Status != 429 && (o.Status != 503 || o.Untried) {
		return 0
	}
	for i := range x.resp.Fields {
		if f := &x.resp.Fields[i]; strings.EqualFold(f.Name, "retry-after") {
			return retryAfter(f.Value, x.Clock)
		}
	}
	return 0
}

// retryAfter reads a Retry-After field at now: seconds or a date (RFC 9110 10.2.3). What is neither says nothing.
func retryAfter(value string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(value, 10, 64); err == nil {
		return time.Duration(min(n, math.MaxInt64/uint64(time.Second))) * time.Second
	}
	if strings.Trim(value, "0123456789") == "" && value != "" {
		return math.MaxInt64 // more seconds than a number holds
	}
	// The three forms of RFC 9110 5.6.7, of which the first is the one to write.
	for _, form := range [...]string{"Mon, 02 Jan 2006 15:04:05 GMT", time.RFC850, time.ANSIC} {
		if t, err := time.Parse(form, value); err == nil {
			return max(0, t.Sub(now))
		}
	}
	return 0
}
