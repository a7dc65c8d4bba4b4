package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// sourcesFile is the file in the data directory with the addresses of successful logins, as keyed hashes. The broker also works without it:
// then every user counts as a stranger at the next login.
const sourcesFile = "sources"

// sourcesInterval is how often at most the file is written while there are new addresses. It is also written when the broker ends.
const sourcesInterval = time.Minute

// sourceKeeper keeps the file. Until end, only its own goroutine uses it.
type sourceKeeper struct {
	dir    string
	users  *auth.Store
	full   func() <-chan struct{} // returns nil while the disk has space
	log    *slog.Logger
	added  uint64 // sources at the last write of the file
	failed bool   // the last write has failed

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
		k.log.Debug("addresses of earlier logins are unknown: the data directory has no file with them", "file", sourcesFile)
	case err != nil:
		k.log.Warn("addresses of earlier logins are unknown: their file is ignored, and will be replaced", "file", k.path(), "error", err)
	default:
		k.log.Debug("addresses from which logins succeeded before", "addresses", n)
	}
}

// readBounded reads a regular file of at most most bytes.
func readBounded(path string, most int) ([]byte, error) {
	switch info, err := os.Stat(path); {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular(): // opening a pipe might block for ever
		return nil, fmt.Errorf("it is no file: %s", info.Mode())
	}
	return readUpTo(path, most+1)
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
			k.write() // records the order of their last use
			return
		}
	}
}

func (k *sourceKeeper) write() {
	if k.full() != nil { // the remaining space is for the logs
		return
	}
	added := k.users.AddedSources()
	switch err := vfs.Replace(vfs.Dir(k.dir), sourcesFile, sourcesFile+".new", k.users.EncodeSources()); {
	case err == nil:
		k.added, k.failed = added, false
	case !k.failed:
		k.failed = true
		k.log.Warn("addresses of logins will be unknown after a restart: their file could not be written", "error", err)
	}
}

// end writes the file and ends the goroutine. It does nothing on nil.
func (k *sourceKeeper) end() {
	if k == nil {
		return
	}
	close(k.ended)
	<-k.done
}
