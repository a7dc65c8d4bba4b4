// Package packaging tests what .ci/package makes: the archives, the Debian package and its service, the container image. Tests of files
// that were made need RELEASE, the folder that they are in, and are skipped without it: ".ci/run package" makes them and runs the tests.
package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	root     = "../.."
	packages = root + "/.ci/package"
)

// release is a folder with the files of a release for this machine.
type release struct{ dir, version string }

// made returns the release that RELEASE names. Without one the test is skipped.
func made(t *testing.T) release {
	t.Helper()
	dir := os.Getenv("RELEASE")
	if dir == "" {
		t.Skip("RELEASE names no folder with a release: .ci/run package makes one")
	}
	archives, err := filepath.Glob(filepath.Join(dir, "curfew_*_"+runtime.GOOS+"_"+runtime.GOARCH+".tar.gz"))
	if err != nil || len(archives) != 1 {
		t.Fatalf("RELEASE=%s has %d archives for %s/%s, want one", dir, len(archives), runtime.GOOS, runtime.GOARCH)
	}
	name := strings.TrimPrefix(filepath.Base(archives[0]), "curfew_")
	version, _, _ := strings.Cut(name, "_"+runtime.GOOS+"_")
	return release{dir: dir, version: version}
}

// file is the path of a file of the release, of which there is one.
func (r release) file(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(r.dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s in the release: got %v, want one", pattern, found)
	}
	return found[0]
}

func (r release) archive(t *testing.T) string {
	t.Helper()
	return r.file(t, "*_"+runtime.GOOS+"_"+runtime.GOARCH+".tar.gz")
}

func (r release) deb(t *testing.T) string {
	t.Helper()
	return r.file(t, "*_"+runtime.GOARCH+".deb")
}

func (r release) image(t *testing.T) string {
	t.Helper()
	return r.file(t, "*_linux_"+runtime.GOARCH+".image.tar.gz")
}

// run runs a command and returns what it prints, without the last line break.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return strings.TrimRight(string(out), "\n")
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func contents(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	must(t, err)
	return string(b)
}
