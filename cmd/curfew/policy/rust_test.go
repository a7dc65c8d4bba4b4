package policy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// editions are Rust's editions, with the first compiler version that supports each.
var editions = []struct {
	name  string
	since string
}{
	{"2015", "1.63.0"}, {"2018", "1.63.0"}, {"2021", "1.63.0"}, {"2024", "1.85.0"},
}

// A project in Rust compiles in each edition without a warning, by each compiler that is installed: its own tests, which run
// without a broker, and the policy, where the library for WebAssembly is. With edition 2024, exports and imports were errors.
func TestRustEditions(t *testing.T) {
	compilers := rustCompilers(t)
	dir := filepath.Join(t.TempDir(), "tempo")
	curfewPolicy(t, "new", dir, "--lang", "rust")
	for _, e := range editions {
		t.Run(e.name, func(t *testing.T) {
			ran := false
			for path, version := range compilers {
				if older(version, e.since) {
					continue
				}
				ran = true
				program := filepath.Join(t.TempDir(), "tests")
				compileRust(t, path, dir, "--test", "--edition", e.name, "-o", program)
				if out, err := exec.CommandContext(t.Context(), program).CombinedOutput(); err != nil || !strings.Contains(string(out), "2 passed") {
					t.Errorf("%s: the project's tests: %v\n%s", version, err, out)
				}
			}
			if !ran {
				t.Skipf("no rustc of version %s or later is installed", e.since)
			}
		})
	}
}

// The conformance guest also runs on the host, in the SDK's test broker, in each edition.
func TestRustBrokerForTests(t *testing.T) {
	for path, version := range rustCompilers(t) {
		edition := "2024"
		if older(version, "1.85.0") {
			edition = "2021"
		}
		program := filepath.Join(t.TempDir(), "tests")
		compileRust(t, path, "../../../wasm-examples/conformance", "--test", "--edition", edition, "-o", program, "guest.rs")
		out, err := exec.CommandContext(t.Context(), program).CombinedOutput()
		if err != nil || !strings.Contains(string(out), " passed") || strings.Contains(string(out), " 0 passed") {
			t.Errorf("%s: %v\n%s", version, err, out)
		}
	}
}

// The edition that is built is the one that Cargo.toml names.
func TestRustEditionOfTheProject(t *testing.T) {
	compiler := file(t, "rustc", "#!/bin/sh\n[ \"$1\" = --print ] && exec echo \"$(dirname \"$0\")\"\necho \"$1 $2\" >&2\nexit 4\n")
	if err := os.Chmod(compiler, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"lib/rustlib/" + rustTarget + "/lib", "lib/rustlib/x86_64-unknown-linux-gnu/bin/rust-lld"} {
		if err := os.MkdirAll(filepath.Join(filepath.Dir(compiler), folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("RUSTC", compiler)
	dir := filepath.Join(t.TempDir(), "tempo")
	curfewPolicy(t, "new", dir, "--lang", "rust")
	manifest := filepath.Join(dir, "Cargo.toml")
	for text, want := range map[string]string{
		"[package]\nedition = \"2024\"\n": "2024",
		"[package]\nname = \"x\"\n":       "2015",
		"":                                "2021",
	} {
		if err := os.Remove(manifest); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if text != "" {
			if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		curfewPolicy(t, "build", dir).want(t, 1, "", "--edition "+want+"\ncurfew policy build: rustc: exit status 4\n")
	}
}

// If only Cargo can determine the edition, the command asks for it instead of assuming one.
func TestRustEditionOfTheWorkspace(t *testing.T) {
	for _, text := range []string{"[package]\nedition.workspace = true\n", "[package]\nedition = { workspace = true }\n"} {
		dir := filepath.Join(t.TempDir(), "tempo")
		curfewPolicy(t, "new", dir, "--lang", "rust")
		if err := os.WriteFile(filepath.Join(dir, "Cargo.toml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := (&building{dir: dir}).edition()
		if err == nil || err.Error() != "edition: it is the workspace's; name it in Cargo.toml" {
			t.Errorf("%s: got %v", text, err)
		}
	}
}

// compileRust compiles a crate of a folder, src/lib.rs unless a file is named. A warning is an error.
func compileRust(t *testing.T, compiler, dir string, args ...string) {
	t.Helper()
	if !strings.HasSuffix(args[len(args)-1], ".rs") {
		args = append(args, "src/lib.rs")
	}
	cmd := exec.CommandContext(t.Context(), compiler, append([]string{"-D", "warnings"}, args...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}

// rustCompilers returns the compilers of the host that are installed, with their versions.
func rustCompilers(t *testing.T) map[string]string {
	t.Helper()
	needToolchains(t)
	found := map[string]string{}
	for _, name := range []string{"rustc", "/usr/bin/rustc"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		out, err := exec.CommandContext(t.Context(), path, "--version").Output()
		version := regexp.MustCompile(`\d+\.\d+\.\d+`).FindString(string(out))
		if err == nil && version != "" {
			found[path] = version
		}
	}
	if len(found) == 0 {
		t.Skip("no rustc is installed")
	}
	return found
}

// older reports whether version a of Rust came before b.
func older(a, b string) bool {
	minor := func(v string) string {
		_, rest, _ := strings.Cut(v, ".")
		n, _, _ := strings.Cut(rest, ".")
		return strings.Repeat("0", max(0, 4-len(n))) + n
	}
	return minor(a) < minor(b)
}
