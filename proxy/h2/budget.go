package h2

import "time"

// What a peer's oddities cost, out of a bucket of 10 000 that refills by 330 a second: two hundred pings or resets at once
// and six a second are tolerated, and resets besides as many as there are requests that were answered.
const (
	bucketSize   = 10_000
	bucketRate   = 330
	costReset    = 50  // a stream that was reset, by them or because of them, unless they have waited for it
	costRefused  = 10  // a stream above the number that they may have open, which they may not know yet
	costPing     = 50  // PING, GOAWAY
	costSettings = 16  // SETTINGS: some clients tune windows by it
	costEmpty    = 100 // a DATA frame with nothing in it
	costHead     = 50  // a head above the limits, and 1 for each headOctets that it decodes to beyond them
	costWindow   = 20  // a needless WINDOW_UPDATE
	costShut     = 50  // a request whose answer has no room to come back
	costOther    = 1   // PRIORITY, unknown frames

	tiredAfter  = time.Second // after which a client that gives a request up is not rapid, but tired of waiting
	headOctets  = 128
	worthAnswer = costReset // a request that was answered to its end, given back
	freeWindows = 100       // WINDOW_UPDATE frames that are nobody's business
	windowsData = 20        // more for each DATA frame that was sent
	windowsEach = 2         // more for each stream
)

// bucket is a leaky bucket. The zero bucket is full.
type bucket struct {
	used float64
	last time.Time
}

// take takes cost out of the bucket, or reports that there is not enough.
func (b *bucket) take(now time.Time, cost int) bool {
	b.add(now, float64(cost))
	return b.used <= bucketSize
}

func (b *bucket) add(now time.Time, cost float64) {
	if !b.last.IsZero() {
		b.used = max(0, b.used-now.Sub(b.last).Seconds()*bucketRate)
	}
	b.last = now
	b.used = max(0, b.used+cost)
}
