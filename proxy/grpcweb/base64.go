package grpcweb

import "errors"

// The errors of a body in base64.
var (
	ErrBase64    = errors.New("malformed base64")
	ErrTruncated = errors.New("the base64 breaks off in the middle of a group")
)

const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

const (
	notBase64 = 0xff
	padding   = 0x40
)

// values maps a character to what it stands for.
var values = func() (t [256]byte) {
	for i := range t {
		t[i] = notBase64
	}
	for i := range len(alphabet) {
		t[alphabet[i]] = byte(i)
	}
	t['='] = padding
	return t
}()

// Decoder takes base64 off a body that comes in pieces of any size. Whoever wrote it may have padded wherever it had to send
// what it had, so that groups with padding stand in the middle as well. The zero Decoder is ready.
type Decoder struct {
	group [4]byte // values of the group that is not complete
	n     int
}

// Decode appends what src stands for to dst.
func (d *Decoder) Decode(dst, src []byte) ([]byte, error) {
	for len(src) > 0 {
		if d.n == 0 && len(src) >= 4 {
			a, b, c, e := values[src[0]], values[src[1]], values[src[2]], values[src[3]]
			if (a|b|c|e)&^0x3f == 0 { // a group without padding, which nearly all are
				dst = append(dst, a<<2|b>>4, b<<4|c>>2, c<<6|e)
				src = src[4:]
				continue
			}
		}
		v := values[src[0]]
		src = src[1:]
		switch {
		case v == notBase64, v == padding && d.n < 2, v != padding && d.n == 3 && d.group[2] == padding:
			return dst, ErrBase64
		}
		d.group[d.n] = v
		if d.n++; d.n < 4 {
			continue
		}
		d.n = 0
		g := &d.group
		switch {
		case g[2] == padding:
			dst = append(dst, g[0]<<2|g[1]>>4)
		case g[3] == padding:
			dst = append(dst, g[0]<<2|g[1]>>4, g[1]<<4|g[2]>>2)
		default:
			dst = append(dst, g[0]<<2|g[1]>>4, g[1]<<4|g[2]>>2, g[2]<<6|g[3])
		}
	}
	return dst, nil
}

// End says whether the body may end here.
func (d *Decoder) End() error {
	if d.n > 0 {
		return ErrTruncated
	}
	return nil
}

// Encoder writes a body in base64. It keeps up to two bytes back until a group is complete or Pad is called. The zero Encoder
// is ready.
type Encoder struct {
	group [3]byte
	n     int
}

// Encode appends the base64 of src to dst.
func (e *Encoder) Encode(dst, src []byte) []byte {
	for e.n > 0 && e.n < 3 && len(src) > 0 {
		e.group[e.n] = src[0]
		e.n++
		src = src[1:]
	}
	if e.n == 3 {
		dst = appendGroup(dst, e.group)
		e.n = 0
	}
	for ; len(src) >= 3; src = src[3:] {
		dst = appendGroup(dst, [3]byte(src))
	}
	if e.n == 0 {
		e.n = copy(e.group[:], src)
	}
	return dst
}

func appendGroup(dst []byte, g [3]byte) []byte {
	return append(dst, alphabet[g[0]>>2], alphabet[g[0]<<4&0x3f|g[1]>>4], alphabet[g[1]<<2&0x3f|g[2]>>6], alphabet[g[2]&0x3f])
}

// Pad appends what was kept back, padded: everything written so far can be read then.
func (e *Encoder) Pad(dst []byte) []byte {
	n := e.n
	if n == 0 {
		return dst
	}
	clear(e.group[n:])
	dst = appendGroup(dst, e.group)
	e.n = 0
	for i := len(dst) - (3 - n); i < len(dst); i++ {
		dst[i] = '='
	}
	return dst
}
