package app

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"
)

func TestLogFormat(t *testing.T) {
	for _, tt := range []struct{ format, want string }{
		{"text", "level=INFO msg=hello"}, {"json", `"msg":"hello"`}, {"auto", `"msg":"hello"`},
	} {
		var b bytes.Buffer
		newLogger(&b, tt.format, slog.LevelInfo, "").Info("hello")
		if !strings.Contains(b.String(), tt.want) {
			t.Errorf("%s: %s", tt.format, b.String())
		}
	}
	var b bytes.Buffer
	newLogger(&b, "json", slog.LevelInfo, "").Info("hello", "idle", 1500*time.Millisecond) // was "idle":1500000000
	if !strings.Contains(b.String(), `"idle":"1.5s"`) {
		t.Error(b.String())
	}
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if isTerminal(f) {
		t.Error("a file is taken for a terminal")
	}
}
