package registration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestLives plays the lives in testdata. A line is a time and
//
//	> ACTION             what Next must say; "wait" with the time of the next look, where there is one
//	< RESULT [text]      how the last action ended
//	listen, leave, app well, app ill REASON
//	= STATE [why]        what View must say
func TestLives(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { play(t, file) })
	}
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func play(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	i := &Instance{TTL: 15 * time.Second}
	var m *Machine
	var last Action
	for n, line := range strings.Split(string(text), "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if words[0] == "rules" {
			i.Rules = "p"
			continue
		}
		if m == nil {
			m = New(i)
		}
		at, err := time.ParseDuration(words[0])
		if err != nil {
			t.Fatalf("line %d: %v", n+1, err)
		}
		now, rest := start.Add(at), strings.Join(words[2:], " ")
		if words[1] == ">" {
			last = m.Next(now)
		}
		if got, want, judged := step(m, now, words[1], rest, last); judged && got != want {
			t.Fatalf("%s line %d: %s\ngot %s", filepath.Base(file), n+1, line, got)
		}
	}
}

// step plays one line, and returns what is to be compared.
func step(m *Machine, now time.Time, word, rest string, last Action) (got, want string, judged bool) {
	switch word {
	case ">":
		return show(last), rest, true
	case "<":
		kind, text, _ := strings.Cut(rest, " ")
		m.Done(now, last, Result{Kind: kindOf(kind), Text: text}, 1)
	case "listen":
		m.Listening()
	case "leave":
		m.Leave()
	case "app":
		state, why, _ := strings.Cut(rest, " ")
		m.App(state == "well", why)
	case "=":
		s, why := m.View()
		return strings.TrimSpace(s.String() + " " + why), rest, true
	default:
		return "unknown word " + word, "", true
	}
	return "", "", false
}

func show(a Action) string {
	switch {
	case a.Verb == Wait && !a.Until.IsZero():
		return "wait " + a.Until.Sub(start).String()
	case a.Well:
		return a.Verb.String() + " well"
	case a.Verb == Report:
		return strings.TrimSpace("report ill " + a.Note)
	}
	return a.Verb.String()
}

func kindOf(name string) Kind {
	for k := OK; k <= UnknownGroup; k++ {
		if k.String() == name {
			return k
		}
	}
	panic("unknown result " + name)
}

// TestNeverStuck: whatever happens, Next either acts, waits for a time to come, or waits for an event that may come; after
// Leave and results that are good it ends with nothing left; nothing is written before it may be.
func TestNeverStuck(t *testing.T) {
	for seed := range uint64(3000) {
		r := dice(seed)
		i := &Instance{TTL: time.Duration(1+r.roll(30)) * time.Second}
		if r.roll(2) == 0 {
			i.Rules = "p"
		}
		m, now := New(i), start
		allowed := i.Rules == ""
		for range 60 {
			switch r.roll(8) {
			case 0:
				m.App(r.roll(2) == 0, "ill")
			case 1:
				m.Listening()
			}
			a := m.Next(now)
			if a.Verb == Wait {
				if !a.Until.IsZero() && !a.Until.After(now) {
					t.Fatalf("seed %d: waits for the past", seed)
				}
				now = now.Add(time.Duration(1+r.roll(5000)) * time.Millisecond)
				continue
			}
			if a.Verb == Register && !allowed {
				t.Fatalf("seed %d: registers unasked", seed)
			}
			res := Result{Kind: possible(a.Verb)[r.roll(uint64(len(possible(a.Verb))))]}
			if a.Verb == Check && res.Kind != Failed {
				allowed = !res.Kind.Refusal()
			}
			m.Done(now, a, res, 0.5)
		}
		if left := leaves(m, now); left != "" {
			t.Fatalf("seed %d: %s", seed, left)
		}
	}
}

// leaves lets it go, with a registry that does what it is told.
func leaves(m *Machine, now time.Time) string {
	m.Leave()
	written := m.written()
	removed := m.there == no
	for range 20 {
		a := m.Next(now)
		switch a.Verb {
		case Wait:
			if s, _ := m.View(); s == Left {
				if written && !removed {
					return "left without being taken away"
				}
				return ""
			}
			if a.Until.IsZero() {
				return "waits for ever"
			}
			now = a.Until
			continue
		case Deregister:
			removed = true
		case Verify:
		default:
			return fmt.Sprint("while leaving: ", a.Verb)
		}
		m.Done(now, a, Result{}, 0.5)
	}
	return "does not end"
}

func possible(v Verb) []Kind {
	switch v {
	case Check:
		return []Kind{OK, OK, Failed, Offline, NotAllowed, UnknownService, UnknownGroup}
	case Report:
		return []Kind{OK, OK, Failed, Lost}
	case Verify:
		return []Kind{OK, Failed, There}
	}
	return []Kind{OK, OK, Failed}
}

type dicer struct{ x uint64 }

func dice(seed uint64) *dicer { return &dicer{seed*0x9e3779b97f4a7c15 + 1} }

func (d *dicer) roll(n uint64) uint64 {
	d.x ^= d.x << 13
	d.x ^= d.x >> 7
	d.x ^= d.x << 17
	return d.x % n
}
