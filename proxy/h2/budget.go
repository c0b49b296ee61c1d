package h2

import "time"

// What a peer's oddities cost, out of a bucket of 10 000 that refills by 330 a second: a thousand resets or pings at once
// and 33 a second are tolerated, as other servers do.
const (
	bucketSize  = 10_000
	bucketRate  = 330
	costReset   = 10  // a stream that was reset, by them or because of them
	costControl = 10  // PING, SETTINGS, GOAWAY
	costEmpty   = 100 // a DATA frame with nothing in it
	costHead    = 50  // a head above the limits
	costOther   = 1   // PRIORITY, unknown frames, needless WINDOW_UPDATE
)

// bucket is a leaky bucket. The zero bucket is full.
type bucket struct {
	used float64
	last time.Time
}

// take takes cost out of the bucket, or reports that there is not enough.
func (b *bucket) take(now time.Time, cost int) bool {
	if !b.last.IsZero() {
		b.used = max(0, b.used-now.Sub(b.last).Seconds()*bucketRate)
	}
	b.last = now
	b.used += float64(cost)
	return b.used <= bucketSize
}
