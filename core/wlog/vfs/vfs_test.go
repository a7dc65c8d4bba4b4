package vfs_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// both runs a test on a real directory and on the simulated one, which must not differ while nothing goes wrong.
func both(t *testing.T, test func(t *testing.T, fsys vfs.FS)) {
	t.Helper()
	t.Run("directory", func(t *testing.T) { test(t, vfs.Dir(t.TempDir())) })
	t.Run("crashfs", func(t *testing.T) { test(t, crashfs.New(1)) })
}

func create(t *testing.T, fsys vfs.FS, name string, contents ...string) vfs.File {
	t.Helper()
	f, err := fsys.Open(name, vfs.Create)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // some tests have closed it
	var parts [][]byte
	for _, c := range contents {
		parts = append(parts, []byte(c))
	}
	if err := f.Writev(0, parts); err != nil {
		t.Fatal(err)
	}
	return f
}

func contents(t *testing.T, fsys vfs.FS, name string) string {
	t.Helper()
	f, err := fsys.Open(name, vfs.Read)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<30))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestWritev(t *testing.T) {
	both(t, func(t *testing.T, fsys vfs.FS) {
		t.Helper()
		f := create(t, fsys, "a", "one ", "", "two ", "three")
		if err := f.Writev(4, [][]byte{[]byte("2"), nil, []byte("nd")}); err != nil {
			t.Fatal(err)
		}
		if err := f.Writev(15, nil); err != nil {
			t.Fatal(err)
		}
		if got, want := contents(t, fsys, "a"), "one 2nd three"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		var many [][]byte
		for i := range 30 {
			many = append(many, bytes.Repeat([]byte{byte('a' + i)}, 1000*i))
		}
		if err := f.Writev(3, many); err != nil {
			t.Fatal(err)
		}
		if got, want := contents(t, fsys, "a"), "one"+string(bytes.Join(many, nil)); got != want {
			t.Errorf("thirty parts: got %d bytes, want %d others", len(got), len(want))
		}
		if err := f.Sync(); err != nil {
			t.Error(err)
		}
	})
}

func TestReadAt(t *testing.T) {
	both(t, func(t *testing.T, fsys vfs.FS) {
		t.Helper()
		f := create(t, fsys, "a", "0123456789")
		p := make([]byte, 4)
		if n, err := f.ReadAt(p, 3); n != 4 || err != nil || string(p) != "3456" {
			t.Errorf("got %d, %v, %q", n, err, p)
		}
		for _, off := range []int64{8, 10, 50} {
			want := max(10-int(off), 0)
			if n, err := f.ReadAt(p, off); n != want || !errors.Is(err, io.EOF) {
				t.Errorf("at %d: got %d, %v, want %d, EOF", off, n, err, want)
			}
		}
	})
}

func TestAllocate(t *testing.T) {
	both(t, func(t *testing.T, fsys vfs.FS) {
		t.Helper()
		f := create(t, fsys, "a", "abc")
		if err := f.Allocate(3 << 20); err != nil {
			t.Fatal(err)
		}
		if got := contents(t, fsys, "a"); got != "abc"+strings.Repeat("\x00", 3<<20-3) {
			t.Errorf("got %d bytes, want the file as it was, and zeros up to %d", len(got), 3<<20)
		}
	})
}

// Files that bypass the system's cache behave like all others, whatever is written and read where.
func TestDirect(t *testing.T) {
	both(t, func(t *testing.T, fsys vfs.FS) {
		t.Helper()
		const size, page = 3 << 20, 4096
		f, err := fsys.Open("a", vfs.Create|vfs.Direct)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Allocate(size); err != nil {
			t.Fatal(err)
		}
		want, p := make([]byte, size), vfs.Aligned(size)
		rng := rand.New(rand.NewPCG(1, 1))
		at := 0
		for i := range 300 {
			if i%10 == 0 || at > size/2 {
				at = rng.IntN(size / 2)
			}
			n := rng.IntN(1 << rng.IntN(21))
			parts := [][]byte{bytes.Repeat([]byte{byte(i)}, n), bytes.Repeat([]byte{byte(i + 1)}, rng.IntN(100)), nil}
			end := at + n + len(parts[1])
			if i%7 > 0 { // like a log: the next write begins before the end of this one
				parts[2] = make([]byte, (page-end%page)%page)
			}
			if err := f.Writev(int64(at), parts); err != nil {
				t.Fatal(err)
			}
			copy(want[at:], bytes.Join(parts, nil))
			at = end
			from := rng.IntN(size/page) * page
			if i%3 == 0 {
				from += rng.IntN(size - from)
			}
			got := p[:rng.IntN(size-from)]
			if i%2 == 0 {
				got = got[:len(got)/page*page]
			}
			if _, err := f.ReadAt(got, int64(from)); err != nil || !bytes.Equal(got, want[from:from+len(got)]) {
				t.Fatalf("step %d: what is read at %d is not what was written (error %v)", i, from, err)
			}
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
		if got := contents(t, fsys, "a"); got != string(want) {
			t.Error("the file is not what was written")
		}
	})
}

func TestDirectReadsEndWithTheFile(t *testing.T) {
	both(t, func(t *testing.T, fsys vfs.FS) {
		t.Helper()
		create(t, fsys, "a", strings.Repeat("x", 10_000))
		f, err := fsys.Open("a", vfs.Read|vfs.Direct)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		p := vfs.Aligned(16 << 10)
		for _, off := range []int64{0, 4096, 8192, 12288} {
			want := max(10_000-int(off), 0)
			if n, err := f.ReadAt(p, off); n != want || !errors.Is(err, io.EOF) {
				t.Errorf("at %d: got %d, %v, want %d, EOF", off, n, err, want)
			}
		}
	})
}

func TestNames(t *testing.T) {
	both(t, func(t *testing.T, fsys vfs.FS) {
		t.Helper()
		create(t, fsys, "b", "bb")
		create(t, fsys, "a", "a")
		create(t, fsys, "c", "ccc")
		for _, err := range []error{fsys.Rename("c", "a"), fsys.Rename("b", "d"), fsys.Sync()} {
			if err != nil {
				t.Fatal(err)
			}
		}
		list := func(want ...vfs.Stat) {
			t.Helper()
			got, err := fsys.List()
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("got %v, %v, want %v", got, err, want)
			}
		}
		list(vfs.Stat{Name: "a", Size: 3}, vfs.Stat{Name: "d", Size: 2})
		if err := fsys.Remove("a"); err != nil {
			t.Fatal(err)
		}
		list(vfs.Stat{Name: "d", Size: 2})
		for _, err := range []error{fsys.Remove("a"), fsys.Rename("a", "b")} {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("got error %v, want %v", err, fs.ErrNotExist)
			}
		}
	})
}

func TestModes(t *testing.T) {
	both(t, func(t *testing.T, fsys vfs.FS) {
		t.Helper()
		for _, mode := range []vfs.Mode{vfs.Read, vfs.Write, vfs.Read | vfs.Direct, vfs.Write | vfs.Direct} {
			if _, err := fsys.Open("a", mode); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("mode %d: got error %v, want %v", mode, err, fs.ErrNotExist)
			}
		}
		create(t, fsys, "a", "a")
		for _, mode := range []vfs.Mode{vfs.Create, vfs.Create | vfs.Direct} {
			if _, err := fsys.Open("a", mode); !errors.Is(err, fs.ErrExist) {
				t.Errorf("mode %d: got error %v, want %v", mode, err, fs.ErrExist)
			}
		}
		f, err := fsys.Open("a", vfs.Read|vfs.Direct)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Writev(0, [][]byte{{1}}); err == nil {
			t.Error("a file opened to read was written")
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if err := f.Close(); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("second Close: got error %v, want %v", err, fs.ErrClosed)
		}
	})
}

func TestRemovedFileCanBeRead(t *testing.T) {
	both(t, func(t *testing.T, fsys vfs.FS) {
		t.Helper()
		f := create(t, fsys, "a", "abc")
		if err := fsys.Remove("a"); err != nil {
			t.Fatal(err)
		}
		p := make([]byte, 3)
		if _, err := f.ReadAt(p, 0); err != nil || string(p) != "abc" {
			t.Errorf("got %q, %v", p, err)
		}
	})
}

func TestLock(t *testing.T) {
	both(t, func(t *testing.T, fsys vfs.FS) {
		t.Helper()
		for range 2 {
			f, err := fsys.Open("LOCK", vfs.Lock)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := fsys.Open("LOCK", vfs.Lock); !errors.Is(err, vfs.ErrLocked) {
				t.Errorf("second lock: got error %v, want %v", err, vfs.ErrLocked)
			}
			if r, err := fsys.Open("LOCK", vfs.Read); err != nil {
				t.Errorf("a locked file cannot be read: %v", err)
			} else if err := r.Close(); err != nil {
				t.Error(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestListLeavesOutFolders(t *testing.T) {
	path := t.TempDir()
	if err := os.Mkdir(filepath.Join(path, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	create(t, vfs.Dir(path), "a", "")
	got, err := vfs.Dir(path).List()
	if want := []vfs.Stat{{Name: "a"}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func TestMake(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "c")
	for range 2 {
		dir, err := vfs.Make(path)
		if err != nil {
			t.Fatal(err)
		}
		if dir != vfs.Dir(path) {
			t.Errorf("got %s, want %s", dir, path)
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o700 {
		t.Errorf("got mode %v, want it private", info.Mode())
	}
	if _, err := vfs.Make(filepath.Join(path, "file", "d")); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(path, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := vfs.Make(filepath.Join(path, "x")); err == nil {
		t.Error("a file was taken for a directory")
	}
	if _, err := vfs.Make(filepath.Join(path, "x", "y")); err == nil {
		t.Error("a directory was made in a file")
	}
}

func TestNoSpace(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want bool
	}{
		{&fs.PathError{Op: "write", Err: syscall.ENOSPC}, true},
		{syscall.EDQUOT, true},
		{syscall.EMFILE, false},
		{syscall.EIO, false},
		{nil, false},
	} {
		if got := vfs.NoSpace(tc.err); got != tc.want {
			t.Errorf("%v: got %t, want %t", tc.err, got, tc.want)
		}
	}
}

// Names can be made durable while the process can open no more files.
func TestAHeldDirectoryIsSyncedWithoutADescriptor(t *testing.T) {
	d := vfs.Dir(t.TempDir())
	h, err := d.Hold()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(string(d)); err != nil { // like a lack of descriptors: the directory cannot be opened any more
		t.Fatal(err)
	}
	if err := d.Sync(); err == nil {
		t.Fatal("a directory was opened that is gone")
	}
	if err := h.Sync(); err != nil {
		t.Error(err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if _, err := d.Hold(); err == nil {
		t.Error("a directory was held that is gone")
	}
}
