package seg

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

func TestDirectoryInUse(t *testing.T) {
	dir := vfs.Dir(t.TempDir())
	e := newEngine(t, dir, small())
	_, err := New(dir, small())
	if !errors.Is(err, vfs.ErrLocked) {
		t.Fatalf("got error %v, want %v", err, vfs.ErrLocked)
	}
	pattern := `^data directory in use: lock ` + regexp.QuoteMeta(filepath.Join(string(dir), "LOCK")) +
		`: locked by process \d+ on host \S+ since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`
	if !regexp.MustCompile(pattern).MatchString(err.Error()) {
		t.Errorf("got %q", err)
	}
	if _, err := Verify(t.Context(), dir); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("Verify: got error %v, want %v", err, vfs.ErrLocked)
	}
	must(t, e.Close())
	must(t, newEngine(t, dir, small()).Close())
}

func TestLockFile(t *testing.T) {
	dir := vfs.Dir(t.TempDir())
	path := filepath.Join(string(dir), lockName)
	stale := "process 1 on host elsewhere since 2001-01-01T00:00:00Z, with a long remark " + strings.Repeat("z", 300)
	must(t, os.WriteFile(path, []byte(stale), 0o600))
	e := newEngine(t, dir, small()) // the process that wrote the text is gone
	text, err := os.ReadFile(path)
	must(t, err)
	host, err := os.Hostname()
	must(t, err)
	if got := string(text[:lockSize]); !strings.Contains(got, host) || strings.Contains(got, "elsewhere") {
		t.Errorf("while in use: got %q", got)
	}
	must(t, e.Close())
	text, err = os.ReadFile(path)
	must(t, err)
	if got := strings.TrimSpace(string(text[:lockSize])); got != "" {
		t.Errorf("afterwards: got %q, want nothing", got)
	}
}

func TestLockOfAnUnknownProcess(t *testing.T) {
	fsys := crashfs.New(1)
	f, err := fsys.Open(lockName, vfs.Lock)
	must(t, err)
	_, err = New(fsys, small())
	if want := "data directory in use: lock LOCK: locked by another process"; errorText(err) != want {
		t.Errorf("got %q, want %q", errorText(err), want)
	}
	must(t, f.Close())
}

func TestLockOnAFullDisk(t *testing.T) {
	if err := writeHolder(fullFile{}, "me"); err != nil {
		t.Errorf("got error %v, want none: the text is for people only", err)
	}
}
