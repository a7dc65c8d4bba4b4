package app

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Each journal entry used to have the time twice, and the priority of information.
func TestJournal(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "journal"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		t.Skip("this system has no inodes")
	}
	stream := fmt.Sprintf("%d:%d", st.Dev, st.Ino)
	log := newLogger(file, "auto", nil, stream)
	log.Info("ready", "took", 1500*time.Millisecond, "level", "x")
	log.With("plugin", "wasm").WithGroup("g").Warn("two\nlines", "time", 3)
	log.Error("no", "error", errors.New("a\nb"))
	newLogger(file, "json", nil, stream).Info("as configured")
	newLogger(file, "auto", nil, "1:1").Info("another stream")
	b, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	want := "<6>msg=ready took=1.5s level=x\n" + `<4>msg="two\nlines" plugin=wasm g.time=3` + "\n" + `<3>msg=no error="a\nb"` + "\n{"
	if got := string(b); !strings.HasPrefix(got, want) || strings.Count(got, "\n{") != 2 {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, tt := range []struct {
		w      io.Writer
		stream string
	}{{&strings.Builder{}, stream}, {file, ""}, {file, "junk"}} {
		if isJournal(tt.w, tt.stream) {
			t.Errorf("%T with %q is a journal", tt.w, tt.stream)
		}
	}
}
