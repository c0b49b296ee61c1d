package demo

import (
	"fmt"
	"strings"
)

// withGrey is the configuration with a grey release of the catalog.
func (s *stage) withGrey(on bool) string {
	was := fmt.Sprintf("    endpoints: [%s]\n", addresses(s.catalog))
	next := fmt.Sprintf("    endpoints: [%s, {address: %q, labels: {version: grey}}]\n", addresses(s.catalog), s.canary.address)
	return strings.Replace(s.document(), was, next, 1) + fmt.Sprintf(`grey:
  catalog-next:
    match: {path: /items/*, segment: {"2": {mod: 20, in: [3]}}}
    labels: {version: grey}
    enabled: %v
`, on)
}

// withRooms is the configuration with the catalog in two rooms, and with group switches.
func (s *stage) withRooms(groups string) string {
	was := fmt.Sprintf("    endpoints: [%s]\n", addresses(s.catalog))
	var list strings.Builder
	list.WriteString("    group: bj\n    endpoints:\n")
	for i, t := range s.catalog {
		room := "sh"
		if i == 0 {
			room = "bj"
		}
		fmt.Fprintf(&list, "      - {address: %q, group: %s}\n", t.address, room)
	}
	return strings.Replace(s.document(), was, list.String(), 1) + groups
}
