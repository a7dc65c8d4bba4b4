package seg

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/wlog"
)

// shardLog is an owned shard.
type shardLog struct {
	*storage
	life  logState
	table table
	pool  pool
	trims reclaimer
	syncs *telemetry.Histogram // how long they take, seconds

	mu     sync.Mutex // held during an append, and by whoever ends the journal; guards what follows
	chain  wlog.Chain
	active *segment
	end    int64 // where its next entry begins
	open   int64 // up to where it is there for entries of any purpose, even if no other follows
	synced bool  // everything before end is durable
	shut   bool
	header []byte // of the entry being written
	parts  [3][]byte
}

var _ wlog.Log = (*shardLog)(nil)

// Append implements [wlog.Log]. It cannot be interrupted, so the context is not
// looked at.
func (j *shardLog) Append(_ context.Context, entry []byte, purpose wlog.Purpose) (wlog.Index, error) {
	if j.firm {
		j.settle()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.life.end(); err != nil {
		return 0, err
	}
	if len(entry) > wlog.MaxEntry {
		return 0, j.life.lose(fmt.Errorf("append %d bytes: %w", len(entry), wlog.ErrTooLarge))
	}
	if err := j.place(wlog.EntrySize(len(entry)), purpose); err != nil {
		return 0, j.refuse(err)
	}
	h := j.chain.Next(wlog.Data, j.shard, j.Clock())
	at, err := j.append(&h, entry)
	if err == nil && j.Durability == Fsync {
		err = j.sync()
	}
	if err != nil {
		return 0, j.life.lose(err)
	}
	j.active.last = at
	return at, nil
}

// refuse passes on that there is no space; any other error ends the journal.
func (j *shardLog) refuse(err error) error {
	if err == wlog.ErrFull { //nolint:errorlint // the pool returns it bare; no error of the system is this one
		return err
	}
	return j.life.lose(err)
}

// append writes an entry at the end of the active segment, which has room.
func (j *shardLog) append(h *wlog.Header, body []byte) (wlog.Index, error) {
	at := j.active.index(j.end)
	h.Synced = j.synced
	j.header = h.Append(j.header[:0], at, j.active.salt, body)
	ends := j.end + wlog.HeaderSize + int64(len(body))
	j.parts = [...][]byte{j.header, body, zeros[:roundUp(ends, page)-ends]}
	j.synced = false
	err := j.active.file.Writev(j.end, j.parts[:])
	j.parts[1] = nil // it is the caller's
	if err != nil {
		return 0, err
	}
	j.end += wlog.EntrySize(len(body))
	j.chain.Appended(at, h)
	return at, nil
}

func (j *shardLog) sync() error {
	began := time.Now()
	err := j.active.file.Sync()
	if j.synced = err == nil; j.synced {
		j.syncs.Add(time.Since(began).Seconds(), 1)
	}
	return err
}

// place sees to it that the active segment has room for an entry of that size.
//
// Half of a segment, and some of the disk, are the reserve for the time when the
// disk is full: what brings more goes there only when the next segment is there.
func (j *shardLog) place(size int64, purpose wlog.Purpose) error {
	err := j.placeAny(size, purpose)
	if err != wlog.ErrFull || purpose == wlog.Bringing { //nolint:errorlint // the pool returns it bare; no error of the system is this one
		return err
	}
	return j.placeKept(size, purpose)
}

// placeAny is place as long as there is enough for every purpose.
func (j *shardLog) placeAny(size int64, purpose wlog.Purpose) error {
	for {
		end := j.end + size
		if end > j.active.size/4 {
			j.pool.want(j.active.number, j.active.size)
		}
		if end <= j.open || purpose == wlog.Settling && j.fits(size) {
			return nil
		}
		if err := j.pool.wait(); err != nil {
			return err
		}
		if end <= j.active.size {
			return nil
		}
		if err := j.rotate(size); err != nil {
			return err
		}
	}
}

// placeKept is place out of the reserve. What moves leaves some of it to what
// settles.
func (j *shardLog) placeKept(size int64, purpose wlog.Purpose) error {
	if purpose == wlog.Moving && j.active.size-j.end+j.pool.left()-size < j.SegmentSize/2 {
		return wlog.ErrFull
	}
	if j.fits(size) {
		return nil
	}
	next, err := j.pool.takeKept(size)
	if err != nil {
		return err
	}
	if err := j.goOn(next); err != nil {
		return err
	}
	j.open = 0
	return nil
}

// fits reports whether an entry of that size leaves what a later owner's Takeover
// needs, even if no other segment follows.
func (j *shardLog) fits(size int64) bool { return j.end+size <= j.active.size-j.reserve() }

// reserve is what only a Takeover may use: some eighty of them.
func (s *storage) reserve() int64 { return min(max(s.SegmentSize/(16<<10), 1<<10), 4<<10) }

// rotate closes the active segment, durably, and goes on with the next one, which
// has room for an entry of that size.
func (j *shardLog) rotate(size int64) error {
	next, err := j.pool.take(size)
	if err != nil {
		return err
	}
	return j.goOn(next)
}

// goOn closes the active segment, durably, and goes on with another.
func (j *shardLog) goOn(next *segment) error {
	if err := j.fill(); err != nil {
		return err
	}
	if err := j.sync(); err != nil {
		return err
	}
	j.activate(next)
	return nil
}

func (j *shardLog) activate(g *segment) {
	j.table.add(g)
	j.active, j.end, j.open = g, headerSize, g.size/2
}

// fill writes the active segment to its end.
func (j *shardLog) fill() error {
	rest := j.active.size - j.end
	if rest < wlog.HeaderSize {
		return j.active.file.Writev(j.end, [][]byte{zeros[:rest]})
	}
	h := j.chain.Next(wlog.Filler, j.shard, j.Clock())
	_, err := j.append(&h, make([]byte, rest-wlog.HeaderSize))
	return err
}

// settleOwn makes durable what Flush has not. If it cannot, the journal is lost.
func (j *shardLog) settleOwn() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.shut || j.synced || j.life.end() != nil {
		return
	}
	if err := j.sync(); err != nil {
		_ = j.life.lose(err)
	}
}

// Trim implements [wlog.Log]. What is given up stands again behind it, or in
// another shard, as far as it is still of use. That has to be durable first: the
// names of the files that go are so at once, and what they held was for long.
func (j *shardLog) Trim(before wlog.Index) error {
	if _, dead, _ := j.table.keeps(before); dead > 0 && j.Durability == Flush {
		j.settle()
	}
	if err := j.life.end(); err != nil {
		return err
	}
	if err := j.trims.trim(before); err != nil {
		return j.life.lose(fmt.Errorf("trim: %w", err))
	}
	return nil
}

// Lost implements [wlog.Log].
func (j *shardLog) Lost() <-chan struct{} { return j.life.lost }

// Close implements [wlog.Log]. It makes durable what Flush has not.
func (j *shardLog) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	err := j.finish()
	j.life.close()
	return err
}

// yield ends the journal for another owner's sake.
func (j *shardLog) yield() error {
	_ = j.life.lose(errTaken)
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.finish()
}

var errTaken = errors.New("taken over by another owner")

// finish gives the files up. What went wrong is not tried again. The caller holds
// mu, so no append is in flight.
func (j *shardLog) finish() error {
	if j.shut {
		return nil
	}
	j.shut = true
	var err error
	if cause := j.life.end(); !j.synced && (cause == nil || errors.Is(cause, errTaken)) {
		err = j.sync()
	}
	j.trims.stop()
	j.pool.close()
	j.table.close()
	return err
}
