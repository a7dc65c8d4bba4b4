package clients

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/tests/process"
)

// What a page shows as YAML can be pasted into a configuration, all its blocks together: the broker starts with it, and has the plugins
// that it has without.
func TestConfigurationsOfPages(t *testing.T) {
	t.Parallel()
	pages := []string{"core/config/README.md", "cmd/curfew/telemetry/README.md", "cmd/curfew/telemetry/metrics.md"}
	plugins, err := filepath.Glob(filepath.Join(process.Root(t), "plugins", "*", "README.md"))
	if err != nil || len(plugins) < 10 {
		t.Fatalf("%d plugins have a page: %v", len(plugins), err)
	}
	for _, p := range plugins {
		pages = append(pages, strings.TrimPrefix(filepath.ToSlash(p), "../../"))
	}
	want := chainOf(t, "")
	for _, page := range pages {
		t.Run(page, func(t *testing.T) {
			yaml := configurationOf(t, page)
			if got := chainOf(t, yaml); got != want {
				t.Errorf("with the page's configuration the broker has\n%s\nand without it\n%s", got, want)
			}
			process.Start(t, yaml)
		})
	}
}

// configurationOf is what a page shows of the broker's configuration. Files that it names are there.
func configurationOf(t *testing.T, page string) string {
	t.Helper()
	var yaml strings.Builder
	for _, b := range blocks(readPage(t, page)) {
		if b.language == "yaml" && !strings.HasPrefix(b.text, "scrape_configs:") { // that is Prometheus'
			yaml.WriteString(b.text)
		}
	}
	if yaml.Len() == 0 {
		t.Fatal("the page shows no configuration")
	}
	return strings.ReplaceAll(yaml.String(), "/etc/curfew/", modules(t)+"/")
}

// modules is a folder with the modules that pages name.
func modules(t *testing.T) string {
	t.Helper()
	module, err := os.ReadFile(filepath.Join(process.Root(t), "wasm-examples", "sliding-ttl", "sliding.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"sliding.wasm", "hours.wasm"} {
		if err := os.WriteFile(filepath.Join(dir, name), module, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// chainOf is the line of "curfew config" with the plugins that a configuration has.
func chainOf(t *testing.T, yaml string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "curfew.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(process.Binary(t), "config", "--config", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, chain, found := strings.Cut(string(out), "  chain: ")
	if !found {
		t.Fatalf("curfew config does not print the chain:\n%s", out)
	}
	chain, _, _ = strings.Cut(chain, "]")
	return chain
}
