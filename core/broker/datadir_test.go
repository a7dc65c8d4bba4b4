package broker

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// An error about the data directory names the key and the folder, and says what to do.
func TestDataDirErrors(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	const other = "name another folder with data.dir or --data"
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{"permission", &fs.PathError{Op: "mkdir", Path: data, Err: syscall.EACCES}, "permission denied; the broker runs as " + userName(os.Geteuid()) + ": give it the folder (chown -R), or " + other},
		{"not permitted", &fs.PathError{Op: "open", Path: data, Err: syscall.EPERM}, "operation not permitted; the broker runs as user "},
		{"read-only", &fs.PathError{Op: "mkdir", Path: data, Err: syscall.EROFS}, "read-only file system; mount the file system so that it can be written to, or " + other},
		{"locked", vfs.ErrLocked, "; stop that broker, or " + other},
		{"other", &fs.PathError{Op: "read", Path: data, Err: syscall.EIO}, "data.dir " + data + ": read " + data + ": input/output error"},
	} {
		if got := dataDirError(data, tt.err).Error(); !strings.HasPrefix(got, "data.dir "+data+": ") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: got %s", tt.name, got)
		}
	}
}

// The error about another user's folder names its owner.
func TestDataDirOfAnother(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a folder of another user; TestDataDirIsNotOurs of cmd/curfew/app has the rest")
	}
	dir := t.TempDir()
	if err := os.Chown(dir, 12345, -1); err != nil {
		t.Fatal(err)
	}
	err := dataDirError(filepath.Join(dir, "data"), syscall.EACCES)
	if want := ", and " + dir + " belongs to user 12345: give it"; !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want in it %q", err, want)
	}
}
