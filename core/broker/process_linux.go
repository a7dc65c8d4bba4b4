package broker

import (
	"fmt"
	"iter"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/curfewmq/curfew/core/mgmt"
)

// describeProcess describes this process, and the disk that dir is on.
func describeProcess(dir string) mgmt.Machine {
	m := mgmt.Machine{Memory: residentMemory(), Processors: runtime.NumCPU()}
	var disk syscall.Statfs_t
	if syscall.Statfs(dir, &disk) == nil {
		m.DiskFree = disk.Bavail * uint64(max(disk.Bsize, 0))
	}
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		m.Files = len(fds)
	}
	m.FilesLimit = filesLimit()
	return m
}

// filesLimit returns how many file descriptors the process may have; 0 = unknown.
func filesLimit() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int(min(limit.Cur, 1<<30))
}

// residentMemory returns how many bytes of memory the process has; 0 = unknown.
func residentMemory() uint64 {
	b, err := os.ReadFile("/proc/self/statm")
	var size, resident uint64 // pages
	if _, scanErr := fmt.Sscan(string(b), &size, &resident); err != nil || scanErr != nil {
		return 0
	}
	return resident * uint64(os.Getpagesize())
}

// releaseProgram lets the system unmap the pages of the program's file, most of which are not used after the start, such as tables of
// libraries. Used pages are mapped again from the system's cache. This saves two thirds of an idle broker's memory.
func releaseProgram() {
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	for from, to := range programMappings(string(maps)) {
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, from, to-from, syscall.MADV_DONTNEED) // advice only: a refusal does no harm
	}
}

// programMappings returns the bounds of the never-written mappings of the program's file, which comes first in /proc/self/smaps. A
// read-only mapping may have been written, too: the loader writes addresses into a relocatable program, and a debugger writes breakpoints.
// The file lacks these bytes, so such a mapping must stay.
func programMappings(smaps string) iter.Seq2[uintptr, uintptr] {
	return func(yield func(from, to uintptr) bool) {
		program := ""
		var from, to uintptr
		found := false // from and to bound a mapping of the program
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
