package guard

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sidecar-mesh/sidecar/config"
)

var update = flag.Bool("update", false, "write what the guard says into the scripts")

var begin = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

// TestScripts plays the stories of testdata: `# …` explains, `rules …` sets bounds, a line with a time is an event, and what
// follows an event with `=` is the decision. Names stand for addresses; `a!` is critical, `a?` warning, `a-` in
// maintenance, `n1..60` are sixty of them.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(text))
			if *update {
				if err := os.WriteFile(f, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("%s is another story now:\n%s", f, got)
			}
		})
	}
}

func play(t *testing.T, text string) string {
	var b strings.Builder
	g := &Guard{}
	r := Rules{MaxRemoval: 0.2, Below: 0.5, MinKnown: 3, Hold: 30 * time.Second, Memory: 10 * time.Minute}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		words := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "="), strings.HasPrefix(line, "  "):
			continue
		case len(words) == 0 || words[0] == "#":
		case words[0] == "rules":
			setRules(t, &r, words[1:])
		default:
			at, err := time.ParseDuration(words[0])
			if err != nil || len(words) < 2 {
				t.Fatalf("%q: %v", line, err)
			}
			now := begin.Add(at)
			event(t, g, now, words[1], words[2:])
			fmt.Fprintln(&b, line)
			b.WriteString(spell(g.Decide(now, r)))
			continue
		}
		fmt.Fprintln(&b, line)
	}
	return b.String()
}

func setRules(t *testing.T, r *Rules, words []string) {
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "removal":
			r.MaxRemoval, _ = strconv.ParseFloat(value, 64)
		case "below":
			r.Below, _ = strconv.ParseFloat(value, 64)
		case "min_known":
			r.MinKnown, _ = strconv.Atoi(value)
		case "meant":
			r.Meant = true
		case "consumer":
			r.Consumer = value != "off"
		default:
			t.Fatalf("no rule %q", w)
		}
	}
}

func event(t *testing.T, g *Guard, now time.Time, what string, args []string) {
	switch what {
	case "answer":
		g.Answer(now, listed(args))
	case "disk":
		g.Restore(now, listed(args))
	case "alive", "dead":
		problem := map[string]string{"dead": "refused"}[what]
		for _, l := range listed(args) {
			g.Checked(now, l.Address, problem)
		}
	case "suspect":
		g.Suspect(now, args[0])
	case "failed":
		g.Failed()
	case "left":
		g.Left(now, args[0])
	case "wait":
	default:
		t.Fatalf("no event %q", what)
	}
}

func listed(names []string) []*config.Endpoint {
	var list []*config.Endpoint
	for _, n := range names {
		h := config.HealthPassing
		if i := strings.IndexAny(n, "!?-"); i >= 0 {
			h = map[byte]config.Health{'!': config.HealthCritical, '?': config.HealthWarning, '-': config.HealthMaintenance}[n[i]]
			n = n[:i]
		}
		first, last, span := strings.Cut(n, "..")
		if !span {
			list = append(list, &config.Endpoint{Address: n, Weight: 1, Health: h})
			continue
		}
		from, _ := strconv.Atoi(first[1:])
		to, _ := strconv.Atoi(last)
		for i := from; i <= to; i++ {
			list = append(list, &config.Endpoint{Address: fmt.Sprintf("%c%03d", first[0], i), Weight: 1, Health: h})
		}
	}
	slices.SortFunc(list, func(a, b *config.Endpoint) int { return strings.Compare(a.Address, b.Address) })
	return list
}

// spell writes a decision: long lists as numbers.
func spell(d Decision) string {
	var b strings.Builder
	fmt.Fprintf(&b, "= %s since %s", d.Mode, d.Since.Sub(begin))
	if !d.Until.IsZero() {
		fmt.Fprintf(&b, " until %s", d.Until.Sub(begin))
	}
	fmt.Fprintf(&b, " (%d of %d)", d.Listed, d.Known)
	fmt.Fprintf(&b, " use %s", some(d.Use))
	if len(d.Due) > 0 {
		fmt.Fprintf(&b, " check %s", some(d.Due))
	}
	if d.Pending > 0 {
		fmt.Fprintf(&b, " pending %d", d.Pending)
	}
	if !d.Next.IsZero() {
		fmt.Fprintf(&b, " next %s", d.Next.Sub(begin))
	}
	b.WriteByte('\n')
	kinds := map[string][]*config.Endpoint{}
	var order []string
	for _, n := range d.Notes {
		k := fmt.Sprintf("%s used=%t %s since %s", n.Why, n.Used, n.Check, n.Since.Sub(begin))
		if kinds[k] == nil {
			order = append(order, k)
		}
		kinds[k] = append(kinds[k], n.Endpoint)
	}
	for _, k := range order {
		fmt.Fprintf(&b, "  %s: %s\n", k, some(kinds[k]))
	}
	return b.String()
}

func some(list []*config.Endpoint) string {
	if len(list) == 0 {
		return "none"
	}
	if len(list) > 6 {
		return fmt.Sprint(len(list))
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Address)
	}
	return strings.Join(names, ",")
}
