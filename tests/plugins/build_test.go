package plugins

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/tests/process"
)

// The program says where each plugin came from and what it offers.
func TestVersion(t *testing.T) {
	t.Parallel()
	folder, err := filepath.Abs(filepath.Join("testdata", "carousel"))
	must(t, err)
	printed := strings.Split(run(t, "version"), "\n")
	for _, want := range []string{
		"nightshift example.com/nightshift v1.2.0 strategies nightshift; arguments x-nightshift-ttl; policy keys nightshift-ttl",
		"carousel example.com/carousel/ring " + folder + " exchange types x-carousel; arguments of exchanges x-repeat",
	} {
		if !slices.ContainsFunc(printed, func(line string) bool { return strings.Join(strings.Fields(line), " ") == want }) {
			t.Errorf("got\n%s\nwant a line\n%s", strings.Join(printed, "\n"), want)
		}
	}
	var d struct {
		Plugins []struct{ Name, Package, Module, Version, Folder string }
	}
	decode(t, []byte(run(t, "version", "--json")), &d)
	for _, want := range []struct{ Name, Package, Module, Version, Folder string }{
		{"nightshift", nightshift, nightshift, "v1.2.0", ""},
		{"carousel", carousel + "/ring", carousel, "v0.0.0-00010101000000-000000000000", folder},
	} {
		if !slices.Contains(d.Plugins, want) {
			t.Errorf("got %+v, want %+v", d.Plugins, want)
		}
	}
	for _, want := range []string{"\n  nightshift, example.com/nightshift v1.2.0\n", "\n  carousel, example.com/carousel/ring from " + folder + "\n"} {
		if !strings.Contains(program.said, want) {
			t.Errorf("the build said\n%s\nwant in it %s", program.said, want)
		}
	}
}

// The sections of plugins of others are explained and checked as those of the broker's own.
func TestConfig(t *testing.T) {
	t.Parallel()
	printed := run(t, "config", "--explain")
	for _, want := range []string{
		"chain: [ttl, ", ", nightshift, carousel, maxlength, ",
		"  nightshift:\n    # When the night begins, as the time since midnight in UTC.\n    # Accepted: a duration such as 90s, 1h30m or 7d\n    # Variable: CURFEW_PLUGINS__NIGHTSHIFT__FROM\n    from: 22h ",
	} {
		if !strings.Contains(printed, want) {
			t.Errorf("got\n%s\nwant in it\n%s", printed, want)
		}
	}
	c := exec.Command(withPlugins(t), "config")
	c.Env = append(c.Environ(), "CURFEW_PLUGINS__NIGHTSHIFT__TO=24h")
	const want = "plugins.nightshift.to: 24h0m0s is out of range; accepted are 0s and more, and less than 24h (env CURFEW_PLUGINS__NIGHTSHIFT__TO)"
	if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
		t.Errorf("got %v, %s, want %s", err, out, want)
	}
}

// What the modules of others test, they test without a broker and without a network, with sdk/hooktest.
func TestModulesThemselves(t *testing.T) {
	t.Parallel()
	process.Root(t)
	look(t)
	for _, dir := range []string{"nightshift", "carousel"} {
		c := exec.Command("go", "test", "-v", "./...")
		c.Dir = filepath.Join("testdata", dir)
		c.Env = append(c.Environ(), "GOPROXY=off", "GOFLAGS=-mod=readonly", "GOWORK=off", "GOTOOLCHAIN=local")
		out, err := c.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestConformance ") {
			t.Errorf("%s: %v\n%s", dir, err, out)
		}
	}
}
