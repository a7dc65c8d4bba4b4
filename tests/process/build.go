package process

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/core/campaign"
	"github.com/curfewmq/curfew/tests/tools"
)

// binary is the broker that this test process built.
var binary struct {
	once sync.Once
	dir  string
	err  error
}

// Cleanup removes the binary when the tests of a package have run, and says in one line what was skipped. The line is read with -v: go test
// prints nothing of a package that passes without it.
func Cleanup() goleak.Option {
	return goleak.Cleanup(func(code int) {
		if all := slices.DeleteFunc([]string{tools.Skipped(), campaign.Skipped()}, func(s string) bool { return s == "" }); len(all) > 0 {
			fmt.Println("skipped:", strings.Join(all, "; "))
		}
		if binary.dir != "" {
			_ = os.RemoveAll(binary.dir) // a folder below the system's temporary one
		}
		os.Exit(code)
	})
}

// Binary builds the broker, once, with the race detector and the tags that the tests themselves were built with, and returns its
// path. Test processes that want the same program share the linker's work.
func Binary(t *testing.T) string {
	t.Helper()
	Root(t)
	binary.once.Do(build)
	if binary.err != nil {
		t.Fatal(binary.err)
	}
	return filepath.Join(binary.dir, "curfew")
}

func build() {
	binary.dir, binary.err = os.MkdirTemp("", "curfew-test-")
	if binary.err != nil {
		return
	}
	// A data race ends a broker. Without the second setting every program built with the detector waits a second at its end,
	// and tests call the command hundreds of times.
	if binary.err = os.Setenv("GORACE", "halt_on_error=1 atexit_sleep_ms=50"); binary.err != nil {
		return
	}
	binary.err = buildAs("curfew")
}

// buildAs builds a program in Go's build cache, where the go command finds that it is up to date when the next test process asks for it. The
// program that tests start is a file of their own, which stays what it is when another process builds a later one.
func buildAs(name string, more ...string) error {
	folder, err := sharedFolder()
	if err != nil {
		return err
	}
	unlock, err := lock(filepath.Join(folder, "lock"))
	if err != nil {
		return err
	}
	defer unlock()
	shared := filepath.Join(folder, name)
	args := append([]string{"build", "-o", shared}, append(flags(), more...)...)
	cmd := exec.Command("go", append(args, "./cmd/curfew")...)
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %v: %w\n%s", args, err, out)
	}
	own := filepath.Join(binary.dir, name)
	if os.Link(shared, own) == nil {
		return nil
	}
	return copyProgram(shared, own)
}

// sharedFolder makes the folder of the broker with these build flags from this source folder.
func sharedFolder() (string, error) {
	out, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		return "", fmt.Errorf("go env: %w", err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	key := sha256.Sum256(fmt.Append(nil, root, flags(), os.Getenv("GOFLAGS")))
	dir := filepath.Join(strings.TrimSpace(string(out)), "curfew-tests", hex.EncodeToString(key[:8]))
	return dir, os.MkdirAll(dir, 0o700)
}

func copyProgram(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o700)
}

// WrongClock builds the broker as [Binary] does, once, with a machine's clock that the variable WRONG_CLOCK sets ahead, and returns its path.
func WrongClock(t *testing.T) string {
	t.Helper()
	Binary(t)
	wrongClock.once.Do(func() {
		wrongClock.err = buildAs("curfew-wrongclock", "-ldflags", "-X github.com/curfewmq/curfew/core/clock.variable=WRONG_CLOCK")
	})
	if wrongClock.err != nil {
		t.Fatal(wrongClock.err)
	}
	return filepath.Join(binary.dir, "curfew-wrongclock")
}

var wrongClock struct {
	once sync.Once
	err  error
}

// Variant builds the broker as [Binary] does, with values of variables of the package cmd/curfew/app, and returns its path. One test calls
// it at a time.
func Variant(t *testing.T, name string, variables map[string]string) string {
	t.Helper()
	Binary(t)
	var set []string
	for variable, value := range variables {
		set = append(set, "-X github.com/curfewmq/curfew/cmd/curfew/app."+variable+"="+value)
	}
	if err := buildAs(name, "-ldflags", strings.Join(set, " ")); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(binary.dir, name)
}

// FillModuleCache has the go tool download the go.mod files of all modules that ours depend on. Compiling our programs leaves out those
// that it does not read; a program of another module may need them.
func FillModuleCache(t *testing.T) {
	t.Helper()
	cmd := exec.Command("go", "list", "-m", "all")
	cmd.Dir = Root(t)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go list -m all: %v\n%s", err, out)
	}
}

// flags are the build flags of the running test that the broker should have, too.
func flags() []string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	var args []string
	for _, s := range info.Settings {
		switch s.Key {
		case "-race", "-tags":
			args = append(args, s.Key+"="+s.Value)
		}
	}
	return args
}

// Root is the path of the repository. It also reads the broker's source folders: go test reuses a result while the files that
// the test read are unchanged, and does not see what a compiler started by the test reads.
func Root(t *testing.T) string {
	t.Helper()
	root := filepath.Join("..", "..")
	for _, folder := range []string{"cmd", "core", "plugins", "policies", "sdk", "go.mod"} {
		if err := filepath.WalkDir(filepath.Join(root, folder), visit); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func visit(_ string, _ fs.DirEntry, err error) error { return err }
