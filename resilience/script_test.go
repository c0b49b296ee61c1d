package resilience_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite testdata")

// A script is a story in testdata: `# …` explains, a line without a time sets a subject up ("call timeout=1s …"), a line
// with a time is an event ("100ms tick"), and lines that begin with "  -> " are what came out.

// subject is what a script talks to.
type subject interface {
	// event plays one line and returns what came out.
	event(now time.Time, words []string) []string
}

// epoch is where the times of scripts count from.
var epoch = time.Unix(1_700_000_000, 0)

func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(data))
			if *update {
				if err := os.WriteFile(f, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(data) {
				t.Errorf("got:\n%s\nwant:\n%s", got, data)
			}
		})
	}
}

func play(t *testing.T, script string) string {
	t.Helper()
	var out strings.Builder
	var s subject
	for n, line := range strings.Split(strings.TrimSuffix(script, "\n"), "\n") {
		if strings.HasPrefix(line, "  -> ") {
			continue
		}
		out.WriteString(line + "\n")
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		at, err := time.ParseDuration(words[0])
		if err != nil {
			s = setUp(t, s, words)
			continue
		}
		if s == nil || len(words) < 2 {
			t.Fatalf("line %d: nothing to do: %s", n+1, line)
		}
		for _, o := range s.event(epoch.Add(at), words[1:]) {
			out.WriteString("  -> " + o + "\n")
		}
	}
	return out.String()
}

func setUp(t *testing.T, old subject, words []string) subject {
	t.Helper()
	args := parse(words[1:])
	switch words[0] {
	case "call":
		return newCallScript(args, old)
	case "budget":
		return newBudgetScript(args)
	case "breaker":
		return newBreakerScript(args)
	case "outlier":
		return newOutlierScript(args)
	case "switch":
		return newSwitchScript(args)
	case "limiter":
		return newLimiterScript(args, old)
	}
	t.Fatalf("unknown subject %q", words[0])
	return nil
}

// args are the words of a line: "key=value" or "flag".
type args map[string]string

func parse(words []string) args {
	a := args{}
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		a[k] = v
	}
	return a
}

func (a args) has(k string) bool { _, ok := a[k]; return ok }

func (a args) int(k string) int {
	if a[k] == "" {
		return 0
	}
	return atoi(a[k])
}

func (a args) ratio(k string) float64 {
	s, percent := strings.CutSuffix(a[k], "%")
	if s == "" {
		return 0
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		panic(err)
	}
	if percent {
		f /= 100
	}
	return f
}

func (a args) duration(k string) time.Duration {
	if a[k] == "" {
		return 0
	}
	d, err := time.ParseDuration(a[k])
	if err != nil {
		panic(err)
	}
	return d
}

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

// count is the repetition at the end of an event, 1 if there is none.
func count(words []string, i int) int {
	if i < len(words) {
		return atoi(words[i])
	}
	return 1
}

// clock writes a time as scripts do.
func clock(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Sub(epoch).String()
}

func one(format string, a ...any) []string { return []string{fmt.Sprintf(format, a...)} }
