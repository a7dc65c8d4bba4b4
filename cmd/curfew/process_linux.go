package main

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"github.com/curfewmq/curfew/core/mgmt"
)

// describeProcess returns what the system says of this process, and of the disk that dir is on.
func describeProcess(dir string) mgmt.Machine {
	m := mgmt.Machine{Memory: residentMemory(), Processors: runtime.NumCPU()}
	var disk syscall.Statfs_t
	if syscall.Statfs(dir, &disk) == nil {
		m.DiskFree = disk.Bavail * uint64(max(disk.Bsize, 0))
	}
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		m.Files = len(fds)
	}
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		m.FilesLimit = int(min(limit.Cur, 1<<30))
	}
	return m
}

// residentMemory returns how many bytes of memory the process has; 0 = unknown.
func residentMemory() uint64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	f := bytes.Fields(b)
	if len(f) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(string(f[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}
