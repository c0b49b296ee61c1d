package admin

import (
	"os"
	"strings"
	"testing"
)

// docs/admin.md has a row for each path.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../docs/admin.md")
	if err != nil {
		t.Fatal(err)
	}
	_, _, s := rig(t)
	for _, path := range s.api.full().list() {
		if strings.HasSuffix(path, "/") && path != "/" {
			path += "NAME"
		}
		if !strings.Contains(string(text), "| `"+path+"` |") {
			t.Errorf("docs/admin.md has no row for %s", path)
		}
	}
}
