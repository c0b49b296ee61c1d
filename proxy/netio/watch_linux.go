package netio

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Leaver is told when a watched peer has left.
type Leaver interface {
	// PeerLeft is called once per change from the watcher's goroutine: reset false for a FIN, true for a reset or error.
	// It must not block.
	PeerLeft(reset bool)
}

// Watcher tells when the peer of a connection closes, at no cost per message: one epoll instance asks for hang-ups only.
// It owns one goroutine.
type Watcher struct {
	epfd int
	file *os.File
	done chan struct{}

	mu      sync.Mutex
	next    uint64
	leavers map[uint64]Leaver // by token; guarded by mu
}

// watched is a connection's place in a watcher.
type watched struct {
	w     *Watcher
	token uint64
}

// NewWatcher starts a watcher.
func NewWatcher() (*Watcher, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(epfd, true); err != nil {
		_ = unix.Close(epfd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	w := &Watcher{
		epfd: epfd, file: os.NewFile(uintptr(epfd), "epoll"), done: make(chan struct{}), leavers: map[uint64]Leaver{},
	}
	go w.run()
	return w, nil
}

// Close ends the watcher and waits for its goroutine.
func (w *Watcher) Close() {
	_ = w.file.Close()
	<-w.done
}

// Add watches c until it is closed. On a connection that is not a socket it does nothing.
func (w *Watcher) Add(c *Conn, l Leaver) {
	if w == nil || c.raw == nil {
		return
	}
	w.mu.Lock()
	w.next++
	token := w.next
	w.leavers[token] = l
	w.mu.Unlock()
	c.watch = watched{w, token}
	err := c.raw.Control(func(fd uintptr) {
		ev := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(token), Pad: int32(token >> 32)}
		if unix.EpollCtl(w.epfd, unix.EPOLL_CTL_ADD, int(fd), &ev) != nil {
			c.watch.forget()
		}
	})
	if err != nil {
		c.watch.forget()
	}
}

// forget ends the watch; the kernel forgets a closed socket by itself.
func (p *watched) forget() {
	if w := p.w; w != nil {
		w.mu.Lock()
		delete(w.leavers, p.token)
		w.mu.Unlock()
	}
}

func (w *Watcher) run() {
	defer close(w.done)
	raw, err := w.file.SyscallConn()
	if err != nil {
		return
	}
	events := make([]unix.EpollEvent, 128)
	for {
		n := 0
		err := raw.Read(func(fd uintptr) bool {
			for {
				var werr error
				n, werr = unix.EpollWait(int(fd), events, 0)
				if werr != syscall.EINTR {
					return n > 0 || werr != nil
				}
			}
		})
		if err != nil || n < 0 {
			return
		}
		for _, ev := range events[:n] {
			token := uint64(uint32(ev.Fd)) | uint64(uint32(ev.Pad))<<32
			w.mu.Lock()
			l := w.leavers[token]
			w.mu.Unlock()
			if l != nil {
				l.PeerLeft(ev.Events&(unix.EPOLLHUP|unix.EPOLLERR) != 0)
			}
		}
	}
}

// dead reports whether a connection is over both ways, as a reset leaves it.
func (c *Conn) dead() bool {
	dead := false
	if c.raw != nil {
		_ = c.raw.Control(func(fd uintptr) {
			info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
			dead = err == nil && info.State == tcpClose
		})
	}
	return dead
}

// tcpClose is the kernel's TCP_CLOSE.
const tcpClose = 7
