package heavy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const root = "../../.."

// The page on writing plugins shows this one, whole, and its tests.
func TestREADMEShowsThePlugin(t *testing.T) {
	page := read(t, filepath.Join(root, "sdk", "README.md"))
	for _, name := range []string{"heavy.go", "heavy_test.go"} {
		if !strings.Contains(page, "```go\n"+read(t, name)+"```\n") {
			t.Errorf("sdk/README.md does not show %s as it is; copy it there", name)
		}
	}
}

// The plugin compiles and passes its tests as a module of its own that has
// nothing but Curfew's SDK, without a network or a module cache to help.
func TestOutsideTheTree(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"heavy.go", "heavy_test.go"} {
		write(t, filepath.Join(dir, name), read(t, name))
	}
	curfew, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "go.mod"), `module example.com/heavy

go 1.26

require github.com/curfewmq/curfew v0.0.0

replace github.com/curfewmq/curfew => `+curfew+"\n")

	run(t, dir, "go", "vet", ".")
	run(t, dir, "go", "test", ".")
	var imported []string
	for pkg := range strings.FieldsSeq(run(t, dir, "go", "list", "-deps", ".")) {
		if first, _, _ := strings.Cut(pkg, "/"); strings.Contains(first, ".") {
			imported = append(imported, pkg)
		}
	}
	if got, want := strings.Join(imported, " "), "github.com/curfewmq/curfew/sdk/hook/internal/access github.com/curfewmq/curfew/sdk/hook example.com/heavy"; got != want {
		t.Errorf("the plugin is built from %s, want %s and the standard library", got, want)
	}
}

func run(t *testing.T, dir string, command ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(command, " "), err, out, stderr.String())
	}
	return string(out)
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
