package telemetry

import (
	"strconv"
	"testing"
)

// TestVersionsAreBounded: names that come without end are counted together; known ones stay.
func TestVersionsAreBounded(t *testing.T) {
	u := &Upstream{}
	first := u.Version("v0")
	for i := range 100 {
		u.Version("v" + strconv.Itoa(i))
	}
	if n := len(u.versions.list); n != maxValues+1 {
		t.Errorf("%d versions are kept", n)
	}
	if u.Version("v0") != first || u.Version("v99") != u.Version("v98") || u.Version("v99").name != overflow {
		t.Error("names beyond the bound are not counted together")
	}
}
