package resilience

import (
	"sync"
	"time"
)

// BudgetConfig bounds retries, so that a failing service does not also get their load.
type BudgetConfig struct {
	Ratio        float64 // retries per call; 0.2 by default of the configuration
	MinPerSecond float64 // retries that are always allowed; 3 by default of the configuration
}

const (
	budgetBuckets = 10
	budgetWidth   = time.Second
)

// The kinds of event of a Budget's window.
const (
	budgetCalls = iota
	budgetRetries
)

// Budget allows, in each sliding window of 10 s, Ratio × calls + MinPerSecond × 10 retries. It is full at the start. A
// Budget is shared by the calls of a service; a nil Budget allows everything. Both methods take about 20 ns.
type Budget struct {
	cfg         BudgetConfig
	ratio, free uint64 // millionths; free is what the whole window may have without calls

	mu  sync.Mutex
	win window // guarded by mu
}

// NewBudget returns a full budget.
func NewBudget(cfg BudgetConfig) *Budget {
	return &Budget{cfg: cfg, ratio: millionths(cfg.Ratio), free: budgetBuckets * millionths(cfg.MinPerSecond)}
}

// Adopt returns prev where it has the same configuration, else b: a snapshot keeps the meters of the one before.
func (b *Budget) Adopt(prev *Budget) *Budget {
	if b != nil && prev != nil && b.cfg == prev.cfg {
		return prev
	}
	return b
}

// Call counts one call. Call.Start does it.
func (b *Budget) Call(now time.Time) {
	if b == nil {
		return
	}
	b.mu.Lock()
	b.advanceLocked(now)
	b.win.add(budgetCalls, 1)
	b.mu.Unlock()
}

// Take takes one retry out of the budget, or reports that none is left.
func (b *Budget) Take(now time.Time) bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advanceLocked(now)
	calls, used := uint64(b.win.sum[budgetCalls]), uint64(b.win.sum[budgetRetries])
	if (used+1)*million > b.ratio*calls+b.free {
		return false
	}
	b.win.add(budgetRetries, 1)
	return true
}

func (b *Budget) advanceLocked(now time.Time) {
	if b.win.ring == nil {
		b.win.start(now, budgetBuckets, budgetWidth)
	}
	b.win.advance(now)
}
