package seg

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// writeOne writes the log of shard 0, with one entry.
func writeOne(t *testing.T, fsys vfs.FS, o Options, text string) {
	t.Helper()
	e, err := New(fsys, o)
	must(t, err)
	l, err := e.Open(t.Context(), 0, nil)
	must(t, err)
	_, err = l.Append(t.Context(), []byte(text), wlog.Bringing)
	must(t, errors.Join(err, e.Close()))
}

// readOne returns the entries of shard 0 as an engine finds them.
func readOne(t *testing.T, fsys vfs.FS) (entries []string) {
	t.Helper()
	e, err := New(fsys, small())
	must(t, err)
	_, err = e.Open(t.Context(), 0, func(_ wlog.Index, entry []byte) error {
		entries = append(entries, string(entry))
		return nil
	})
	must(t, errors.Join(err, e.Close()))
	return entries
}

// Logs of another version take the place of all logs at once, and nothing reads a directory in which that is not finished.
func TestReplacement(t *testing.T) {
	for _, fsys := range []vfs.FS{crashfs.New(1), vfs.Dir(t.TempDir())} {
		writeOne(t, fsys, small(), "old")
		newer := small()
		newer.Version = 2

		// One that was not finished changes nothing, and leaves nothing.
		r, err := NewReader(fsys)
		must(t, err)
		into, err := r.Next()
		must(t, err)
		writeOne(t, into, newer, "given up")
		must(t, r.Close())
		if got := readOne(t, fsys); !slices.Equal(got, []string{"old"}) {
			t.Errorf("got %v", got)
		}

		r, err = NewReader(fsys)
		must(t, err)
		into, err = r.Next()
		must(t, err)
		if left, err := into.List(); len(left) > 0 || err != nil {
			t.Errorf("there is %v, %v", left, err)
		}
		writeOne(t, into, newer, "new")
		must(t, errors.Join(r.Replace(), r.Close()))
		_, readErr := NewReader(fsys)
		_, verifyErr := Verify(t.Context(), fsys)
		_, snapshotErr := ReadSnapshot(t.Context(), fsys)
		for _, err := range []error{readErr, verifyErr, snapshotErr} {
			if !errors.Is(err, ErrReplacing) {
				t.Errorf("got error %v", err)
			}
		}
		if v, err := Version(fsys); v != 0 || err != nil {
			t.Errorf("version %d, error %v", v, err)
		}
		for range 2 {
			if got := readOne(t, fsys); !slices.Equal(got, []string{"new"}) {
				t.Errorf("got %v", got)
			}
			if v, err := Version(fsys); v != 2 || err != nil {
				t.Errorf("version %d, error %v", v, err)
			}
		}
		if d, ok := fsys.(vfs.Dir); ok {
			if got := readOne(t, d+"/"+ReplacedFolder); !slices.Equal(got, []string{"old"}) {
				t.Errorf("the old logs have %v", got)
			}
		}
	}
}

// A program of an earlier version refuses a directory from when the new logs are in force. Otherwise it would go on with the old ones, or with
// none, until a later start puts aside what it has written.
func TestEarlierProgramsRefuseReplacement(t *testing.T) {
	for n, failed := 0, true; failed; n++ {
		fsys := crashfs.New(1)
		writeOne(t, fsys, small(), "old")
		r, err := NewReader(fsys)
		must(t, err)
		into, err := r.Next()
		must(t, err)
		newer := small()
		newer.Version = 2
		writeOne(t, into, newer, "new")
		must(t, errors.Join(r.Replace(), r.Close()))
		done := 0
		fsys.Inject(func(crashfs.Op) error {
			if done++; done > n {
				return syscall.EIO
			}
			return nil
		})
		e, err := New(fsys, small())
		if failed = err != nil; !failed {
			err = e.Close()
		}
		fsys.Inject(nil)
		latest := byte(0) // what an earlier program finds: it knows no marks
		all, listErr := files(fsys)
		must(t, listErr)
		for _, f := range ofShard(all, 0, segmentFile) {
			b := read(t, fsys, vfs.Stat{Name: f.Name, Size: headerSize})
			if binary.LittleEndian.Uint32(b[60:]) == crc32.Checksum(b[:60], castagnoli) {
				latest = max(latest, b[8])
			}
		}
		if latest != 2 {
			t.Errorf("after %d operations, error %v: an earlier program finds version %d in %v", n, err, latest, all)
		}
	}
}

// Logs that were replaced are there until somebody deletes them. When old logs were put back, with the folder left behind, the next conversion
// wrote over them.
func TestReplacedLogsAreKept(t *testing.T) {
	dir := vfs.Dir(t.TempDir())
	kept, err := vfs.Make(filepath.Join(string(dir), ReplacedFolder))
	must(t, err)
	writeOne(t, kept, small(), "kept")
	writeOne(t, dir, small(), "old")
	r, err := NewReader(dir)
	must(t, err)
	if _, err := r.Next(); err == nil || !strings.Contains(err.Error(), "move it away") {
		t.Errorf("got error %v", err)
	}
	must(t, r.Close())
	if got := readOne(t, kept); !slices.Equal(got, []string{"kept"}) {
		t.Errorf("the logs that were kept have %v", got)
	}
}

// The folder of the logs may have files whose names begin as those of new logs do.
func TestReplacementKeepsOtherFiles(t *testing.T) {
	fsys := crashfs.New(1)
	f, err := fsys.Open("next-steps.txt", vfs.Create)
	must(t, errors.Join(err, f.Close()))
	writeOne(t, fsys, small(), "old")
	f, err = fsys.Open("next-steps.txt", vfs.Read)
	if err != nil {
		t.Fatalf("the file is gone: %v", err)
	}
	must(t, f.Close())
}
