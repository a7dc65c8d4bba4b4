package main

import (
	"bytes"
	"iter"
	"os"
	"runtime"
	"strconv"
	"strings"
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

// releaseProgram has the system take those parts of the program out of this process's memory that nobody uses after the start,
// such as tables of libraries: it maps what is needed again, from its cache, page by page. That is two thirds of what an idle
// broker would otherwise hold.
func releaseProgram() {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return
	}
	for from, to := range programMappings(string(maps)) {
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, from, to-from, syscall.MADV_DONTNEED) // advice: nothing to do when refused
	}
}

// programMappings returns the first and the last address of what is mapped from the program's file and never written, as
// /proc/self/maps has it: the program comes first there.
func programMappings(maps string) iter.Seq2[uintptr, uintptr] {
	return func(yield func(from, to uintptr) bool) {
		program := ""
		for line := range strings.Lines(maps) {
			f := strings.Fields(line) // "from-to r-xp offset device inode path"
			if len(f) < 6 {
				continue
			}
			if program == "" {
				program = f[5]
			}
			from, to, ok := addresses(f[0])
			if ok && f[5] == program && f[1][1] == '-' && !yield(from, to) {
				return
			}
		}
	}
}

func addresses(s string) (from, to uintptr, ok bool) {
	before, behind, ok := strings.Cut(s, "-")
	a, err := strconv.ParseUint(before, 16, 64)
	b, err2 := strconv.ParseUint(behind, 16, 64)
	return uintptr(a), uintptr(b), ok && err == nil && err2 == nil && a < b
}
