package power

import (
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/sdk/hook"
)

// run is one disk and the brokers that live on it, one after the other. It belongs to the driver, the goroutine that calls play.
type run struct {
	seed   uint64
	random *rand.Rand
	settings
	log *slog.Logger

	fs     *crashfs.FS
	disk   *disk
	broker *broker
	off    time.Duration // of the wall clock
	ledger *ledger
	places []*place
	churn  []*place
	digest uint64 // of what happened

	publishers []*client
	consumers  []*consumer
	admin      *client
	asked      *question // what the admin waits for
	unproven   []*held   // acknowledged in this life
	sentBy     map[*client][]*sending
	told       io.Writer // of what happens; nil = nobody wants to know
	ailing     bool      // the disk fails, or is small: the broker may refuse
}

// sending is a message under way, and what its confirm will prove.
type sending struct {
	m       *message
	proves  []*held
	cancels *message
	done    bool
}

// consumer is a channel with consumers on it.
type consumer struct {
	*client
	ch      uint16
	places  []*place // that it asked for, in the order of their tags
	serving []*place // of these, that it was told it has
	held    []*held
	gone    bool
}

func newRun(seed uint64, s settings, log *slog.Logger) *run {
	r := &run{seed: seed, random: rand.New(rand.NewPCG(seed, 7)), settings: s, log: log, fs: crashfs.New(seed)}
	r.ledger = &ledger{
		flush: s.durability == seg.Flush, bury: s.bury, reached: map[int]map[uint32]uint64{}, messages: map[uint64]*message{},
		now: func() hook.Instant { return r.broker.clock() },
	}
	r.layout()
	return r
}

// trace notes what happened.
func (r *run) trace(format string, args ...any) {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d ", r.digest)
	fmt.Fprintf(h, format, args...)
	r.digest = h.Sum64()
	if r.told != nil {
		fmt.Fprintf(r.told, "%s "+format+"\n", append([]any{time.Unix(0, int64(r.broker.clock())).UTC().Format("05.000000")}, args...)...)
	}
}

// play lets brokers live, until power was lost so many times or something went wrong.
func (r *run) play(losses int) {
	r.boot()
	for r.ledger.counts.PowerLosses < losses && !r.broken() {
		r.live()
		r.finish()
	}
	if !r.broken() {
		r.drain()
	}
	if r.broker != nil {
		r.broker.abandon()
	}
}

func (r *run) broken() bool { return len(r.ledger.breaches) > 0 }

// boot starts a broker, and loses the power meanwhile now and then.
func (r *run) boot() {
	for {
		r.ledger.life++
		r.fs.SetSpace(1 << 60)
		r.disk = newDisk(r.fs, r.durability == seg.Flush)
		r.disk.liar = r.liar
		if r.random.IntN(5) == 0 { // somebody sets the clock
			r.off += time.Duration(r.random.IntN(4000)-1500) * time.Millisecond
		}
		r.broker = start(r.disk, r.settings, r.off, r.log)
		if r.awaken() {
			break
		}
	}
	if r.broker.failure != nil {
		r.ledger.breach("the broker refuses to start: %v", r.broker.failure)
		return
	}
	r.broker.serve(r.log)
	r.ledger.begin(r.places)
	r.publishers, r.consumers, r.admin, r.asked, r.unproven = nil, nil, nil, nil, nil
	r.sentBy = map[*client][]*sending{}
	r.ailing, r.ledger.faulty = false, false
	r.census()
	r.declareAll()
}

// awaken lets the broker open its store. It reports false if the power went before.
func (r *run) awaken() bool {
	cut := -1
	if r.ledger.life > 1 && r.random.IntN(4) == 0 {
		cut = r.random.IntN(30)
		if r.disk.quick {
			r.fs.CutPower(cut)
		}
	}
	for {
		synctest.Wait()
		select {
		case <-r.broker.opened:
			if !r.disk.isDark() {
				r.fs.Inject(nil)
				return true
			}
			cut = 0
		default:
		}
		switch {
		case cut == 0, r.disk.isDark():
			r.ledger.counts.Recovering++
			r.cutPower()
			return false
		case r.disk.pending() == 0:
			r.ledger.breach("the broker does not open its store, and waits for nothing")
			return true
		}
		cut--
		r.change()
	}
}

// change lets the disk do one of the things it is asked for.
func (r *run) change() {
	r.ledger.counts.Changes++
	r.trace("%s", r.disk.let(r.random.IntN))
}

// step lets everything happen that follows from what was done last, but for the disk.
func (r *run) step() {
	for {
		synctest.Wait()
		fed := false
		for _, c := range r.broker.clients {
			fed = c.pump() || fed
		}
		if !fed {
			return
		}
	}
}

// settle lets everything happen there is to do.
func (r *run) settle() {
	for range 100_000 {
		r.step()
		if r.readAll() {
			continue
		}
		if r.disk.pending() == 0 {
			return
		}
		r.change()
	}
	r.ledger.breach("the broker does not come to rest")
}

// readAll has every client read what it was sent.
func (r *run) readAll() (some bool) {
	for _, c := range r.broker.clients {
		some = r.read(c) || some
	}
	return some
}

func (r *run) read(c *client) (some bool) {
	events := c.hear()
	for i := range events {
		some = true
		c.ahead = events[i+1:]
		r.hear(c, &events[i])
	}
	c.heard = r.broker.clock()
	return some
}

// mark is where a shard's log is now.
func (r *run) mark(shard uint32) mark {
	return mark{shard: shard, at: r.disk.written(shard), life: r.ledger.life}
}

func (r *run) markOf(p *place) mark { return r.mark(p.shard) }

// markFor is where the log is that a message is in before its confirm.
func (r *run) markFor(m *message) mark {
	if m.scheduled {
		return r.mark(m.home.log)
	}
	return r.markOf(m.home)
}
