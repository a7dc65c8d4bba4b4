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
	lockSize = 256 // bytes, so that writing it again needs no space
)

// acquire locks the directory and writes into the lock file who holds it. If
// somebody else does, the error, a vfs.ErrLocked, says who.
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

// writeHolder writes for people only: a full disk is no reason to stop.
func writeHolder(f vfs.File, text string) error {
	b := append([]byte(text), bytes.Repeat([]byte(" "), lockSize)...)[:lockSize]
	b[lockSize-1] = '\n'
	err := f.Writev(0, [][]byte{b})
	if vfs.NoSpace(err) {
		return nil
	}
	return err
}

// release gives the lock up.
func release(f vfs.File) error {
	return errors.Join(writeHolder(f, ""), f.Close())
}

// holder reads who holds the lock.
func holder(fsys vfs.FS) string {
	const unknown = "another process"
	f, err := fsys.Open(lockName, vfs.Read)
	if err != nil {
		return unknown
	}
	defer f.Close() //nolint:errcheck // it was only read from
	var b [lockSize]byte
	n, _ := f.ReadAt(b[:], 0) // a short file is as good
	if text := strings.TrimSpace(string(b[:n])); text != "" {
		return text
	}
	return unknown
}
