package route

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// value is one compiled Value.
type value struct {
	Value
	re *regexp.Regexp
}

func (v *value) compile(in *Value) error {
	v.Value = *in
	if in.Name == "" {
		return errors.New("without a name")
	}
	switch in.Kind {
	case ValueExact, ValuePresent, ValueAbsent, ValuePrefix, ValueIn, ValueMedia:
	case ValueRegex:
		var err error
		if v.re, err = regexp.Compile(in.Text); err != nil {
			return fmt.Errorf("%s: %w", in.Name, err)
		}
	case ValueMod:
		if in.Mod == 0 {
			return fmt.Errorf("%s: modulo 0", in.Name)
		}
		for _, r := range in.Residues {
			if r >= in.Mod {
				return fmt.Errorf("%s: nothing modulo %d is %d", in.Name, in.Mod, r)
			}
		}
	default:
		return fmt.Errorf("%s: unknown kind %d", in.Name, in.Kind)
	}
	return nil
}

// holds compares one occurrence.
func (v *value) holds(s string) bool {
	if v.Kind == ValueRegex {
		return v.re.MatchString(s)
	}
	return holds(v, s)
}

// holdsBytes is holds for a value that had to be decoded.
func (v *value) holdsBytes(b []byte) bool {
	if v.Kind == ValueRegex {
		return v.re.MatchString(string(b))
	}
	return holds(v, b)
}

// holds is generic so that neither form needs converting.
func holds[T string | []byte](v *value, s T) bool {
	switch v.Kind {
	case ValueExact:
		return string(s) == v.Text
	case ValuePresent, ValueAbsent: // an occurrence: the caller turns it round for absent
		return true
	case ValuePrefix:
		return len(s) >= len(v.Text) && string(s[:len(v.Text)]) == v.Text
	case ValueMedia:
		return isMedia(s, v.Text)
	case ValueIn:
		for _, want := range v.In {
			if string(s) == want {
				return true
			}
		}
	case ValueMod:
		r, ok := decimalMod(s, v.Mod)
		return ok && slices.Contains(v.Residues, r)
	}
	return false
}

// isMedia tells whether s is the media type want, which is in lower case, or one that specializes it.
func isMedia[T string | []byte](s T, want string) bool {
	if len(s) < len(want) {
		return false
	}
	for i := range len(want) {
		if c := s[i]; c != want[i] && (c < 'A' || c > 'Z' || c|0x20 != want[i]) {
			return false
		}
	}
	return len(s) == len(want) || s[len(want)] == '+' || s[len(want)] == ';'
}

func (v *value) fitsHeader(fields Fields) bool {
	if fields == nil {
		return v.Kind == ValueAbsent
	}
	for at := 0; ; {
		s, next, ok := fields.Next(v.Name, at)
		if !ok {
			return v.Kind == ValueAbsent
		}
		if v.holds(s) {
			return v.Kind != ValueAbsent
		}
		at = next
	}
}

// fitsCookie looks through all cookie fields (HTTP/2 may split them, RFC 9113 section 8.2.3). Values are compared as
// sent, double quotes included.
func (v *value) fitsCookie(fields Fields) bool {
	if fields == nil {
		return v.Kind == ValueAbsent
	}
	for at := 0; ; {
		s, next, ok := fields.Next("cookie", at)
		if !ok {
			return v.Kind == ValueAbsent
		}
		for s != "" {
			pair := s
			if i := strings.IndexByte(s, ';'); i >= 0 {
				pair, s = s[:i], s[i+1:]
			} else {
				s = ""
			}
			name, val, ok := cut(pair, '=')
			if ok && trim(name) == v.Name && v.holds(trim(val)) {
				return v.Kind != ValueAbsent
			}
		}
		at = next
	}
}

// fitsQuery looks through the parameters of a raw query, which are separated by "&".
func (v *value) fitsQuery(query string) bool {
	for query != "" {
		pair := query
		if i := strings.IndexByte(query, '&'); i >= 0 {
			pair, query = query[:i], query[i+1:]
		} else {
			query = ""
		}
		if pair == "" {
			continue
		}
		name, val, _ := cut(pair, '=')
		if sameDecoded(name, v.Name) && v.holdsEncoded(val) {
			return v.Kind != ValueAbsent
		}
	}
	return v.Kind == ValueAbsent
}

// holdsEncoded compares a form-encoded value. What is not encoded is compared in place, the rest in a buffer on the
// stack unless it is long.
func (v *value) holdsEncoded(s string) bool {
	if strings.IndexByte(s, '%') < 0 && strings.IndexByte(s, '+') < 0 {
		return v.holds(s)
	}
	var buf [256]byte
	b := buf[:0]
	for len(s) > 0 {
		var c byte
		c, s = decodeOne(s)
		b = append(b, c)
	}
	return v.holdsBytes(b)
}

// sameDecoded tells whether the form-encoded s stands for text.
func sameDecoded(s, text string) bool {
	if s == text && strings.IndexByte(s, '%') < 0 && strings.IndexByte(s, '+') < 0 {
		return true
	}
	for len(s) > 0 {
		var c byte
		c, s = decodeOne(s)
		if text == "" || text[0] != c {
			return false
		}
		text = text[1:]
	}
	return text == ""
}

// decodeOne takes one form-encoded octet off s, which is not empty. A broken escape stands for itself.
func decodeOne(s string) (c byte, rest string) {
	switch {
	case s[0] == '+':
		return ' ', s[1:]
	case s[0] == '%' && len(s) >= 3 && isHex(s[1]) && isHex(s[2]):
		return unhex(s[1])<<4 | unhex(s[2]), s[3:]
	}
	return s[0], s[1:]
}

func cut(s string, sep byte) (before, after string, found bool) {
	if i := strings.IndexByte(s, sep); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

// trim takes blanks and tabs off both ends.
func trim(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f'
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
}
