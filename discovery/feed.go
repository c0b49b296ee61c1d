package discovery

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
	"github.com/sidecar-mesh/sidecar/discovery/guard"
)

// A source that returns early is run again after a pause between these two.
const (
	minRestart = time.Second
	maxRestart = 30 * time.Second
)

// resolverKey is the feed that resolves names when no DNS registry is configured; no registry has an empty name.
const resolverKey = ""

// known is what one source last said about one name, and what is believed of it.
type known struct {
	raw      []*config.Endpoint // sorted by address, each once; the last good answer
	list     []*config.Endpoint // of these and of earlier ones those that are used
	guard    guard.Guard
	decision guard.Decision
	answered bool
	restored bool // from the disk: the source has not answered yet
	carried  bool // from another source of that name, whose answers do not count against this one's
	stale    bool // the last attempt failed
	since    time.Time
	err      string
	kind     string // of the failure that err tells of
}

// feed is one source in the merger's care.
type feed struct {
	// Set when it is made, then read-only.
	key    string
	name   string // for observers
	reg    *config.Registry
	source Source
	stop   context.CancelFunc // nil until started

	// Owned by the merger's goroutine.
	sets     map[string]*known
	wanted   []string
	recalled map[string]bool // names that the disk was asked for
	failing  map[string]bool // names whose last attempt failed, and what is no name: stopped, aside

	box box
}

// What may fail of a source beside names.
const (
	stopped = "\x00stopped" // it returned
	aside   = "\x00aside"   // an Update without a service said so
)

// report is one update on its way to the merger.
type report struct {
	from    *feed
	stopped bool // the source returned, because of Err
	Update
}

// run keeps the source running until ctx is done.
func (f *feed) run(ctx context.Context, out chan<- report) {
	send := func(u Update, stopped bool) {
		select {
		case out <- report{from: f, stopped: stopped, Update: u}:
		case <-ctx.Done():
		}
	}
	pause := minRestart
	for {
		began := time.Now()
		err := f.source.Run(ctx, f.box.take(), func(u Update) { send(u, false) })
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("the source stopped by itself")
		}
		send(Update{Err: err}, true)
		if time.Since(began) > maxRestart {
			pause = minRestart
		}
		select {
		case <-time.After(pause + rand.N(pause/4)):
		case <-ctx.Done():
			return
		}
		pause = min(2*pause, maxRestart)
	}
}

// want tells the source which names are wanted, when that changed. It reports whether what failed is not wanted any more, and
// nothing else fails.
func (f *feed) want(names []string) (well bool) {
	if f.wanted != nil && slices.Equal(f.wanted, names) {
		return false
	}
	f.wanted = names
	f.box.put(names)
	for name := range f.sets {
		if _, ok := slices.BinarySearch(names, name); !ok {
			delete(f.sets, name)
			well = f.recovered(name) || well
		}
	}
	return well
}

// fails notes that an attempt failed.
func (f *feed) fails(what string) {
	if f.failing == nil {
		f.failing = map[string]bool{}
	}
	f.failing[what] = true
}

// recovered notes that something does not fail any more, and reports whether nothing does.
func (f *feed) recovered(what string) bool {
	if !f.failing[what] {
		return false
	}
	delete(f.failing, what)
	return len(f.failing) == 0
}

// box holds the newest list of wanted names for a source that may be restarted.
type box struct {
	mu     sync.Mutex
	newest []string
	ch     chan []string
}

// put makes names the value waiting, in place of an older one.
func (b *box) put(names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.newest = names
	b.refillLocked()
}

// take returns the channel for one run of the source, with the newest value waiting in it.
func (b *box) take() <-chan []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refillLocked()
	return b.ch
}

func (b *box) refillLocked() {
	if b.ch == nil {
		b.ch = make(chan []string, 1)
	}
	select {
	case <-b.ch:
	default:
	}
	b.ch <- b.newest
}
