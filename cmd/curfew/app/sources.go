package app

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/curfewmq/curfew/core/auth"
)

// sourcesFile is the file in the data directory with the addresses from which logins succeeded, as keyed hashes. It is never needed: without it,
// everybody is a stranger who logs in.
const sourcesFile = "sources"

// sourcesInterval is how often the file is written at most, while there are new addresses, and when the broker ends.
const sourcesInterval = time.Minute

// sourceKeeper keeps the file. Its own goroutine uses it, until end.
type sourceKeeper struct {
	dir    string
	users  *auth.Store
	full   func() <-chan struct{} // returns nil while the disk has space
	log    *slog.Logger
	added  uint64 // sources when the file was written last
	failed bool   // the last time it could not be written

	ended chan struct{} // closed by end
	done  chan struct{} // closed when the goroutine has ended
}

// keepSources reads the file in a data directory, and writes it from time to time until end.
func keepSources(dir string, users *auth.Store, full func() <-chan struct{}, log *slog.Logger) *sourceKeeper {
	k := &sourceKeeper{dir: dir, users: users, full: full, log: log, ended: make(chan struct{}), done: make(chan struct{})}
	k.read()
	go k.run()
	return k
}

func (k *sourceKeeper) path() string { return filepath.Join(k.dir, sourcesFile) }

func (k *sourceKeeper) read() {
	b, err := readBounded(k.path(), auth.MaxSourcesBytes)
	var n int
	if err == nil {
		n, err = k.users.DecodeSources(b)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		k.log.Debug("it is not known from which addresses logins succeeded before: the data directory has no file about them", "file", sourcesFile)
	case err != nil:
		k.log.Warn("it is not known from which addresses logins succeeded before: the file about them is ignored, and written anew", "file", k.path(), "error", err)
	default:
		k.log.Debug("addresses from which logins succeeded before", "addresses", n)
	}
}

// readBounded reads a regular file of at most so many bytes.
func readBounded(path string, most int) ([]byte, error) {
	switch info, err := os.Stat(path); {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular(): // to open a pipe might take for ever
		return nil, fmt.Errorf("it is no file: %s", info.Mode())
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	return b, errors.Join(err, f.Close())
}

func (k *sourceKeeper) run() {
	defer close(k.done)
	tick := time.NewTicker(sourcesInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if k.users.AddedSources() != k.added {
				k.write()
			}
		case <-k.ended:
			k.write() // in the order in which they were used last
			return
		}
	}
}

func (k *sourceKeeper) write() {
	if k.full() != nil { // what space is left is for the logs
		return
	}
	added := k.users.AddedSources()
	switch err := replaceFile(k.path(), k.users.EncodeSources()); {
	case err == nil:
		k.added, k.failed = added, false
	case !k.failed:
		k.failed = true
		k.log.Warn("it will not be known after a restart from which addresses logins succeeded", "error", err)
	}
}

// replaceFile writes a file so that after a crash there is the new one or the old one.
func replaceFile(path string, b []byte) error {
	temporary := path + ".new"
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return os.Rename(temporary, path)
}

// end writes the file and ends. It does nothing on nil.
func (k *sourceKeeper) end() {
	if k == nil {
		return
	}
	close(k.ended)
	<-k.done
}
