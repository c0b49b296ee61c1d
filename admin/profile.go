package admin

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"strconv"
)

// profiles is where Go's profiles are, in the form and under the names that "go tool pprof" knows: read-only, and on the admin
// listener alone. A CPU profile costs a few percent of a core as long as it runs.
const profiles = "/debug/pprof/"

// profileSeconds bounds how long a profile may run.
const profileSeconds = 30

// profile answers below profiles. What the command line says, which may be a secret, is not among it.
func profile(w http.ResponseWriter, r *http.Request) {
	if s := r.URL.Query().Get("seconds"); s != "" {
		if n, err := strconv.Atoi(s); err != nil || n < 1 || n > profileSeconds {
			refuse(w, r, problem{Status: http.StatusBadRequest, Title: "bad parameter", Detail: fmt.Sprintf("seconds=%s: expected 1 to %d", cut(s), profileSeconds)})
			return
		}
	}
	switch r.URL.Path[len(profiles):] {
	case "profile":
		pprof.Profile(w, r)
	case "trace":
		pprof.Trace(w, r)
	case "cmdline", "symbol":
		refuse(w, r, problem{Status: http.StatusNotFound, Title: "no such profile", Detail: "there is: allocs goroutine heap profile threadcreate trace"})
	default:
		pprof.Index(w, r)
	}
}
