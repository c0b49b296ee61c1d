package pipeline

import (
	"time"

	"github.com/sidecar-mesh/sidecar/resilience"
)

// fairTime is what a deadline of the caller must leave for it to say anything about the service that it ran out. Deadlines travel
// along chains and may come all but over, since a hop before us was slow: that must neither take endpoints out nor open the
// breaker, for others who have time.
const fairTime = 10 * time.Millisecond

// hurried reports whether o came of a deadline that had left too little time at from.
func (x *Exchange) hurried(from time.Time, o *resilience.Outcome) bool {
	switch o.Kind {
	case resilience.TimedOut, resilience.ConnectTimed:
	case resilience.Answered:
		if o.Status != 504 && o.GRPC != resilience.GRPCDeadlineExceeded {
			return false
		}
	default:
		return false
	}
	return !x.deadline.IsZero() && x.deadline.Sub(from) < fairTime
}
