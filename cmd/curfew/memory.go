package main

import (
	"bufio"
	"bytes"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
)

// machineMemory returns the bytes of memory this process may use: what the
// machine has, or less where a control group or its parent says so. root is the
// file system from "/" on. It returns 0 where none of this can be read.
func machineMemory(root fs.FS) uint64 {
	total := uint64(math.MaxUint64)
	if b, err := fs.ReadFile(root, "proc/meminfo"); err == nil {
		total = memTotal(b)
	}
	for _, name := range limitFiles(root) {
		b, err := fs.ReadFile(root, name)
		if err != nil {
			continue
		}
		if limit, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64); err == nil && limit > 0 {
			total = min(total, limit) // "max" is not a number, and no limit
		}
	}
	if total == math.MaxUint64 {
		return 0
	}
	return total
}

func memTotal(meminfo []byte) uint64 {
	for line := range bytes.Lines(meminfo) {
		f := strings.Fields(string(line))
		if len(f) < 2 || f[0] != "MemTotal:" {
			continue
		}
		if kib, err := strconv.ParseUint(f[1], 10, 64); err == nil {
			return kib << 10
		}
	}
	return math.MaxUint64
}

// limitFiles lists where a memory limit of this process may stand, its control
// group's (version 2, then 1) and those of the groups around it.
func limitFiles(root fs.FS) []string {
	const v2, v1 = "sys/fs/cgroup", "sys/fs/cgroup/memory"
	names := []string{v2 + "/memory.max", v1 + "/memory.limit_in_bytes"}
	b, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return names
	}
	lines := bufio.NewScanner(bytes.NewReader(b))
	for lines.Scan() { // "0::/group" or "7:memory:/group"
		f := strings.SplitN(lines.Text(), ":", 3)
		if len(f) < 3 {
			continue
		}
		for group := path.Clean("/" + f[2]); group != "/"; group = path.Dir(group) {
			switch f[1] {
			case "":
				names = append(names, v2+group+"/memory.max")
			case "memory":
				names = append(names, v1+group+"/memory.limit_in_bytes")
			}
		}
	}
	return names
}
