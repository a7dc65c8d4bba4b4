package policy

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/plugins/wasm"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// The project of each language builds, without a network, into a policy that decides like the others. If a compiler is missing, its part of the
// test is skipped. Without TOOLCHAINS only Go's part runs; .ci/run wasm sets it.
func TestProjects(t *testing.T) {
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOFLAGS", "")
	t.Setenv("GOWORK", "off")
	for _, l := range languages() {
		t.Run(l.name, func(t *testing.T) {
			if l.name != "go" {
				needToolchains(t)
			}
			dir := filepath.Join(t.TempDir(), "tempo")
			r := curfewPolicy(t, "new", dir, "--lang", l.name)
			if r.status != 0 {
				t.Fatalf("got %+v", r)
			}
			checkProject(t, &l, dir)
			module := filepath.Join(dir, "tempo.wasm")
			r = curfewPolicy(t, "build", dir)
			if strings.Contains(r.stderr, "apt install") || strings.Contains(r.stderr, "npm install") || strings.Contains(r.stderr, "zig is missing") {
				t.Skip(r.stderr)
			}
			if r.status != 0 || !strings.HasPrefix(r.stdout, module+": ") {
				t.Fatalf("got %+v", r)
			}
			if l.name == "zig" {
				zigTest(t, filepath.Join(dir, "src", "main.zig"))
			}
			if l.name == "go" && underRace {
				t.Skip("the module is built, but not run: it takes half a minute to compile one of that size under the race detector")
			}
			trace := filepath.Join(dir, "trace.ndjson")
			r = curfewPolicy(t, append([]string{"test", module, "--trace", trace, "--expect", "testdata/tempo.txt"}, strings.Fields(l.fuel)...)...)
			if r.status != 0 {
				t.Errorf("got %+v", r)
			}
			// The README of the SDK has the same line, and a test in wasm-examples/conformance checks it. Each command compiles the module again,
			// which takes long for Go.
			if l.name == "go" {
				return
			}
			r = curfewPolicy(t, "check", module, "--config", `{"ttl-ms":0}`)
			if r.status != 1 || !strings.Contains(r.stderr, "ttl-ms has to be from 1 to 1000000000000") {
				t.Errorf("got %+v", r)
			}
			countsFromEntering(t, module)
		})
	}
}

// countsFromEntering checks that if the policy is called again about a message, the message gets the same deadline as before. Otherwise, after a
// failure or a load with --recompute, it would wait for its whole TTL once more.
func countsFromEntering(t *testing.T, file string) {
	t.Helper()
	module, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	l, err := newLab(module, wasm.Options{Config: []byte(`{"ttl-ms":60000}`)}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.close(); err != nil {
			t.Error(err)
		}
	}()
	entered := instantOf(defaultStart)
	ms, vs := hooktest.Messages(hook.Message{Enqueued: entered, Why: hook.WhyChange}), make([]hook.Verdict, 1)
	l.attach(newQueue()).OnRestamp(entered.AddMillis(59_000), ms, vs)
	if want := entered.AddMillis(60_000); vs[0].Deadline != want {
		t.Errorf("asked again after 59 s, it gives the deadline %d, want %d", vs[0].Deadline, want)
	}
}

// needToolchains skips a test that runs others' compilers, unless TOOLCHAINS is set: the result of go test ./... must not depend on installed programs.
func needToolchains(t *testing.T) {
	t.Helper()
	if os.Getenv("TOOLCHAINS") == "" {
		t.Skip("not run: TOOLCHAINS=any runs the compilers that are installed")
	}
}

// zigTest runs a policy's own tests, which need no broker.
func zigTest(t *testing.T, source string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), cmp.Or(os.Getenv("ZIG"), "zig"), "test", "--cache-dir", t.TempDir(), source).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "All 2 tests passed") {
		t.Errorf("zig test: %v\n%s", err, out)
	}
}

// Before 0.12 a module had to be made as a library; since then a library is a module that a broker cannot load.
func TestZigVersions(t *testing.T) {
	for version, want := range map[string]string{
		"0.11.0": "build-lib", "0.12.0-dev.1286+cc394431a": "build-lib", "0.12.0": "build-exe", "0.13.0": "build-exe", "0.17.0-dev.5+a": "build-exe", "1.0.0": "build-exe",
	} {
		compiler := file(t, "zig", "#!/bin/sh\n[ \"$1\" = version ] && exec echo "+version+"\necho \"$1\" >&2\nexit 4\n")
		if err := os.Chmod(compiler, 0o700); err != nil {
			t.Fatal(err)
		}
		t.Setenv("ZIG", compiler)
		dir := filepath.Join(t.TempDir(), "tempo")
		curfewPolicy(t, "new", dir, "--lang", "zig")
		curfewPolicy(t, "build", dir).want(t, 1, "", want+"\ncurfew policy build: zig: exit status 4\n")
	}
}

// checkProject looks for placeholders that were not filled in, and for invalid commands in the README.
func checkProject(t *testing.T, l *language, dir string) {
	t.Helper()
	for to := range l.files {
		text, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(to, "NAME", "tempo")))
		if err != nil || strings.Contains(string(text), "NAME") {
			t.Errorf("%s: %v\n%s", to, err, text)
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if left := regexp.MustCompile(`NAME|FUEL|BUILD|TOOLS`).Find(page); left != nil {
		t.Errorf("README.md has %s", left)
	}
	for _, line := range regexp.MustCompile(`(?m)^curfew policy (.*?)( +#.*)?$`).FindAllStringSubmatch(string(page), -1) {
		words := strings.Fields(regexp.MustCompile(`'.*'`).ReplaceAllString(line[1], "{}"))
		c, ok := find(words[0])
		if !ok || newFlags(&c).parse(words[1:]) != nil {
			t.Errorf("README.md has %q, which is no call", line[0])
		}
	}
}

func TestNewLeavesFilesAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tempo")
	if r := curfewPolicy(t, "new", dir, "--lang", "wat"); r.status != 0 {
		t.Fatalf("got %+v", r)
	}
	curfewPolicy(t, "new", dir, "--lang", "c").want(t, 1, "", "curfew policy new: "+dir+" is there already, and not empty\n")
}

func TestBuildWithout(t *testing.T) {
	empty := t.TempDir()
	t.Setenv("PATH", empty)
	none := filepath.Join(empty, "none") // was said to have no policy in it
	curfewPolicy(t, "build", none).want(t, 1, "", "curfew policy build: stat "+none+": no such file or directory\n")
	if curfewPolicy(t, "build", empty).status != 1 {
		t.Error("an empty folder is built")
	}
	for name, want := range map[string]string{
		"go":             "go is missing: apt install golang",
		"c":              "clang is missing: apt install clang lld",
		"c++":            "clang++ is missing: apt install clang lld",
		"zig":            "zig is missing: see ziglang.org/download; the variable ZIG names one that is not in PATH",
		"cpp":            "clang++ is missing: apt install clang lld",
		"assemblyscript": "asc, the compiler of the npm package assemblyscript, is missing: run npm install in ",
		"wat":            "wat2wasm is missing: apt install wabt",
		"rust":           "rustc is missing: apt install rustc libstd-rust-dev-wasm32 lld, or rustup target add wasm32-unknown-unknown",
	} {
		dir := filepath.Join(t.TempDir(), "tempo")
		if r := curfewPolicy(t, "new", dir, "--lang", name); r.status != 0 {
			t.Fatalf("%s: got %+v", name, r)
		}
		if r := curfewPolicy(t, "build", dir); r.status != 1 || !strings.HasPrefix(r.stderr, "curfew policy build: "+want) {
			t.Errorf("%s: got %+v, want %s", name, r, want)
		}
	}
	two := t.TempDir()
	for _, name := range []string{"a.wat", "b.wat"} {
		if err := os.WriteFile(filepath.Join(two, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	curfewPolicy(t, "build", two).want(t, 1, "", "curfew policy build: "+two+" has several files *.wat: a policy is made of one\n")
	t.Setenv("WAT2WASM", "/nowhere/wat2wasm")
	if r := curfewPolicy(t, "build", "--lang", "wat", filepath.Join(two, "..")); r.status != 1 {
		t.Errorf("got %+v", r)
	}
}

// The output of a failing compiler is shown, and no success is reported.
func TestBuildThatFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tempo")
	if r := curfewPolicy(t, "new", dir, "--lang", "wat"); r.status != 0 {
		t.Fatalf("got %+v", r)
	}
	compiler := file(t, "compiler", "#!/bin/sh\necho line 3 is odd >&2\nexit 4\n")
	if err := os.Chmod(compiler, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("WAT2WASM", compiler)
	curfewPolicy(t, "build", dir).want(t, 1, "", "line 3 is odd\ncurfew policy build: compiler: exit status 4\n")
}
