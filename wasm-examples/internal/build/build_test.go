package build

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The versions in toolchains.txt are those that the documentation and the npm package name.
func TestPins(t *testing.T) {
	page := string(read(t, "../../README.md"))
	for language, name := range map[string]string{"c": "C", "c++": "C++", "zig": "Zig", "rust": "Rust", "assemblyscript": "AssemblyScript", "wat": "WAT"} {
		row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(name) + ` \| .*`).FindString(page)
		if !strings.Contains(row, " "+pinned(language)) {
			t.Errorf("wasm-examples/README.md has %q, and toolchains.txt %s", row, pinned(language))
		}
	}
	var npm struct{ DevDependencies map[string]string }
	if err := json.Unmarshal(read(t, "../../../sdk/assemblyscript/package.json"), &npm); err != nil {
		t.Fatal(err)
	}
	if got, want := npm.DevDependencies["assemblyscript"], pinned("assemblyscript"); got != want {
		t.Errorf("sdk/assemblyscript/package.json has %s, and toolchains.txt %s", got, want)
	}
}

func TestPath(t *testing.T) {
	t.Setenv(rebuilt, "x.wasm=/tmp/policy.wasm")
	if got := Path("x.wasm"); got != "/tmp/policy.wasm" {
		t.Errorf("got %s", got)
	}
	if got := Path("y.wasm"); got != "y.wasm" {
		t.Errorf("got %s", got)
	}
}
