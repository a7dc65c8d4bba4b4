package quorum

import (
	"context"
	"errors"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// job is one request to the local log.
type job struct {
	probe int  // make space for so many bytes, and write nothing; 0 = no probe
	look  bool // only ask how much space there is
	write *write
	trim  wlog.Index // trim before this entry; 0 = do not trim
	at    wlog.Index
	err   error
}

// fullPause is how long write waits on a full disk before the next attempt.
const fullPause = 100 * time.Millisecond

// write is the goroutine that writes to the local log.
func (r *replica) write(ctx context.Context) {
	r.look()
	for j := range r.jobs {
		if j.trim > 0 {
			j.err = r.disk.log.Trim(j.trim)
		}
		if j.probe > 0 && j.err == nil {
			j.err = r.makeSpace(j.probe)
		}
		if j.write != nil && len(j.write.data) > 0 && j.err == nil {
			j.at, j.err = r.disk.log.Append(ctx, j.write.data, j.write.purpose)
		}
		if j.full() {
			r.pause()
		}
		r.look()
		r.done <- j
	}
	close(r.done)
}

// look notes how much space the local log has. That may wait for the disk, so only the
// write goroutine calls look.
func (r *replica) look() {
	r.localRoom.Store(min(r.disk.log.Room()&^(roomStep-1), plenty))
}

// makeSpace makes space in the local log for a large write of size bytes.
func (r *replica) makeSpace(size int) error {
	return r.disk.log.Reserve(size, wlog.Settling)
}

// full reports whether the local log had no space for a write.
func (j *job) full() bool { return errors.Is(j.err, wlog.ErrFull) }

// pause gives the disk time to get space.
func (r *replica) pause() {
	select {
	case <-time.After(fullPause):
	case <-r.stop:
	}
}

// wrote handles a job that write has done.
func (r *replica) wrote(j job) error {
	r.writing = false
	switch {
	case j.probe > 0 && (j.err == nil || j.full()):
		if r.probed = j.err == nil; !r.probed {
			r.group.stillFull()
		}
		return nil
	case j.full():
		r.group.refused(j.write)
		return nil
	case j.err != nil:
		r.fail(j.err)
		return nil
	case j.write == nil:
		return nil
	}
	before, err := r.group.written(j.write, j.at)
	r.trims = max(r.trims, before)
	return err
}

// reserve makes space in the local log for an entry of the shard. It fails with ErrFull if
// a majority of the nodes has no space. A disk may never answer, so reserve returns when
// lost is closed: the appending goroutine has clients to answer.
func (r *replica) reserve(size int, purpose wlog.Purpose, lost <-chan struct{}) error {
	if purpose < wlog.Purpose(r.least.Load()) {
		return wlog.ErrFull
	}
	l := r.disk.log
	size += bodyHeaderSize + entryHeaderSize + hardStateSize + timeSize
	if l.HasSpace(size, purpose) {
		return nil
	}
	began := time.Now()
	r.reserving.Store(&began)
	defer r.reserving.Store(nil)
	done := make(chan error, 1)
	go func() { done <- l.Reserve(size, purpose) }()
	select {
	case err := <-done:
		return err
	case <-lost:
		return wlog.ErrLost
	case <-r.ended:
		return wlog.ErrLost
	}
}

// stalled reports whether the local log has not answered for so long that another node should own the shard.
func (r *replica) stalled() bool {
	since := r.reserving.Load()
	return r.writing && time.Since(r.since) >= r.stall || since != nil && time.Since(*since) >= r.stall
}

// fail notes that the local log has failed. A leader stays in office until another node has
// taken over: it may send entries that it has not written, and its own copy counts for no
// confirmation any more.
func (r *replica) fail(err error) {
	r.failed = err
	if r.log != nil {
		r.log.lose()
	}
	if r.group.passive = true; len(r.group.peers()) > 0 {
		r.farewell = electionTicks
		r.group.handOver()
	}
}
