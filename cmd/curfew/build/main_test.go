package build

import (
	"archive/zip"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// files are the texts of a module's files, by slash path.
type files map[string]string

// stub is a small curfew: its programs print the names of their plugins, and refuse two with the same name.
var stub = files{
	"go.mod": "module " + curfew + "\n\ngo 1.21\n",
	"sdk/hook/hook.go": `package hook

type Factory struct{ Name, Package string }

func NewFactory(name string) Factory { return Factory{Name: name} }
`,
	"cmd/curfew/app/app.go": `package app

import (
	"encoding/json"
	"os"

	"github.com/curfewmq/curfew/sdk/hook"
)

func From(pkg string, fs ...hook.Factory) []hook.Factory {
	for i := range fs {
		fs[i].Package = pkg
	}
	return fs
}

func Main(plugins ...hook.Factory) {
	names := map[string]bool{}
	for _, p := range plugins {
		if names[p.Name] {
			os.Stderr.WriteString("curfew: two plugins have the name " + p.Name + "\n")
			os.Exit(1)
		}
		names[p.Name] = true
	}
	json.NewEncoder(os.Stdout).Encode(map[string]any{"Version": "9.9", "Plugins": plugins})
}
`,
}

// pluginFile is a package with a plugin.
func pluginFile(pkg string) string {
	return "package " + pkg + "\n\nimport \"" + curfew + "/sdk/hook\"\n\nvar Factory = hook.NewFactory(\"" + pkg + "\")\n"
}

// moduleFile is a go.mod that needs a version of curfew.
func moduleFile(path, version string) string {
	return "module " + path + "\n\ngo 1.21\n\nrequire " + curfew + " " + version + "\n"
}

// place is an empty working folder, with a module proxy made from files.
type place struct {
	t       *testing.T
	proxy   string
	environ []string
}

// newPlace changes to an empty folder. The go tool gets modules only from the place's proxy.
func newPlace(t *testing.T) *place {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("there is no Go toolchain: ", err)
	}
	p := &place{t: t, proxy: t.TempDir()}
	t.Chdir(t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
	p.environ = append(
		os.Environ(), "GOPROXY=file://"+p.proxy, "GOMODCACHE="+t.TempDir(), "GOFLAGS=-modcacherw", "GONOSUMDB=*", "GONOPROXY=none",
		"GOPRIVATE=", "GOWORK=", "GOTOOLCHAIN=local",
	)
	return p
}

// folder writes a module into a folder below the working one.
func (p *place) folder(name string, content files) {
	p.t.Helper()
	for file, text := range content {
		writeFile(p.t, filepath.Join(name, filepath.FromSlash(file)), text)
	}
}

// publish makes the proxy offer a version of a module, later than the previous ones.
func (p *place) publish(module, version string, content files) {
	p.t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for file, text := range content {
		w, err := z.Create(module + "@" + version + "/" + file)
		if err != nil {
			p.t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			p.t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		p.t.Fatal(err)
	}
	dir := filepath.Join(p.proxy, filepath.FromSlash(module), "@v")
	list, _ := os.ReadFile(filepath.Join(dir, "list")) // there is none yet for the first
	for name, text := range map[string]string{
		version + ".zip": b.String(), version + ".mod": content["go.mod"], version + ".info": `{"Version":"` + version + `"}`,
		"list": string(list) + version + "\n",
	} {
		writeFile(p.t, filepath.Join(dir, name), text)
	}
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// result is the result of a command line.
type result struct {
	status         int
	stdout, stderr string
}

func (p *place) build(args ...string) result {
	p.t.Helper()
	var stdout, stderr bytes.Buffer
	program := Program{Environ: p.environ, Stdout: &stdout, Stderr: &stderr}
	status := program.run(p.t.Context(), args)
	return result{status, stdout.String(), stderr.String()}
}

// want fails the test if a command ended differently. stderr is a part of the expected message.
func (r result) want(t *testing.T, status int, stdout, stderr string) {
	t.Helper()
	if r.status != status || r.stdout != stdout || !strings.Contains(r.stderr, stderr) {
		t.Errorf("got status %d\n%s--\n%s\nwant %d\n%s--\n%s", r.status, r.stdout, r.stderr, status, stdout, stderr)
	}
}

// leavesNothing fails the test if a temporary folder remains.
func leavesNothing(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir(os.TempDir())
	if err != nil || len(entries) > 0 {
		t.Errorf("temporary files are left: %v, %v", entries, err)
	}
}

// left returns the names in the working folder.
func left(t *testing.T) string {
	t.Helper()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}
