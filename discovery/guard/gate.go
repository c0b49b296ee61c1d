package guard

import (
	"hash/fnv"
	"math"
	"time"
)

// Gate is the update gate (S-40): while it is closed, a share of all sidecars follows the registry and the others wait for
// their turn. It is an emergency measure for a registry that cannot serve all of them.
type Gate struct {
	Closed bool
	Share  float64       // of the sidecars that may pull at one time, above 0 … 1
	Epoch  time.Duration // how long a turn is
}

// Turn reports whether instance may pull now, and until when that holds; zero: until the gate itself changes. Of all
// instances Share has its turn at any time, every one has it once in ceil(1/Share) epochs, and the turns of those that
// have it together begin spread over an epoch.
func (g Gate) Turn(now time.Time, instance string) (open bool, until time.Time) {
	if !g.Closed || g.Share >= 1 || g.Share <= 0 || g.Epoch <= 0 {
		return true, time.Time{}
	}
	place := hash(instance, "place")
	shift := time.Duration(hash(instance, "shift") % uint64(g.Epoch))
	at := now.Add(shift)
	epoch := at.UnixNano() / int64(g.Epoch)
	// The places are a circle of 2⁶⁴; each epoch is the turn of the next arc of it, so that arithmetic that wraps fits.
	arc := uint64(math.Ceil(g.Share*(1<<32))) << 32
	turn := func(epoch int64) bool { return place-uint64(epoch)*arc < arc }
	end := time.Unix(0, (epoch+1)*int64(g.Epoch)).Add(-shift)
	if turn(epoch) {
		return true, end
	}
	for e := epoch + 1; !turn(e) && e < epoch+int64(1/g.Share)+1; e++ {
		end = end.Add(g.Epoch)
	}
	return false, end
}

func hash(instance, what string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(instance)) // cannot fail
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(what))
	// FNV leaves names that differ in their last letters close together.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	return x
}
