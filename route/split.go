package route

import (
	"errors"
	"fmt"
	"math/bits"
	"sort"
)

// Split divides requests by weight. The same hash always gets the same branch, so retries agree. It is immutable.
type Split struct {
	ends  []uint64 // running sums of the weights
	total uint64
}

// maxSplit keeps sums far from overflow.
const maxSplit = 1 << 40

// NewSplit makes a split of relative weights; each 0 … 2^40, not all 0.
func NewSplit(weights []int) (*Split, error) {
	s := &Split{ends: make([]uint64, len(weights))}
	for i, w := range weights {
		if w < 0 || w > maxSplit {
			return nil, fmt.Errorf("weight %d: %d is out of bounds", i, w)
		}
		s.total += uint64(w)
		s.ends[i] = s.total
	}
	if s.total == 0 {
		return nil, errors.New("no branch has a weight")
	}
	return s, nil
}

// Pick returns the branch of a hash. Over all hashes each branch gets exactly its part (to within 2^-40). The hash is
// mixed first, with a number of our own: it may be as poor as a counter, and the choice does not depend on the
// decisions that Match.Percent takes by the same hash.
func (s *Split) Pick(hash uint64) int {
	at, _ := bits.Mul64(mix(hash^splitSalt), s.total)
	if len(s.ends) <= 8 {
		for i, end := range s.ends {
			if at < end {
				return i
			}
		}
	}
	return sort.Search(len(s.ends), func(i int) bool { return at < s.ends[i] })
}

const splitSalt = 0x2545f4914f6cdd1d

// HasLabels tells whether have carries all of want.
func HasLabels(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// Subset returns the indexes of those that carry all of want, ascending.
func Subset(labels []map[string]string, want map[string]string) []int {
	var out []int
	for i := range labels {
		if HasLabels(labels[i], want) {
			out = append(out, i)
		}
	}
	return out
}
