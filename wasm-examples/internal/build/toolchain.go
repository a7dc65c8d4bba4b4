package build

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// pins says which version of each toolchain made the modules that are checked
// in, and why those.
//
//go:embed toolchains.txt
var pins string

// pinned returns the version that a language is pinned to.
func pinned(language string) string {
	for line := range strings.Lines(pins) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == language {
			return f[1]
		}
	}
	panic("toolchains.txt does not have " + language)
}

// anyVersion says that versions that made no module will do as well: TOOLCHAINS=any. With TOOLCHAINS=pinned only those that made them are
// used, and without the variable none is.
func anyVersion() bool { return os.Getenv("TOOLCHAINS") == "any" }

// tool is a program that is installed.
type tool struct {
	path, version string
	pinned        bool // it is the version that made the modules
}

func (t tool) String() string { return t.path + " " + t.version }

// find returns the one of some programs that has the pinned version. Where there
// is none, and any will do, it is the first that is usable, and the test is
// skipped otherwise, as it is where TOOLCHAINS asks for none.
func find(tb testing.TB, language string, usable func(path string) bool, names ...string) tool {
	tb.Helper()
	if underTest() {
		tb.Skip("the module that was built is the one that is being tested")
	}
	if os.Getenv("TOOLCHAINS") == "" {
		tb.Skip("not built anew: TOOLCHAINS=any does it, with the compilers that are installed")
	}
	var found []tool
	for _, name := range names {
		t, ok := look(tb, name, language)
		if !ok || usable != nil && !usable(t.path) {
			continue
		}
		if t.pinned {
			return t
		}
		found = append(found, t)
	}
	if len(found) == 0 {
		tb.Skipf("not built anew: no %s is installed that knows WebAssembly", names[0])
	}
	if !anyVersion() {
		tb.Skipf("not built anew: there is %s, and the module was made with %s", found[0], pinned(language))
	}
	return found[0]
}

func look(tb testing.TB, name, language string) (tool, bool) {
	tb.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		return tool{}, false
	}
	out, err := exec.CommandContext(tb.Context(), path, "--version").Output()
	if err != nil {
		out, err = exec.CommandContext(tb.Context(), path, "version").Output() // as Zig has it
	}
	version := regexp.MustCompile(`\d+\.\d+\.\d+`).FindString(string(out))
	if err != nil || version == "" {
		return tool{}, false
	}
	return tool{path: path, version: version, pinned: version == pinned(language)}, true
}

// numbered are the names that a program of LLVM may have.
func numbered(name string) []string {
	names := []string{name}
	for v := 25; v >= 14; v-- {
		names = append(names, fmt.Sprintf("%s-%d", name, v))
	}
	return names
}
