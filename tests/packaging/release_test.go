package packaging

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/tests/tools"
)

func TestChecksums(t *testing.T) {
	r := made(t)
	cmd := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
	cmd.Dir = r.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	files, err := os.ReadDir(r.dir)
	must(t, err)
	if checked := strings.Count(string(out), ": OK"); checked != len(files)-1 {
		t.Errorf("SHA256SUMS names %d of %d files:\n%s", checked, len(files)-1, out)
	}
}

// Whoever has the archive has all that it takes: the program, which needs no library, and the licences of what is in it.
func TestArchive(t *testing.T) {
	r := made(t)
	dir := t.TempDir()
	run(t, "tar", "-xzf", r.archive(t), "-C", dir)
	name := strings.TrimSuffix(filepath.Base(r.archive(t)), ".tar.gz")
	files, err := os.ReadDir(filepath.Join(dir, name))
	must(t, err)
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	if got, want := strings.Join(names, " "), "LICENSE NOTICES.txt README.txt curfew curfew.1"; got != want {
		t.Errorf("%s has %s, want %s", name, got, want)
	}
	program := filepath.Join(dir, name, "curfew")
	if got, want := run(t, program, "version"), "curfew "+r.version+" ("; !strings.HasPrefix(got, want) {
		t.Errorf("the program says %q, want %q", got, want)
	}
	if got, commit := run(t, program, "version"), run(t, "git", "rev-parse", "HEAD"); !strings.Contains(got, commit) {
		t.Errorf("the program does not name its commit, %s:\n%s", commit, got)
	}
	if runtime.GOOS == "linux" {
		static(t, program)
	}
	for _, want := range []string{"tetratelabs/wazero", "Go's standard library", "Permission is hereby granted", "Apache License"} {
		if !strings.Contains(contents(t, filepath.Join(dir, name, "NOTICES.txt")), want) {
			t.Errorf("NOTICES.txt lacks %q", want)
		}
	}
}

// static reports what a program would ask the system for.
func static(t *testing.T, program string) {
	t.Helper()
	f, err := elf.Open(program)
	must(t, err)
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the program is not static: it names an interpreter")
		}
	}
	if f.Section(".symtab") != nil {
		t.Error("the program has its symbols")
	}
}

// The same commit makes the same bytes, in any folder, whatever tags there are besides the release's.
func TestReproducible(t *testing.T) {
	r := made(t)
	if changed := run(t, "git", "-C", root, "status", "--porcelain"); changed != "" {
		t.Skipf("what is not committed is not in a clone:\n%s", changed)
	}
	tools.Need(t, "dpkg-deb", "buildah")
	clone, out := filepath.Join(t.TempDir(), "elsewhere"), filepath.Join(t.TempDir(), "again")
	run(t, "git", "clone", "--quiet", "--shared", root, clone)
	run(t, "git", "-C", clone, "tag", "v0.0.1-other", "HEAD~1") // an earlier commit's, of which Go makes a version
	cmd := exec.CommandContext(t.Context(), filepath.Join(clone, ".ci/package/release"))
	cmd.Env = append(os.Environ(), "OUT="+out, "TARGETS="+runtime.GOOS+"/"+runtime.GOARCH, "VERSION="+r.version)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	first, second := contents(t, filepath.Join(r.dir, "SHA256SUMS")), contents(t, filepath.Join(out, "SHA256SUMS"))
	for line := range strings.Lines(second) {
		if !strings.Contains(first, line) {
			t.Errorf("made again it is %s; at first it was among\n%s", line, first)
		}
	}
}

// What cannot be made is refused, with the values that can be.
func TestReleaseRefuses(t *testing.T) {
	other := t.TempDir()
	must(t, os.WriteFile(filepath.Join(other, "thesis.txt"), nil, 0o600))
	for _, tc := range []struct{ name, set, want string }{
		{"a version", "VERSION=v1", `release: VERSION: "v1" is not a version such as 1.2.3 or 1.2.3-rc.1`},
		{"a target", "TARGETS=plan9/arm", `release: TARGETS: "plan9/arm" is not one of linux/amd64, linux/arm64, darwin/amd64, darwin/arm64`},
		{"a kind", "KINDS=rpm", `release: KINDS: "rpm" is not one of archive, deb, image`},
		{"a folder with other files", "OUT=" + other, "release: OUT: " + other + " has other files than those of a release"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
				t.Skip("it is not a checkout:", err)
			}
			cmd := exec.CommandContext(t.Context(), packages+"/release")
			cmd.Env = append(os.Environ(), "KINDS=archive", "OUT="+filepath.Join(t.TempDir(), "out"), tc.set)
			out, err := cmd.CombinedOutput()
			if err == nil || strings.TrimSpace(string(out)) != tc.want {
				t.Errorf("got %v, %q, want a failure that says %q", err, out, tc.want)
			}
		})
	}
}

// Debian's package manager upgrades from one version to the next.
func TestDebianVersions(t *testing.T) {
	tools.Need(t, "dpkg")
	var last string
	for _, tc := range []struct{ version, debian string }{
		{"0.9.10", "0.9.10"},
		{"1.0.0-beta-2", "1.0.0~beta.2"},
		{"1.0.0-rc.1", "1.0.0~rc.1"},
		{"1.0.0-rc.1-4-g0123abc", "1.0.0~rc.1+4.g0123abc"},
		{"1.0.0", "1.0.0"},
		{"1.0.0-12-g0123abc-dirty", "1.0.0+12.g0123abc.dirty"},
		{"1.0.1", "1.0.1"},
	} {
		got := run(t, packages+"/debian/version", tc.version)
		if got != tc.debian {
			t.Errorf("%s: got %s, want %s", tc.version, got, tc.debian)
		}
		if last != "" {
			run(t, "dpkg", "--compare-versions", last, "lt", got)
		}
		last = got
	}
}
