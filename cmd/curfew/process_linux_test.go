package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestProgramMappings(t *testing.T) {
	const maps = `00400000-01a5a000 r-xp 00000000 fe:00 1234 /usr/bin/curfew
01a5a000-02fb1000 r--p 0165a000 fe:00 1234 /usr/bin/curfew
02fb1000-03050000 rw-p 02bb1000 fe:00 1234 /usr/bin/curfew
03050000-03200000 rw-p 00000000 00:00 0
c000000000-c000400000 rw-p 00000000 00:00 0
7f0000000000-7f0000001000 r--p 00000000 fe:00 99 /usr/lib/libc.so.6
7f0000001000-7f0000002000 r--s 00000000 fe:00 98 /var/lib/curfew/log
nonsense r--p 00000000 fe:00 1234 /usr/bin/curfew
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0 [stack]
`
	var got []uintptr
	for from, to := range programMappings(maps) {
		got = append(got, from, to)
	}
	if want := []uintptr{0x400000, 0x1a5a000, 0x1a5a000, 0x2fb1000}; !slices.Equal(got, want) {
		t.Errorf("got %#x, want %#x", got, want)
	}
}

// What is given back at the start comes back when it is used: the program goes on.
func TestReleaseProgram(t *testing.T) {
	releaseProgram()
	maps, err := os.ReadFile("/proc/self/maps")
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
