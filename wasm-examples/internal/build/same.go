package build

import (
	"bytes"
	"crypto/sha256"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// rebuilt is set for tests that [Same] runs once more, on a module that was built:
// the name of the one that is checked in, "=", and where the other is.
const rebuilt = "REBUILT"

// underTest says that these tests are run once more.
func underTest() bool { return os.Getenv(rebuilt) != "" }

// Path returns where the module is that tests are to load: file, which is checked
// in, or what was built in its place.
func Path(file string) string {
	if name, path, ok := strings.Cut(os.Getenv(rebuilt), "="); ok && name == file {
		return path
	}
	return file
}

// Same fails the test if a module that was built is not the one that is checked
// in. If another version of its toolchain made it, its bytes may be others: then
// the tests of the package are run once more, with it in place of the other.
func Same(t *testing.T, m Module, checkedIn string) {
	t.Helper()
	want, got := sha256.Sum256(read(t, checkedIn)), sha256.Sum256(m.Bytes)
	switch {
	case got == want:
		t.Logf("%s is what %s makes of its source, sha256:%x", checkedIn, m.made, got)
	case m.pinned:
		t.Errorf("%s has SHA-256 %x; %s now makes %x (%d bytes) of its source: build it anew and check it in",
			checkedIn, want, m.made, got, len(m.Bytes))
	default:
		testAgain(t, m, checkedIn)
	}
}

// testAgain runs the tests of this package in a process of their own.
func testAgain(t *testing.T, m Module, checkedIn string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.wasm")
	if err := os.WriteFile(file, m.Bytes, 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.v")
	cmd.Env = append(os.Environ(), rebuilt+"="+checkedIn+"="+file)
	out, err := cmd.CombinedOutput()
	passed := bytes.Count(out, []byte("\n--- PASS"))
	if err != nil || passed == 0 {
		t.Errorf("%s was made with another version than %s; what this one makes of its source fails the tests: %v\n%s", checkedIn, m.made, err, out)
		return
	}
	t.Logf("%s was made with another version than %s; what this one makes of its source passes the tests (%d)", checkedIn, m.made, passed)
}
