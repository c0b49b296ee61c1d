package main

import (
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// logLimits sets the soft memory limit of the runtime to 90 % of what the control group allows, unless GOMEMLIMIT says
// something else, and logs what is in force. The runtime finds the number of threads by itself.
func logLimits(log *slog.Logger) {
	source := "none"
	switch limit, from := memoryLimit("/", os.Getenv("GOMEMLIMIT")); {
	case from == "GOMEMLIMIT":
		source = from
	case limit > 0:
		debug.SetMemoryLimit(limit / 10 * 9)
		source = "90% of " + from
	}
	memory := "none"
	if n := debug.SetMemoryLimit(-1); n != math.MaxInt64 {
		memory = strconv.FormatInt(n, 10)
	}
	log.Info("limits of the process", "memory", memory, "memory_from", source, "threads", runtime.GOMAXPROCS(0), "cpus", runtime.NumCPU())
}

// memoryLimit returns how much memory the control group allows, 0 for no bound, and which file said so. A set GOMEMLIMIT
// wins. root is "/" but in tests.
func memoryLimit(root, env string) (limit int64, from string) {
	if env != "" {
		return 0, "GOMEMLIMIT"
	}
	text, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return 0, ""
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		base, name := "", ""
		switch {
		case parts[0] == "0" && parts[1] == "": // version 2
			base, name = "sys/fs/cgroup", "memory.max"
		case strings.Contains(","+parts[1]+",", ",memory,"):
			base, name = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		if n, file := lowest(filepath.Join(root, base), parts[2], name); n > 0 && (limit == 0 || n < limit) {
			limit, from = n, file
		}
	}
	return limit, from
}

// lowest returns the lowest limit of a group and those above it: in a container its own group may be the root of what it
// sees.
func lowest(base, group, name string) (limit int64, from string) {
	for at := filepath.Clean("/" + group); ; at = filepath.Dir(at) {
		file := filepath.Join(base, at, name)
		if text, err := os.ReadFile(file); err == nil {
			n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // "max" is no number
			if err == nil && n > 0 && n < 1<<60 && (limit == 0 || n < limit) {
				limit, from = n, file
			}
		}
		if at == "/" {
			return limit, from
		}
	}
}
