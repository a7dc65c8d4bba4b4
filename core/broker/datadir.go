package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// makeDataDir returns the data directory, and creates it if it is missing. Its error says what to do.
func makeDataDir(path string) (vfs.Dir, error) {
	dir, err := vfs.Make(path)
	if err == nil {
		err = checkWritable(path)
	}
	if err == nil {
		err = checkUnused(dir)
	}
	return dir, dataDirError(path, err)
}

// checkUnused returns an error if another process has the directory open. The logs are locked only after files of policies were written,
// and these must not get into a directory that is being restored.
func checkUnused(dir vfs.Dir) error {
	unlock, err := seg.Lock(dir)
	if err != nil {
		return err
	}
	return unlock()
}

// checkWritable returns an error if a directory cannot be written for another reason than missing space.
func checkWritable(path string) error {
	f, err := os.CreateTemp(path, ".writable-")
	if err != nil {
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
			return err
		}
		return nil // the disk may be full, which blocks publishers, but does not keep the broker from starting
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// dataDirError adds the key and the directory to an error, and says what to do.
func dataDirError(path string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("data.dir %s: %w%s", path, err, dataDirHint(path, err))
}

func dataDirHint(path string, err error) string {
	const other = "name another folder with data.dir or --data"
	switch {
	case errors.Is(err, vfs.ErrLocked):
		return "; stop that broker, or " + other
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("; the broker runs as %s%s: give it the folder (chown -R), or %s", userName(os.Geteuid()), ownerOf(path), other)
	case errors.Is(err, syscall.EROFS):
		return "; mount the file system so that it can be written to, or " + other
	case errors.Is(err, wlog.ErrDamaged) && unfinished(path):
		return "; a restore into it was not finished: empty the folder and restore again, or " + other
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, fs.ErrExist):
		return "; it, or a folder above it, is a file: move that away, or " + other
	}
	return ""
}

// unfinished reports whether a directory has the folder that a restore removes at its end.
func unfinished(path string) bool {
	entries, err := os.ReadDir(path)
	return err == nil && slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.IsDir() && strings.HasPrefix(e.Name(), "restore-") })
}

// ownerOf names the owner of the file at path, or of the nearest folder above it.
func ownerOf(path string) string {
	for at := absolute(path); ; {
		info, err := os.Stat(at)
		if err != nil {
			if up := filepath.Dir(at); up != at {
				at = up
				continue
			}
			return ""
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || int(st.Uid) == os.Geteuid() {
			return ""
		}
		return fmt.Sprintf(", and %s belongs to %s", at, userName(int(st.Uid)))
	}
}

// userName returns the name and the number of a user of the machine.
func userName(id int) string {
	number := strconv.Itoa(id)
	if u, err := user.LookupId(number); err == nil && u.Username != "" {
		return fmt.Sprintf("user %s (%s)", u.Username, number)
	}
	return "user " + number
}
