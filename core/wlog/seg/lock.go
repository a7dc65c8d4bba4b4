package seg

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/wlog/vfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

const (
	lockName = "LOCK"
	lockSize = 256 // bytes: rewriting the file needs no space
)

// acquire locks the directory and writes its process into the lock file. If another process has it locked, the error is a
// vfs.ErrLocked and names that process.
func acquire(fsys vfs.FS, now hook.Instant) (vfs.File, error) {
	f, err := fsys.Open(lockName, vfs.Lock)
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("data directory in use: %w by %s", err, holder(fsys))
	}
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	text := fmt.Sprintf("process %d on host %s since %s", os.Getpid(), host, now.Time().Format(time.RFC3339))
	if err := writeHolder(f, text); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// writeHolder writes a text for people into the lock file. A full disk is no error.
func writeHolder(f vfs.File, text string) error {
	b := append([]byte(text), bytes.Repeat([]byte(" "), lockSize)...)[:lockSize]
	b[lockSize-1] = '\n'
	err := f.Writev(0, [][]byte{b})
	if vfs.NoSpace(err) {
		return nil
	}
	return err
}

func release(f vfs.File) error { return errors.Join(writeHolder(f, ""), f.Close()) }

// holder returns the text of the process that holds the lock.
func holder(fsys vfs.FS) string {
	const unknown = "another process"
	f, err := fsys.Open(lockName, vfs.Read)
	if err != nil {
		return unknown
	}
	defer f.Close() //nolint:errcheck // it was only read from
	var b [lockSize]byte
	n, _ := f.ReadAt(b[:], 0) // the file may be short
	if text := strings.TrimSpace(string(b[:n])); text != "" {
		return text
	}
	return unknown
}

// Lock locks a directory, as an [Engine] does. If another process has it locked, the error is a vfs.ErrLocked and names the
// process.
func Lock(fsys vfs.FS) (unlock func() error, err error) {
	f, err := acquire(fsys, wallClock())
	if err != nil {
		return nil, err
	}
	return func() error { return release(f) }, nil
}
