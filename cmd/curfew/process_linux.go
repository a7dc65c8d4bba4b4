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
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	for from, to := range programMappings(string(maps)) {
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, from, to-from, syscall.MADV_DONTNEED) // advice: nothing to do when refused
	}
}

// programMappings returns the first and the last address of what is mapped from the program's file and was never written, as
// /proc/self/smaps has it: the program comes first there. That nobody may write to it is not enough: a program that can be
// loaded anywhere had its addresses written into it first, and so has one that a debugger stops. That is not in the file.
func programMappings(smaps string) iter.Seq2[uintptr, uintptr] {
	return func(yield func(from, to uintptr) bool) {
		program := ""
		var from, to uintptr
		found := false // from and to are of the program, as far as was read
		for line := range strings.Lines(smaps) {
			f := strings.Fields(line) // "from-to r-xp offset device inode path", then "Anonymous: 0 kB" and others like that
			if len(f) < 3 {
				continue
			}
			first, last, ok := addresses(f[0])
			if !ok {
				found = found && (f[0] != "Anonymous:" && f[0] != "Swap:" || f[1] == "0")
				continue
			}
			if found && !yield(from, to) {
				return
			}
			if program == "" && len(f) > 5 {
				program = f[5]
			}
			from, to, found = first, last, len(f) > 5 && f[5] == program && f[1][1] == '-'
		}
		if found {
			yield(from, to)
		}
	}
}

func addresses(s string) (from, to uintptr, ok bool) {
	before, behind, ok := strings.Cut(s, "-")
	a, err := strconv.ParseUint(before, 16, 64)
	b, err2 := strconv.ParseUint(behind, 16, 64)
	return uintptr(a), uintptr(b), ok && err == nil && err2 == nil && a < b
}
