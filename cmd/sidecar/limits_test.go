package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMemoryLimit(t *testing.T) {
	for _, row := range []struct {
		name, env string
		files     map[string]string
		limit     int64
		from      string
	}{
		{"nothing known", "", nil, 0, ""},
		{"the variable wins", "1GiB", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "100\n"}, 0, "GOMEMLIMIT"},
		{"version 2, own root", "", map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "268435456\n"}, 268435456, "sys/fs/cgroup/memory.max"},
		{"version 2, no bound", "", map[string]string{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"}, 0, ""},
		{"version 2, the one above is lower", "", map[string]string{
			"proc/self/cgroup": "0::/pod/box\n", "sys/fs/cgroup/pod/box/memory.max": "500\n", "sys/fs/cgroup/pod/memory.max": "400\n",
		}, 400, "sys/fs/cgroup/pod/memory.max"},
		{"version 1", "", map[string]string{
			"proc/self/cgroup": "5:cpu:/x\n9:memory:/box\n", "sys/fs/cgroup/memory/box/memory.limit_in_bytes": "700\n",
		}, 700, "sys/fs/cgroup/memory/box/memory.limit_in_bytes"},
		{"version 1, in its own box", "", map[string]string{
			"proc/self/cgroup": "9:memory:/docker/123\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "700\n",
		}, 700, "sys/fs/cgroup/memory/memory.limit_in_bytes"},
		{"version 1, no bound", "", map[string]string{
			"proc/self/cgroup": "9:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 0, ""},
		{"both", "", map[string]string{
			"proc/self/cgroup": "9:memory:/\n0::/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "700\n",
		}, 700, "sys/fs/cgroup/memory/memory.limit_in_bytes"},
		{"a path that climbs stays inside", "", map[string]string{"proc/self/cgroup": "0::/../../x\n", "sys/fs/cgroup/memory.max": "100\n"}, 100, "sys/fs/cgroup/memory.max"},
		{"nonsense", "", map[string]string{"proc/self/cgroup": "nonsense\n", "sys/fs/cgroup/memory.max": "100\n"}, 0, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range row.files {
				file := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if row.limit > 0 {
				row.from = filepath.Join(root, row.from)
			}
			if limit, from := memoryLimit(root, row.env); limit != row.limit || from != row.from {
				t.Errorf("%d from %q, want %d from %q", limit, from, row.limit, row.from)
			}
		})
	}
}
