package demo

import (
	"fmt"
	"strings"
)

const (
	backupShare = 15 // percent of the calls that may have a backup
	switchName  = "search-off"
)

// withBackup is the configuration with backup requests for search.
func (s *stage) withBackup() string {
	was := fmt.Sprintf("      per_try_timeout: %s\n", s.pace.perTry)
	return strings.Replace(s.document(), was, was+fmt.Sprintf("      backup: {after: p90, max_ratio: %d%%}\n", backupShare), 1)
}

// withSwitch is the configuration with a degradation switch for search.
func (s *stage) withSwitch() string {
	return s.document() + fmt.Sprintf(`switches:
  %s:
    service: search
    level: 1
    answer: {status: 200, body: "nothing found\n"}
    description: pages show no results of search
    owner: team-shop
`, switchName)
}
