package discovery_test

import (
	"os"
	"strings"
	"testing"

	"github.com/sidecar-mesh/sidecar/config"
)

// The examples of docs/discovery.md are configurations.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../docs/discovery.md")
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(text), "```yaml\n")
	if len(parts) < 4 {
		t.Fatalf("%d examples", len(parts)-1)
	}
	for _, p := range parts[1:] {
		example, _, _ := strings.Cut(p, "```")
		if _, err := config.LoadBytes("docs/discovery.md", []byte(example), config.RankFile, os.LookupEnv); err != nil {
			t.Errorf("%v\n%s", err, example)
		}
	}
}
