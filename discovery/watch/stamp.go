package watch

import (
	"os"
	"time"
)

// settled is how long a file must have been left alone for its stamp to tell the next change: clocks of file systems are
// coarse.
const settled = 2 * time.Second

// Stamp tells the contents of a file apart without reading it: as long as it is the same and not zero, so is the content,
// but for file systems that do not note changes. It is zero where it could not tell the next change.
type Stamp struct {
	device, inode           uint64
	size, modified, changed int64
}

// StampOf returns the stamp of a file as it was found, which must have been before it was read.
func StampOf(info os.FileInfo, now time.Time) Stamp {
	s := stampOf(info)
	if latest := max(s.modified, s.changed); now.UnixNano()-latest < int64(settled) {
		return Stamp{}
	}
	return s
}

// Same reports whether two stamps are of the same content.
func (s Stamp) Same(o Stamp) bool { return s == o && s != Stamp{} }
