package h1

import "unsafe"

// str is b as a string without a copy: it is valid as long as nobody writes to b.
func str(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
