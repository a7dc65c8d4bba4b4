// Package build compiles policies in tests, the way that the SDKs' pages say, to
// see that the modules that are checked in are what comes of their sources.
package build

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Module is what a compiler made.
type Module struct {
	Bytes []byte

	made   string // by what
	pinned bool   // by what made the modules that are checked in
}

// C compiles a source file. Linking is a step of its own: clang, when it links,
// has whatever wasm-opt there is go over the module.
func C(tb testing.TB, source string) Module {
	tb.Helper()
	return llvm(tb, "c", "clang", "-I../../sdk/c", source)
}

// CPP compiles a source file as C++17 or, if the language's standard is named, as that. A warning is an error.
func CPP(tb testing.TB, source string, standard ...string) Module {
	tb.Helper()
	flags := []string{
		"-I../../sdk/c", "-I../../sdk/cpp", "-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
		"-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics", "-fno-c++-static-destructors",
	}
	for _, s := range standard {
		flags = append(flags, "-std="+s)
	}
	return llvm(tb, "c++", "clang++", append(flags, source)...)
}

func llvm(tb testing.TB, language, name string, args ...string) Module {
	tb.Helper()
	compiler := find(tb, language, func(path string) bool {
		out, err := exec.CommandContext(tb.Context(), path, "--print-targets").Output()
		return err == nil && strings.Contains(string(out), "wasm32")
	}, numbered(name)...)
	linker := lld(tb)
	object, file := filepath.Join(tb.TempDir(), "policy.o"), filepath.Join(tb.TempDir(), "policy.wasm")
	run(tb, compiler.path, append([]string{"--target=wasm32", "-O2", "-mbulk-memory", "-c", "-o", object}, args...)...)
	run(tb, linker.path, "--no-entry", "--strip-all", "--stack-first", "-z", "stack-size=4096", "-o", file, object)
	return Module{read(tb, file), compiler.String() + ", " + linker.String(), compiler.pinned && linker.pinned}
}

// lld is the linker of LLVM, for C and Rust.
func lld(tb testing.TB) tool {
	tb.Helper()
	return find(tb, "c", nil, numbered("wasm-ld")...)
}

// Rust compiles the file of a crate.
func Rust(tb testing.TB, source string) Module {
	tb.Helper()
	compiler := find(tb, "rust", func(path string) bool {
		root, err := exec.CommandContext(tb.Context(), path, "--print", "sysroot").Output()
		if err != nil {
			return false
		}
		_, err = os.Stat(filepath.Join(strings.TrimSpace(string(root)), "lib/rustlib/wasm32-unknown-unknown/lib"))
		return err == nil
	}, "/usr/bin/rustc", "rustc")
	linker := lld(tb)
	m := compile(tb, compiler, source,
		"--edition", "2021", "--crate-type", "cdylib", "--target", "wasm32-unknown-unknown", "-C", "linker="+linker.path,
		"-C", "opt-level=3", "-C", "panic=abort", "-C", "lto", "-C", "strip=symbols", "-C", "link-arg=-zstack-size=4096")
	m.made, m.pinned = m.made+", "+linker.String(), m.pinned && linker.pinned
	return m
}

// Zig compiles a source file, which imports the SDK's as if it lay beside it.
func Zig(tb testing.TB, source string) Module {
	tb.Helper()
	compiler := zig(tb)
	dir := tb.TempDir()
	file := filepath.Join(dir, "policy.wasm")
	command := []string{"build-exe", "-fno-entry"}
	if strings.HasPrefix(compiler.version, "0.11.") {
		command = []string{"build-lib", "-dynamic"}
	}
	run(tb, compiler.path, append(command, beside(tb, dir, source), "-target", "wasm32-freestanding", "-rdynamic", "-O", "ReleaseSafe", "-fstrip",
		"--stack", "4096", "--cache-dir", filepath.Join(dir, "cache"), "-femit-bin="+file)...)
	return Module{read(tb, file), compiler.String(), compiler.pinned}
}

// ZigTest runs the tests that a source file has, on the host.
func ZigTest(tb testing.TB, source string) {
	tb.Helper()
	dir := tb.TempDir()
	run(tb, zig(tb).path, "test", "--cache-dir", filepath.Join(dir, "cache"), beside(tb, dir, source))
}

func zig(tb testing.TB) tool {
	tb.Helper()
	return find(tb, "zig", nil, "zig")
}

// beside copies a source file and the SDK's to a folder.
func beside(tb testing.TB, dir, source string) string {
	tb.Helper()
	for _, from := range []string{source, "../../sdk/zig/policy.zig"} {
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(from)), read(tb, from), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	return filepath.Join(dir, filepath.Base(source))
}

// AssemblyScript compiles a source file.
func AssemblyScript(tb testing.TB, source string) Module {
	tb.Helper()
	return compile(tb, find(tb, "assemblyscript", nil, "asc", "../../sdk/assemblyscript/node_modules/.bin/asc"), source, "-O3", "--use", "abort=")
}

// WAT assembles a source file.
func WAT(tb testing.TB, source string) Module {
	tb.Helper()
	return compile(tb, find(tb, "wat", nil, "wat2wasm"), source)
}

func compile(tb testing.TB, compiler tool, source string, args ...string) Module {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "policy.wasm")
	run(tb, compiler.path, slices.Concat(args, []string{"-o", file, source})...)
	return Module{read(tb, file), compiler.String(), compiler.pinned}
}

func run(tb testing.TB, program string, args ...string) {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), program, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}

// Go compiles the main package in a folder and returns where the module is. It is
// made by each run of the tests and not checked in: Go modules are large, and Go
// is there whenever tests run. With the race detector the test is skipped.
func Go(tb testing.TB, dir string) string {
	tb.Helper()
	if race {
		tb.Skip("not with the race detector: loading a module from Go takes minutes then, and does nothing that smaller ones do not")
	}
	if underTest() {
		tb.Skip("a module that another compiler has built is being tested")
	}
	file := filepath.Join(tb.TempDir(), "policy.wasm")
	cmd := exec.CommandContext(tb.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-buildmode=c-shared", "-ldflags=-s -w", "-o", file, ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("go build in %s: %v\n%s", dir, err, out)
	}
	return file
}

func read(tb testing.TB, file string) []byte {
	tb.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}
