package tools

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// In CI a test whose tool was not installed passed as skipped, and nobody saw that it no longer ran.
func TestMissing(t *testing.T) {
	for _, tt := range []struct {
		setting, tool string
		fails         bool
		text          string
	}{
		{"", "pika", false, "no pika (of Debian's package python3-pika): why"},
		{"0", "pika", false, "no pika (of Debian's package python3-pika): why"},
		{"1", "pika", true, "no pika (of Debian's package python3-pika): why; REQUIRE_TOOLS=1 makes that a failure"},
		{"1", "amqplib", true, "no amqplib: why; REQUIRE_TOOLS=1 makes that a failure"},
		{"1", "javac", false, "no javac: why"},
		{"all", "javac", true, "no javac: why; REQUIRE_TOOLS=all makes that a failure"},
		{"yes", "javac", true, `REQUIRE_TOOLS is "yes": it can be 0, 1 (what .ci/run installs) or all`},
	} {
		fails, text := missing(tt.setting, tt.tool, "why\n")
		if fails != tt.fails || text != tt.text {
			t.Errorf("%s=%s without %s: got %v %q, want %v %q", variable, tt.setting, tt.tool, fails, text, tt.fails, tt.text)
		}
	}
}

// What is installed on a machine decided what go test ./... did, and whether it passed.
func TestToolsAreNotRunUnlessTheyAreWanted(t *testing.T) {
	for _, tt := range []struct {
		setting, tool string
		runs          bool
	}{
		{"", "sh", true},
		{"", "go", false},
		{"0", "go", true},
		{"1", "go", true},
		{"all", "go", true},
	} {
		t.Run(tt.setting+" "+tt.tool, func(t *testing.T) {
			t.Setenv(variable, tt.setting)
			runs := false
			t.Run("it", func(t *testing.T) {
				Need(t, tt.tool)
				runs = true
			})
			if runs != tt.runs {
				t.Errorf("runs: got %v, want %v", runs, tt.runs)
			}
		})
	}
	if got, want := Skipped(), "go (REQUIRE_TOOLS=1 runs them)"; got != want {
		t.Errorf("skipped: got %q, want %q", got, want)
	}
}

// REQUIRE_TOOLS=1 promises that .ci/run has installed these packages.
func TestInstalledByCI(t *testing.T) {
	script, err := os.ReadFile("../../.ci/run")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(script), "\ninstall_tools() {")
	text, _, closed := strings.Cut(text, "\n}\n")
	if !found || !closed {
		t.Fatal(".ci/run has no function install_tools")
	}
	for tool, debian := range installed {
		if debian != "" && debian != "dash" && !regexp.MustCompile(`[ (]`+regexp.QuoteMeta(debian)+`[ );\n]`).MatchString(text) {
			t.Errorf(".ci/run does not install %s, for %s", debian, tool)
		}
	}
}
