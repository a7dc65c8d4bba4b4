package journal

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/seg"
)

// deadLetters is a queue on a small disk whose messages all expire, publishers who never stop, and the queue of its dead letters.
type deadLetters struct {
	*owner
	twice   bool // a message stays in its queue until its dead letter is durable
	publish bool // publishers are at work

	queue, dead []int // records, the oldest first
	underway    int   // bytes of dead letters
	taken       int   // dead letters

	waits     bool       // a publisher waits for a grant
	mu        sync.Mutex // guards the fields below
	granted   bool       // it has got the grant
	confirmed int
	arrived   []move
}

// move is a message that is dead-lettered.
type move struct{ from, to, bytes int }

// entered is the completer of a message, and arrive of a dead letter.
type (
	entered struct{ of *deadLetters }
	arrive  struct {
		of *deadLetters
		move
	}
)

func (p entered) Durable() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.of.confirmed++
}

func (a arrive) Durable() {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	a.of.arrived = append(a.of.arrived, a.move)
}

func (entered) Failed(error) {}
func (arrive) Failed(error)  {}

// step lets publishers publish, messages expire, and, if some consume, dead letters be taken.
func (d *deadLetters) step(size int, expire, consume bool) {
	const most = 8 // of the disk's 64 parts, as the broker has 8 MiB under way
	for n := 0; d.publish && n < max(8, partOfDisk/2/size) && d.mayPublish(int64(size+100)); n++ {
		d.next++
		tn := d.write(nil, d.s.Extent(), d.next, size)
		d.queue = append(d.queue, d.next)
		d.s.Commit([]byte(tn.ops.String()), tn.live, entered{d})
		d.s.Return(int64(size + 100))
	}
	for expire && len(d.queue) > 0 && d.underway < most*partOfDisk && d.s.o.Space.Moves(d.s.o.Moves) {
		d.next++
		m := move{d.queue[0], d.next, int(d.size[d.queue[0]])}
		d.queue, d.dead = d.queue[1:], append(d.dead, m.to)
		d.underway += m.bytes
		d.s.o.Space.Take(int64(m.bytes))
		var tn *turn
		if !d.twice {
			tn = d.drop(nil, m.from)
		}
		tn = d.write(tn, d.s.Extent(), m.to, size)
		d.s.Commit([]byte(tn.ops.String()), tn.live, arrive{d, m})
	}
	for consume && len(d.dead) > 0 {
		tn := d.drop(nil, d.dead[0])
		d.dead, d.taken = d.dead[1:], d.taken+1
		d.s.Commit([]byte(tn.ops.String()), tn.live, nil)
	}
	d.mu.Lock()
	arrived := d.arrived
	d.arrived = nil
	d.mu.Unlock()
	for _, m := range arrived {
		d.underway -= m.bytes
		d.s.o.Space.Give(int64(m.bytes))
		if d.twice {
			tn := d.drop(nil, m.from)
			d.s.Commit([]byte(tn.ops.String()), tn.live, nil)
		}
	}
	d.ids = slices.Concat(d.queue, d.dead)
	d.move()
	time.Sleep(10 * time.Millisecond)
}

// mayPublish reports whether a message has a grant.
func (d *deadLetters) mayPublish(bytes int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if granted := d.granted; d.waits {
		d.waits, d.granted = !granted, false
		return granted
	}
	if d.s.CaughtUp() != nil {
		return false
	}
	if d.s.Grant(bytes) {
		return true
	}
	d.waits = true
	d.s.Await(bytes, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.granted = true
	})
	return false
}

// drop settles a record.
func (d *deadLetters) drop(tn *turn, id int) *turn {
	if tn == nil {
		tn = new(turn)
	}
	fmt.Fprintf(&tn.ops, "-%d;", id)
	tn.live = append(tn.live, Delta{Extent: d.extent[id], Records: -1, Bytes: -d.size[id]})
	d.forget(id)
	return tn
}

const partOfDisk = 64 << 10 // bytes; the disk has 64 parts

// On a disk that was full of messages which expired, the space for moves was used up by the time that somebody took the dead letters. All
// that was live at the log's front was on its way to the other queue, and stayed there, because these moves waited for space: with the
// bodies of dead letters that had long been taken. What waited also held the front itself, or was written once more with each move.
func TestADiskFullOfDeadLettersEnds(t *testing.T) {
	for _, size := range []int{30, 300, 60_000, 5_000, 16_000, 18_000, 20_000, 24_000, 12_000} {
		for _, twice := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d bytes, twice %t", size, twice), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { deadLettersEnd(t, size, twice) })
			})
		}
	}
}

func deadLettersEnd(t *testing.T, size int, twice bool) {
	t.Helper()
	disk := crashfs.New(1)
	disk.SetSpace(64 * partOfDisk)
	w, engine := openFull(t, disk)
	d := &deadLetters{owner: w, twice: twice, publish: true}
	for round := range 4 {
		full := 0
		for range 300 { // nobody takes them yet
			if d.step(size, round > 0, false); w.s.Low() {
				full++
			}
		}
		if full == 0 {
			t.Errorf("round %d: the disk is not full: %+v", round, w.s.Stats())
		}
		owed := d.next // the last one that there is by now
		for n := 0; n < 3000 && len(d.queue) > 0 && d.queue[0] <= owed; n++ {
			d.step(size, true, true)
		}
		if len(d.queue) > 0 && d.queue[0] <= owed {
			t.Errorf("round %d: message %d is still there, of %d to %d: %+v", round, d.queue[0], owed, d.next, w.s.Stats())
		}
	}
	if d.publish = false; d.waits {
		time.Sleep(time.Second)
		if d.mayPublish(0) {
			d.s.Return(int64(size + 100))
		}
	}
	for n := 0; n < 3000 && (len(d.ids) > 0 || d.underway > 0); n++ {
		d.step(size, true, true)
	}
	time.Sleep(5 * time.Second)
	if st := w.s.Stats(); len(d.ids) > 0 || d.underway > 0 || st.Live != 0 || st.Pending != 0 || st.Low || st.Full {
		t.Errorf("%d messages are left, %d bytes are under way; %d confirmed, %d taken; %+v", len(d.ids), d.underway, d.confirmed, d.taken, st)
	}
	_ = w.s.Close(t.Context())
	_ = engine.Close()
}

// oneShard opens a shard of its own instead of any.
type oneShard struct {
	wlog.Engine
	number uint32
}

func (o oneShard) Open(ctx context.Context, _ uint32, fn func(wlog.Index, []byte) error) (wlog.Log, error) {
	return o.Engine.Open(ctx, o.number, fn)
}

// Logs that share a disk full of dead letters took one another's space for the segments that they began. Then no dead letter moved any more.
func TestADiskFullOfDeadLettersOfLogsEnds(t *testing.T) {
	for _, size := range []int{300, 5_000, 24_000, 60_000} {
		for _, twice := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d bytes, twice %t", size, twice), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { deadLettersOfLogsEnd(t, size, twice) })
			})
		}
	}
}

func deadLettersOfLogsEnd(t *testing.T, size int, twice bool) {
	t.Helper()
	const logs = 3
	disk := crashfs.New(1)
	disk.SetSpace(logs * 64 * partOfDisk)
	all, engine := openLogs(t, disk, logs)
	step := func(expire, consume bool) {
		for _, d := range all {
			d.twice = twice
			d.step(size, expire, consume)
		}
	}
	for round := range 3 {
		for range 300 {
			step(round > 0, false)
		}
		owed := make([]int, logs)
		for i, d := range all {
			if owed[i] = d.next; !d.waits {
				t.Errorf("round %d: nobody waits for space in log %d: %+v", round, i, d.s.Stats())
			}
		}
		left := func() bool {
			return slices.ContainsFunc(all, func(d *deadLetters) bool { return len(d.queue) > 0 && d.queue[0] <= owed[slices.Index(all, d)] })
		}
		for n := 0; n < 2000 && left(); n++ {
			step(true, true)
		}
		if left() {
			for i, d := range all {
				t.Errorf("round %d, log %d: %d messages wait, %d dead letters, %d bytes of them under way: %+v", round, i, len(d.queue), len(d.dead), d.underway, d.s.Stats())
			}
			break
		}
	}
	for _, d := range all {
		_ = d.s.Close(t.Context())
	}
	_ = engine.Close()
}

// openLogs opens logs that share a disk.
func openLogs(t *testing.T, disk *crashfs.FS, n uint32) (all []*deadLetters, engine *seg.Engine) {
	t.Helper()
	engine, err := seg.New(disk, seg.Options{Events: seg.Events{Space: func(shard uint32, low *seg.Shortage) {
		if int(shard) <= len(all) {
			all[shard-1].s.SetLowSpace(low != nil)
		}
	}}})
	if err != nil {
		t.Fatal(err)
	}
	size, space := engine.SegmentSize(), &Space{}
	for i := range n {
		w := newOwnerOf(t, oneShard{engine, i + 1}, Options{
			Extent: size / 4, Slack: 2 * size, Entry: int(size / 4), Pending: size / 4, Size: wlog.EntrySize, Moves: size / 8, Unit: size / 4, Space: space,
		})
		all = append(all, &deadLetters{owner: w, publish: true})
	}
	return all, engine
}
