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
	switch err := vfs.Replace(vfs.Dir(k.dir), sourcesFile, sourcesFile+".new", k.users.EncodeSources()); {
	case err == nil:
		k.added, k.failed = added, false
	case !k.failed:
		k.failed = true
		k.log.Warn("it will not be known after a restart from which addresses logins succeeded", "error", err)
	}
}

// end writes the file and ends. It does nothing on nil.
func (k *sourceKeeper) end() {
	if k == nil {
		return
	}
	close(k.ended)
	<-k.done
}
