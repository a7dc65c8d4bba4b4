// Package build compiles policies in tests, the way that the SDKs' pages say, to
// see that the modules that are checked in are what comes of their sources.
package build

import (
	"bytes"
	"crypto/sha256"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// toolchain is a compiler: where it is looked for, and which version it is that
// made the modules that are checked in. Others make other bytes of the same
// source.
type toolchain struct {
	programs []string
	version  string // part of what it answers to --version
	with     string // another program that it needs
	args     []string
}

var (
	clang = toolchain{
		programs: []string{"clang-16"}, version: "clang version 16.0.6", with: "wasm-ld-16",
		args: []string{"--target=wasm32", "-O2", "-c"},
	}
	rustc = toolchain{
		programs: []string{"/usr/bin/rustc"}, version: "rustc 1.63.0", with: "wasm-ld-16",
		args: []string{
			"--edition", "2021", "--crate-type", "cdylib", "--target", "wasm32-unknown-unknown", "-C", "linker=wasm-ld-16",
			"-C", "opt-level=3", "-C", "panic=abort", "-C", "lto", "-C", "strip=symbols", "-C", "link-arg=-zstack-size=4096",
		},
	}
	asc = toolchain{
		programs: []string{"asc", "../../sdk/assemblyscript/node_modules/.bin/asc"}, version: "Version 0.28.20", with: "node",
		args: []string{"-O3", "--use", "abort="},
	}
	wabt = toolchain{programs: []string{"wat2wasm"}, version: "1.0.32"}
)

// C compiles a source file. Linking is a step of its own: clang, when it links,
// has whatever wasm-opt there is go over the module.
func C(tb testing.TB, source string) []byte {
	tb.Helper()
	object, file := filepath.Join(tb.TempDir(), "policy.o"), filepath.Join(tb.TempDir(), "policy.wasm")
	if err := os.WriteFile(object, clang.compile(tb, source, []string{"-I../../sdk/c"}), 0o600); err != nil {
		tb.Fatal(err)
	}
	cmd := exec.CommandContext(tb.Context(), clang.with, "--no-entry", "--strip-all", "-z", "stack-size=4096", "-o", file, object)
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return read(tb, file)
}

// Rust compiles the file of a crate.
func Rust(tb testing.TB, source string) []byte {
	tb.Helper()
	target := filepath.Join(sysroot(tb), "lib/rustlib/wasm32-unknown-unknown")
	if _, err := os.Stat(target); err != nil {
		tb.Skipf("Rust without its library for WebAssembly: %v", err)
	}
	return rustc.compile(tb, source, nil)
}

func sysroot(tb testing.TB) string {
	tb.Helper()
	out, err := exec.CommandContext(tb.Context(), rustc.find(tb), "--print", "sysroot").Output()
	if err != nil {
		tb.Skipf("Rust does not say where its libraries are: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// AssemblyScript compiles a source file.
func AssemblyScript(tb testing.TB, source string) []byte {
	tb.Helper()
	return asc.compile(tb, source, nil)
}

// WAT assembles a source file.
func WAT(tb testing.TB, source string) []byte {
	tb.Helper()
	return wabt.compile(tb, source, nil)
}

// compile runs the compiler, and skips the test where there is none like it.
func (t toolchain) compile(tb testing.TB, source string, args []string) []byte {
	tb.Helper()
	program := t.find(tb)
	file := filepath.Join(tb.TempDir(), "policy.wasm")
	all := slices.Concat(t.args, args, []string{"-o", file, source})
	if out, err := exec.CommandContext(tb.Context(), program, all...).CombinedOutput(); err != nil {
		tb.Fatalf("%s %s: %v\n%s", program, strings.Join(all, " "), err, out)
	}
	return read(tb, file)
}

// find returns the compiler's path.
func (t toolchain) find(tb testing.TB) string {
	tb.Helper()
	if t.with != "" {
		if _, err := exec.LookPath(t.with); err != nil {
			tb.Skipf("not built anew: %v", err)
		}
	}
	for _, name := range t.programs {
		program, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		out, err := exec.CommandContext(tb.Context(), program, "--version").Output()
		if err == nil && strings.Contains(string(out), t.version) {
			return program
		}
		tb.Skipf("not built anew: %s is not the one that made the module, whose --version has %q", program, t.version)
	}
	tb.Skipf("not built anew: there is no %s", t.programs[0])
	return ""
}

// Go compiles the main package in a folder and returns where the module is. It is
// made by each run of the tests and not checked in: Go modules are large, and Go
// is there whenever tests run. With the race detector the test is skipped.
func Go(tb testing.TB, dir string) string {
	tb.Helper()
	if race {
		tb.Skip("not with the race detector: loading a module from Go takes minutes then, and does nothing that smaller ones do not")
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

// Same fails the test if a module that was built is not the one that is checked
// in.
func Same(tb testing.TB, built []byte, checkedIn string) {
	tb.Helper()
	if want := read(tb, checkedIn); !bytes.Equal(built, want) {
		tb.Errorf("%s has SHA-256 %x; its source now gives %x (%d bytes): build it anew and check it in",
			checkedIn, sha256.Sum256(want), sha256.Sum256(built), len(built))
	}
}

func read(tb testing.TB, file string) []byte {
	tb.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}
