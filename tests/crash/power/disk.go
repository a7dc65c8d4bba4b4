// Package power is a broker that loses power, again and again, while clients are at work: a campaign under a ledger that knows what
// the broker owes them.
//
// All of the broker runs in the test's process but for its sockets: sessions, vhosts, queues, journals, the log engine. Below it lies
// a disk in memory on which nothing happens before the driver lets it, one operation at a time; time is simulated, too. So whatever
// can be underway when the power goes is underway some time, and a run follows from its seed.
package power

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// disk is a [vfs.FS] whose changes wait until the driver lets them through. It knows what of each log has reached the disk for good.
//
// A quick one lets through at once all but what trims a log. Whoever waits for the disk while others wait for him, for a mutex, would
// have the simulated time stand still; with [seg.Flush] logs wait for one another so.
type disk struct {
	fs    *crashfs.FS
	quick bool
	liar  bool // it does not sync messages, and says that it has

	mu      sync.Mutex // guards what follows
	waiting []*change
	off     bool // nothing waits any more: the broker's time is over
	dark    bool // the power is gone
	logs    map[uint32]*logState
	loose   map[*crashFile]uint64 // files written to and not synced since; the first of these writes
}

// change is something that is about to be done.
type change struct {
	kind crashfs.OpKind
	name string
	let  chan struct{}
}

// logState is what is known of the files of one shard.
type logState struct{ written uint64 } // writes

var _ vfs.FS = (*disk)(nil)

func newDisk(fs *crashfs.FS, quick bool) *disk {
	return &disk{fs: fs, quick: quick, logs: map[uint32]*logState{}, loose: map[*crashFile]uint64{}}
}

// await returns when the change may happen.
func (d *disk) await(kind crashfs.OpKind, name string) {
	trims := kind == crashfs.OpRename && strings.HasSuffix(name, ".seg") // removing a spare may be part of an append, with its mutex held
	d.mu.Lock()
	if d.off || d.quick && !trims {
		d.mu.Unlock()
		return
	}
	c := &change{kind, name, make(chan struct{})}
	d.waiting = append(d.waiting, c)
	d.mu.Unlock()
	<-c.let
}

// heed takes note when the power goes.
func (d *disk) heed(err error) error {
	if errors.Is(err, crashfs.ErrPower) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.dark = true
	}
	return err
}

// isDark reports whether the power is gone.
func (d *disk) isDark() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dark
}

// pending counts the changes that wait.
func (d *disk) pending() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.waiting)
}

// let lets one of those that wait happen, as pick says; they are in the order of their names, as the order in which they came to
// wait is the scheduler's.
func (d *disk) let(pick func(n int) int) (what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	slices.SortStableFunc(d.waiting, func(a, b *change) int { return strings.Compare(a.name, b.name) })
	i := pick(len(d.waiting))
	c := d.waiting[i]
	d.waiting = slices.Delete(d.waiting, i, i+1)
	close(c.let)
	return c.kind.String() + " " + c.name
}

// release has everything fail that waits, and nothing wait any more.
func (d *disk) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.off = true
	for _, c := range d.waiting {
		close(c.let)
	}
	d.waiting = nil
}

// shardOf returns whose file it is, and whether it is a shard's at all.
func shardOf(name string) (shard uint32, ok bool) {
	stem, _, ok := strings.Cut(name, "-")
	n, err := strconv.ParseUint(stem, 10, 32)
	return uint32(n), ok && err == nil
}

// written is how many writes to a shard's files there were.
func (d *disk) written(shard uint32) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log(shard).written
}

// log returns what is known of a shard. The caller holds mu.
func (d *disk) log(shard uint32) *logState {
	if d.logs[shard] == nil {
		d.logs[shard] = &logState{}
	}
	return d.logs[shard]
}

// durable is up to which of its writes a shard's log has been synced, and how many of its files have later ones.
func (d *disk) durable(shard uint32) (upTo uint64, files int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	upTo = d.log(shard).written
	for f, first := range d.loose {
		if f.shard == shard && f.log {
			upTo = min(upTo, first-1)
			files++
		}
	}
	return upTo, files
}

// Open implements [vfs.FS].
func (d *disk) Open(name string, mode vfs.Mode) (vfs.File, error) {
	if m := mode &^ vfs.Direct; m == vfs.Create || m == vfs.Lock {
		d.await(crashfs.OpCreate, name)
	}
	f, err := d.fs.Open(name, mode)
	if d.heed(err) != nil {
		return nil, err
	}
	shard, ok := shardOf(name)
	return &crashFile{File: f, disk: d, name: name, shard: shard, log: ok}, nil
}

// List implements [vfs.FS].
func (d *disk) List() ([]vfs.Stat, error) { return d.fs.List() }

// Rename implements [vfs.FS].
func (d *disk) Rename(old, name string) error {
	d.await(crashfs.OpRename, old)
	return d.heed(d.fs.Rename(old, name))
}

// Remove implements [vfs.FS].
func (d *disk) Remove(name string) error {
	d.await(crashfs.OpRemove, name)
	return d.heed(d.fs.Remove(name))
}

// Sync implements [vfs.FS].
func (d *disk) Sync() error {
	d.await(crashfs.OpSyncDir, "")
	return d.heed(d.fs.Sync())
}

// crashFile is an open file of a disk.
type crashFile struct {
	vfs.File
	disk  *disk
	name  string // it was opened by
	shard uint32
	log   bool // it is a shard's
}

// Writev implements [vfs.File].
func (f *crashFile) Writev(off int64, parts [][]byte) error {
	f.disk.await(crashfs.OpWrite, f.name)
	f.disk.mu.Lock()
	l := f.disk.log(f.shard)
	l.written++
	if _, ok := f.disk.loose[f]; !ok {
		f.disk.loose[f] = l.written
	}
	f.disk.mu.Unlock()
	return f.disk.heed(f.File.Writev(off, parts))
}

// Allocate implements [vfs.File].
func (f *crashFile) Allocate(size int64) error {
	f.disk.await(crashfs.OpAllocate, f.name)
	return f.disk.heed(f.File.Allocate(size))
}

// Sync implements [vfs.File].
func (f *crashFile) Sync() error {
	f.disk.await(crashfs.OpSync, f.name)
	var err error
	if !f.disk.liar || f.shard == 0 {
		err = f.disk.heed(f.File.Sync())
	}
	if err == nil {
		f.disk.mu.Lock()
		delete(f.disk.loose, f)
		f.disk.mu.Unlock()
	}
	return err
}
