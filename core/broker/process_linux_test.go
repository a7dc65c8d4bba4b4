package broker

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestProgramMappings(t *testing.T) {
	const smaps = `00400000-01a5a000 r-xp 00000000 fe:00 1234                     /usr/bin/curfew
Size:              22888 kB
Rss:               14880 kB
Anonymous:             0 kB
Swap:                  0 kB
THPeligible:           0
VmFlags: rd ex mr mw me
01a5a000-02fb1000 r--p 0165a000 fe:00 1234                     /usr/bin/curfew
Anonymous:             0 kB
VmFlags: rd mr mw me
02fb1000-03000000 r--p 02bb1000 fe:00 1234                     /usr/bin/curfew
Anonymous:           316 kB
VmFlags: rd mr mw me ac
03000000-03001000 r--p 02c00000 fe:00 1234                     /usr/bin/curfew
Anonymous:             0 kB
Swap:                  4 kB
03001000-03050000 rw-p 02c01000 fe:00 1234                     /usr/bin/curfew
Anonymous:             0 kB
03050000-03200000 rw-p 00000000 00:00 0
Anonymous:             8 kB
c000000000-c000400000 rw-p 00000000 00:00 0
7f0000000000-7f0000001000 r--p 00000000 fe:00 99               /usr/lib/libc.so.6
Anonymous:             0 kB
7f0000001000-7f0000002000 r--s 00000000 fe:00 98               /var/lib/curfew/log
nonsense r--p 00000000 fe:00 1234 /usr/bin/curfew
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                [stack]
7ffd00022000-7ffd00023000 r--p 00000000 fe:00 1234             /usr/bin/curfew
Anonymous:             0 kB
`
	var got []uintptr
	for from, to := range programMappings(smaps) {
		got = append(got, from, to)
	}
	if want := []uintptr{0x400000, 0x1a5a000, 0x1a5a000, 0x2fb1000, 0x7ffd00022000, 0x7ffd00023000}; !slices.Equal(got, want) {
		t.Errorf("got %#x, want %#x", got, want)
	}
}

// In a program that can be loaded at any address, as by go build -buildmode=pie, the loader writes tables of pointers and then makes them
// read-only. These pages used to be released, too, and the broker crashed when it was ready.
func TestReleaseProgramKeepsWhatWasWritten(t *testing.T) {
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	page, err := syscall.Mmap(int(program.Fd()), 0, os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Munmap(page) }()
	was := page[0]
	page[0] = was + 1
	if err := syscall.Mprotect(page, syscall.PROT_READ); err != nil {
		t.Fatal(err)
	}
	releaseProgram()
	if page[0] != was+1 {
		t.Error("what was written is gone")
	}
}

// Released pages come back when they are used: the program continues.
func TestReleaseProgram(t *testing.T) {
	releaseProgram()
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for range programMappings(string(maps)) {
		n++
	}
	if n == 0 {
		t.Errorf("nothing of this program is mapped:\n%s", strings.Join(strings.SplitN(string(maps), "\n", 5)[:4], "\n"))
	}
}
