package repo

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/cmd/curfew/app"
	"github.com/curfewmq/curfew/core/config"
)

// Every block marked yaml on the page about the configuration, on that about traces and on the plugins' is a configuration, and a correct one.
func TestConfigurationsInREADMEs(t *testing.T) {
	for _, page := range pages(t) {
		ofPlugin := under(page, "plugins") && path.Base(page) == "README.md"
		if page != "core/config/README.md" && page != "cmd/curfew/telemetry/README.md" && !ofPlugin {
			continue
		}
		loaded := 0
		for _, b := range parseMarkdown(read(t, page)).blocks {
			if b.language == "yaml" {
				loadBlock(t, page, b)
				loaded++
			}
		}
		if loaded == 0 {
			t.Errorf("%s shows no configuration: it needs a yaml block", page)
		}
	}
}

func loadBlock(t *testing.T, page string, b block) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "curfew.yaml")
	if err := os.WriteFile(file, []byte(b.text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load(config.Input{File: file, Plugins: app.Builtin()}); err != nil {
		t.Errorf("%s:%d: this configuration is refused:\n%s", page, b.line, strings.ReplaceAll(err.Error(), file, "curfew.yaml"))
	}
}
