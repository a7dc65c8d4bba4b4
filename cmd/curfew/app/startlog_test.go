package app

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/metrics"
)

// The start of the log answers what operators ask first.
func TestStartLog(t *testing.T) {
	t.Chdir(t.TempDir())
	p := launch(t, newFake(), local+"limits: {memory-watermark: 64MiB, disk-free: 10MB}\n", "--data", "here")
	first := p.wait("starting")
	for key, want := range map[string]string{"version": version, "config": p.file(), "data": absolute("here")} {
		if first[key] != want {
			t.Errorf("%s: got %v, want %s", key, first[key], want)
		}
	}
	if commit, _ := first["commit"].(string); commit == "" || !filepath.IsAbs(first["data"].(string)) {
		t.Errorf("got %v", first)
	}
	if r := p.wait("limits"); r["memory"] != "64MiB" || r["disk_free"] != "10MB" {
		t.Errorf("got %v", r)
	}
	if r := p.wait("collector"); r["traces"] != "off" || r["metrics"] != "off" {
		t.Errorf("got %v", r)
	}
	if r := p.wait("plugins"); !strings.HasPrefix(r["chain"].(string), "ttl, ") {
		t.Errorf("got %v", r)
	}
	p.stop()
	loaded, failed := namePolicies([]metrics.Policy{{Name: "a", Digest: "0123456789abcdef", Loaded: true}, {Name: "b", Digest: "ff"}, {Name: "c"}})
	if strings.Join(loaded, " ") != "a (0123456789ab)" || strings.Join(failed, " ") != "b (ff) c" {
		t.Errorf("got %v, %v", loaded, failed)
	}
}
