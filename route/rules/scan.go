package rules

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tokenEnd tokenKind = iota
	tokenWord
	tokenIs    // =
	tokenNot   // !=
	tokenComma // ,
	tokenAnd   // &
	tokenArrow // =>
)

type token struct {
	kind tokenKind
	text string
	at   int // which character of the text, from 1
}

func (t token) isOperator() bool { return t.kind == tokenIs || t.kind == tokenNot }

func (t token) unexpected(want string) error {
	if t.kind == tokenEnd {
		return fmt.Errorf("%s is expected, got the end of the rule", want)
	}
	return fmt.Errorf("%s is expected, got %q at character %d", want, t.text, t.at)
}

// narrow gives the ASCII form of the full-width marks that texts in Chinese have.
func narrow(r rune) (ascii byte, ok bool) {
	switch r {
	case '！':
		return '!', true
	case '＝':
		return '=', true
	case '＞':
		return '>', true
	case '，', '、':
		return ',', true
	case '＆':
		return '&', true
	case '＊':
		return '*', true
	case '＄':
		return '$', true
	case '　':
		return ' ', true
	}
	return 0, false
}

// plain writes full-width marks in ASCII, with a warning for each kind.
func (p *parser) plain(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return r >= utf8.RuneSelf }) < 0 {
		return text
	}
	return strings.Map(func(r rune) rune {
		c, ok := narrow(r)
		if !ok {
			return r
		}
		if c != ' ' {
			p.warn("the full-width %c is read as %c", r, c)
		}
		return rune(c)
	}, text)
}

// scan takes the text apart.
func (p *parser) scan(text string) error {
	runes := []rune(p.plain(text))
	for i := 0; i < len(runes); {
		at := i + 1
		next := rune(0)
		if i+1 < len(runes) {
			next = runes[i+1]
		}
		one := func(k tokenKind, n int) {
			p.tokens = append(p.tokens, token{k, string(runes[i : i+n]), at})
			i += n
		}
		switch r := runes[i]; {
		case r == ' ' || r == '\t' || r == '\n' || r == '\r':
			i++
		case r == '=' && next == '>':
			one(tokenArrow, 2)
		case r == '!' && next == '=':
			one(tokenNot, 2)
		case r == '=' && next == '=':
			return fmt.Errorf("= is expected, got %q at character %d", "==", at)
		case r == '=':
			one(tokenIs, 1)
		case r == ',':
			one(tokenComma, 1)
		case r == '&' && next == '&':
			p.warn("&& is read as &")
			one(tokenAnd, 2)
		case r == '&':
			one(tokenAnd, 1)
		case r < ' ' || r == 0x7f || r == utf8.RuneError || strings.ContainsRune(`!<>"'|;`, r):
			return fmt.Errorf("%q at character %d is no part of a rule", string(r), at)
		default:
			n := 1
			for i+n < len(runes) && !strings.ContainsRune(" \t\r\n=!,&<>\"'|;", runes[i+n]) && runes[i+n] >= ' ' {
				n++
			}
			one(tokenWord, n)
		}
	}
	return nil
}
