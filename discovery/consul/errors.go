package consul

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/hashicorp/consul/api"
)

// Kind says what kind of failure it was.
type Kind uint8

// The kinds of failure.
const (
	Unreachable Kind = iota // no connection, or it broke
	TimedOut                // no whole answer in time
	Forbidden               // the token may not
	RateLimited             // asked to slow down
	ServerError             // the server said that it failed
	Rejected                // the server understood and refused: a wrong filter, an unknown datacenter
	BadAnswer               // not what the API promises
	TooLarge                // longer than max_answer
)

// String returns the name of the kind, as metrics and logs have it.
func (k Kind) String() string {
	switch k {
	case Unreachable:
		return "unreachable"
	case TimedOut:
		return "timeout"
	case Forbidden:
		return "forbidden"
	case RateLimited:
		return "rate_limited"
	case ServerError:
		return "server_error"
	case Rejected:
		return "rejected"
	case BadAnswer:
		return "bad_answer"
	case TooLarge:
		return "too_large"
	}
	return "unknown"
}

// Error is a failed query.
type Error struct {
	Kind Kind
	Text string

	after time.Duration // the pause that the server asked for
	down  bool          // nothing was tried: no agent takes connections
}

// Error implements error.
func (e *Error) Error() string { return e.Kind.String() + ": " + e.Text }

// Reason is the kind as a word, for metrics.
func (e *Error) Reason() string { return e.Kind.String() }

// classify says what kind of failure err is.
func classify(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	var status api.StatusError
	var syntax *json.SyntaxError
	var typed *json.UnmarshalTypeError
	var timeout net.Error
	switch {
	case errors.As(err, &status):
		return &Error{Kind: kindOf(status), Text: fmt.Sprintf("HTTP %d %s", status.Code, excerpt(status.Body))}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return &Error{Kind: TimedOut, Text: err.Error()}
	case errors.As(err, &syntax), errors.As(err, &typed):
		return &Error{Kind: BadAnswer, Text: err.Error()}
	case err == io.EOF: //nolint:errorlint // of the body itself, not of the connection
		return &Error{Kind: BadAnswer, Text: "the answer is empty"}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &Error{Kind: BadAnswer, Text: "the answer was cut short"}
	}
	return &Error{Kind: Unreachable, Text: err.Error()}
}

func kindOf(s api.StatusError) Kind {
	switch {
	case s.Code == http.StatusForbidden, s.Code == http.StatusUnauthorized:
		return Forbidden
	case s.Code == http.StatusTooManyRequests:
		return RateLimited
	case s.Code == http.StatusInternalServerError && strings.Contains(s.Body, "filter"):
		return Rejected // what a wrong filter expression is answered with
	case s.Code >= 500:
		return ServerError
	case s.Code >= 400:
		return Rejected
	}
	return BadAnswer
}

// excerpt is the beginning of a text from outside, fit for one line of a log.
func excerpt(s string) string {
	const enough = 200
	if len(s) > enough {
		s = strings.ToValidUTF8(s[:enough], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}
