package broker

import (
	"testing"
	"testing/fstest"
)

func TestMachineMemory(t *testing.T) {
	const meminfo = "MemTotal:       16384 kB\nMemFree:        1 kB\n"
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  uint64
	}{
		{"plain", map[string]string{"proc/meminfo": meminfo}, 16 << 20},
		{"container", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "4194304\n"}, 4 << 20},
		{"no limit", map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"}, 16 << 20},
		{"limit above the memory", map[string]string{"proc/meminfo": meminfo, "sys/fs/cgroup/memory.max": "99999999999\n"}, 16 << 20},
		{
			"limit of the group around it",
			map[string]string{
				"proc/meminfo": meminfo, "proc/self/cgroup": "0::/system.slice/curfew.service\n",
				"sys/fs/cgroup/system.slice/memory.max": "5000000\n", "sys/fs/cgroup/system.slice/curfew.service/memory.max": "max\n",
			},
			5000000,
		},
		{
			"version 1",
			map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "9:cpu:/x\n8:memory:/x\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "6000000\n"},
			6000000,
		},
		{"odd files", map[string]string{"proc/meminfo": "MemTotal:\nMemTotal: many kB\n", "proc/self/cgroup": "\n::\nx\n"}, 0},
		{"another system", nil, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := fstest.MapFS{}
			for name, text := range tt.files {
				root[name] = &fstest.MapFile{Data: []byte(text)}
			}
			if got := machineMemory(root); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}
