package h2

import "sync"

// workers is a pool of goroutines that serve streams: their stacks have grown to what an exchange needs.
type workers struct {
	mu     sync.Mutex
	idle   []chan job // the last one worked last
	closed bool       // each stream has a goroutine of its own now
}

const maxIdleWorkers = 256

func (w *workers) run(j job) {
	w.mu.Lock()
	if n := len(w.idle); n > 0 {
		ch := w.idle[n-1]
		w.idle = w.idle[:n-1]
		w.mu.Unlock()
		ch <- j
		return
	}
	w.mu.Unlock()
	go w.work(make(chan job, 1), j)
}

func (w *workers) work(ch chan job, j job) {
	x := new(exchange)
	for {
		j.do(x)
		j = job{}
		w.mu.Lock()
		if w.closed || len(w.idle) >= maxIdleWorkers {
			w.mu.Unlock()
			return
		}
		w.idle = append(w.idle, ch)
		w.mu.Unlock()
		var ok bool
		if j, ok = <-ch; !ok {
			return
		}
	}
}

func (w *workers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, ch := range w.idle {
		close(ch)
	}
	w.idle = nil
}
