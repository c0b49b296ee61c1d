package demo

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// TestDemo plays the short form: all that it claims must happen, and nothing may be left over.
func TestDemo(t *testing.T) {
	defer goleak.VerifyNone(t)
	var out bytes.Buffer
	for left := 3; ; left-- {
		out.Reset()
		err := Run(t.Context(), Options{Out: &out, Short: true})
		if err == nil {
			break
		}
		t.Log(out.String())
		var f *Failed
		if left == 1 || !errors.As(err, &f) {
			t.Fatal(err)
		}
		t.Log(err) // a busy machine breaks another claim each time, a fault of ours the same
	}
	if strings.Contains(out.String(), "\x1b[") {
		t.Error("colours where there is no terminal")
	}
	if !strings.Contains(out.String(), "0 broken") {
		t.Error("no summary")
	}
}

// TestInterrupted ends the demo in its middle: it must let go of everything, and say that it is not to blame.
func TestInterrupted(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx, cancel := context.WithCancel(t.Context())
	err := Run(ctx, Options{Out: writer(func(p []byte) {
		if bytes.Contains(p, []byte("2. One endpoint")) {
			cancel()
		}
	}), Short: true})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

// TestBrokenClaim shows that a claim that does not hold is told and remembered.
func TestBrokenClaim(t *testing.T) {
	var out bytes.Buffer
	s := &story{out: &out, colour: true}
	s.claim(true, "water is wet")
	s.claim(false, "pigs fly: %d", 0)
	if len(s.broken) != 1 || s.broken[0] != "pigs fly: 0" || s.claims != 2 {
		t.Errorf("remembered %q of %d", s.broken, s.claims)
	}
	if !strings.Contains(out.String(), "FAIL") || !strings.Contains((&Failed{Claims: s.broken}).Error(), "pigs fly") {
		t.Errorf("told %q", out.String())
	}
}
