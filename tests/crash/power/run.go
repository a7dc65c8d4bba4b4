package power

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
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
	m      *message
	proves []*held
	done   bool
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

// question is something that the admin has asked for.
type question struct {
	p    *place
	what string
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

// layout has a queue for each way in which messages live and die. Those that are alike have different times: what is due at one
// instant is done in any order.
func (r *run) layout() {
	for _, p := range []*place{
		{name: "old"},
		{name: "plain"},
		{name: "timed", ttl: 61 * time.Millisecond, dead: &place{name: "timed.dead"}},
		{name: "brief", ttl: 83 * time.Millisecond},
		{name: "short", limit: 5, dead: &place{name: "short.dead"}},
		{name: "work", ttl: 5077 * time.Millisecond, dead: &place{name: "work.dead"}},
		{name: "careful", ttl: 103 * time.Millisecond, careful: true, dead: &place{name: "careful.dead"}},
		{name: "leased", lease: 701 * time.Millisecond, dead: &place{name: "leased.dead"}},
		{name: "leased.careful", lease: 907 * time.Millisecond, ttl: 613 * time.Millisecond, careful: true, dead: &place{name: "leased.careful.dead"}},
	} {
		if p.dead != nil {
			p.dead.source = p
			r.places = append(r.places, p.dead)
		}
		r.places = append(r.places, p)
	}
	for n := range 3 {
		r.churn = append(r.churn, &place{name: "churn." + strconv.Itoa(n)})
	}
	r.places = append(r.places, r.churn...)
}

func (p *place) isChurn() bool { return strings.HasPrefix(p.name, "churn.") }

func (p *place) arguments(padding int) amqp.Table {
	var args amqp.Table
	add := func(key string, v any) { args = append(args, amqp.Field{Key: key, Value: v}) }
	if p.ttl > 0 {
		add("x-message-ttl", p.ttl.Milliseconds())
	}
	if p.limit > 0 {
		add("x-max-length", int64(p.limit))
	}
	if p.lease > 0 {
		add("x-expires", p.lease.Milliseconds())
	}
	if p.careful {
		add("x-queue-type", "quorum")
		add("x-dead-letter-strategy", "at-least-once")
		add("x-overflow", "reject-publish")
	}
	if p.dead != nil {
		add("x-dead-letter-exchange", "")
		add("x-dead-letter-routing-key", p.dead.name)
	}
	if padding > 0 {
		add("padding", strings.Repeat("x", padding))
	}
	return args
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
	for _, e := range c.read() {
		some = true
		r.hear(c, &e)
	}
	return some
}

// declareAll declares what is not there but is to be.
func (r *run) declareAll() {
	c := r.broker.connect(800)
	r.admin = c
	c.say(1, &amqp.ChannelOpen{})
	r.settle()
	for _, p := range r.places {
		if !p.there && !p.isChurn() && !r.broken() {
			r.declare(p)
			r.settle()
		}
	}
}

// declare has the admin declare a place.
func (r *run) declare(p *place) {
	p.used = r.broker.clock()
	p.sure, p.ended = false, false
	padding := 0
	if p.isChurn() {
		padding = 200 + r.random.IntN(3000)
	}
	r.asked = &question{p, "declare"}
	r.admin.say(1, &amqp.QueueDeclare{Queue: p.name, Durable: true, Arguments: p.arguments(padding)})
}

// mark is where a shard's log is now.
func (r *run) mark(shard uint32) mark {
	return mark{shard: shard, at: r.disk.written(shard), life: r.ledger.life}
}

func (r *run) markOf(p *place) mark { return r.mark(p.shard) }

// answered is called for what the admin is told.
func (r *run) answered(m amqp.Method) {
	q := r.asked
	if q == nil {
		return
	}
	switch m.(type) {
	case *amqp.QueueDeclareOK:
		q.p.there, q.p.sure, q.p.as = true, true, r.mark(0)
		r.identify(q.p)
		r.ledger.counts.Declared++
	case *amqp.QueueDeleteOK:
		q.p.there, q.p.sure, q.p.as, q.p.doomed = false, true, r.mark(0), false
		r.ledger.counts.Deleted++
	case *amqp.QueuePurgeOK:
		q.p.doomed = false
		r.ledger.counts.Purged++
	default:
		return
	}
	r.asked = nil
}

// look finds out which places there are, and complains if that cannot be. What it sees is certain when nothing moves.
func (r *run) look(still bool) {
	now := r.broker.clock()
	for _, p := range r.places {
		if r.asked != nil && r.asked.p == p {
			continue // it comes, or goes
		}
		there := r.identify(p)
		expired := p.ended || p.over(now)
		p.ended = p.ended && !there
		switch {
		case there == p.there, !p.sure:
		case there:
			r.ledger.breach("queue %s is back", p.name)
		case expired:
			r.ledger.counts.Leases++
		default:
			r.ledger.breach("queue %s is gone, lease %v, used %v ago", p.name, p.lease, now.Sub(p.used))
		}
		if there != p.there || !p.sure {
			if !there {
				r.excuse(p)
				r.emptied(p)
			}
			p.there, p.sure, p.as = there, still, r.mark(0)
		}
	}
}

// identify finds out which queue a place is, and reports whether there is one.
func (r *run) identify(p *place) bool {
	s, err := r.broker.vhost.Queue(p.name, 0)
	if err != nil {
		return false
	}
	at := s.Config().Record
	p.shard = at.Shard
	if p.id != at.ID {
		p.id = at.ID
		p.number++
	}
	return true
}

// excuse lets the messages of a queue that went be gone.
func (r *run) excuse(p *place) {
	expired := p.lease > 0 && p.sure && !p.doomed
	for _, m := range r.ledger.messages {
		if m.home == p && m.number == p.number && !expired || p.source == m.home && m.home != nil && p.source != nil {
			m.excused = true
		}
	}
}

// census fetches everything there is, and gives it back.
func (r *run) census() {
	r.settle()
	if r.broken() {
		return
	}
	r.look(true)
	c := r.broker.connect(900)
	c.say(1, &amqp.ChannelOpen{})
	r.settle()
	found := map[uint64][]sight{}
	for _, p := range r.places {
		if !p.there {
			continue
		}
		p.used = r.broker.clock()
		r.fetchAll(c, p, found)
	}
	r.ledger.stock(found, r.markOf)
	c.leave(r.broker.clock())
	r.broker.clients = slices.DeleteFunc(r.broker.clients, func(o *client) bool { return o == c })
	r.settle()
}

// fetchAll gets what a place holds.
func (r *run) fetchAll(c *client, p *place, found map[uint64][]sight) {
	const many = 20
	last := map[int]uint64{}
	for {
		var gets []amqp.Method
		for range many {
			gets = append(gets, &amqp.BasicGet{Queue: p.name})
		}
		c.say(1, gets...)
		empty := 0
		for range 100 {
			r.step()
			for _, e := range c.read() {
				switch e.method.(type) {
				case *amqp.BasicGetEmpty:
					empty++
				case *amqp.BasicGetOK:
					r.sight(p, &e, found, last)
				case *amqp.ChannelClose, *amqp.ConnectionClose:
					r.ledger.breach("census: %s: %+v", p.name, e.method)
					return
				}
			}
			if c.idle() {
				break
			}
			if r.disk.pending() > 0 {
				r.change()
			}
		}
		if empty > 0 {
			return
		}
	}
}

func (r *run) sight(p *place, e *event, found map[uint64][]sight, last map[int]uint64) {
	id, reason, wrong := identify(e)
	if wrong != "" {
		r.ledger.breach("in %s: %s", p.name, wrong)
		return
	}
	found[id] = append(found[id], sight{p, reason})
	m := r.ledger.messages[id]
	if m == nil || m.home != p {
		return
	}
	if id < last[m.from] {
		r.ledger.breach("out of order in %s: after %d comes %v", p.name, last[m.from], m)
	}
	last[m.from] = id
}

// body is what a message has, and no other.
func body(id uint64, size int) []byte {
	text := "message " + strconv.FormatUint(id, 10) + " "
	b := []byte(strings.Repeat(text, size/len(text)+1))
	return b[:max(size, len(text))]
}

// identify tells which message it is, of what it died, and what is wrong with it.
func identify(e *event) (id uint64, reason, wrong string) {
	id, err := strconv.ParseUint(e.props.MessageID, 10, 64)
	if err != nil || string(e.body) != string(body(id, len(e.body))) {
		return id, "", fmt.Sprintf("message %q is damaged: %d bytes, %.40q", e.props.MessageID, len(e.body), e.body)
	}
	deaths, _ := e.props.Headers.Lookup("x-death")
	list, _ := deaths.(amqp.Array)
	if len(list) == 0 {
		return id, "", ""
	}
	first, _ := list[0].(amqp.Table)
	why, _ := first.Lookup("reason")
	reason, _ = why.(string)
	return id, reason, ""
}

// finish ends the broker in one of several ways, and starts it again.
func (r *run) finish() {
	switch n := r.random.IntN(12); {
	case n == 0:
		r.stop()
	case n < 3:
		r.ledger.counts.Kills++
		r.closeBooks()
		r.fs = r.fs.Kill()
		r.broker.abandon()
	default:
		r.ledger.counts.PowerLosses++
		r.goOnUntilDark()
		r.cutPower()
	}
	time.Sleep(time.Duration(r.random.IntN(200)) * time.Millisecond)
	r.boot()
}

// goOnUntilDark may have the power go while all are at work.
func (r *run) goOnUntilDark() {
	if !r.disk.quick && r.random.IntN(2) == 0 {
		return
	}
	r.fs.CutPower(r.random.IntN(60))
	for range 300 {
		if r.disk.isDark() || r.broken() {
			return
		}
		r.act(2)
		r.step()
	}
}

// closeBooks notes what is on the disk for good.
func (r *run) closeBooks() {
	reached := map[uint32]uint64{}
	for shard := range uint32(r.shards + 1) {
		upTo, files := r.disk.durable(shard)
		if reached[shard] = upTo; files > 2 {
			r.ledger.breach("%d files of shard %d have not been synced", files, shard)
		}
	}
	r.ledger.end(reached)
	for _, p := range r.places {
		if p.over(r.broker.clock()) {
			p.ended = true
			r.emptied(p)
		}
	}
}

// emptied lets the messages of a queue be gone, the lease of which may have run out: that empties it first, and it may be there yet.
func (r *run) emptied(p *place) {
	for _, m := range r.ledger.messages {
		m.excused = m.excused || m.home == p && m.number == p.number && !r.bury
	}
}

// cutPower turns the power off. Of what the disk is at some may happen yet, and one thing halfway.
func (r *run) cutPower() {
	for r.disk.pending() > 0 && r.random.IntN(3) == 0 {
		r.change()
		synctest.Wait()
	}
	r.closeBooks()
	if !r.disk.isDark() && r.disk.pending() > 0 && r.random.IntN(2) == 0 {
		r.fs.CutPower(0)
		r.broker.over = true
		r.trace("cut %s", r.disk.let(r.random.IntN))
		synctest.Wait()
	}
	r.fs = r.fs.LosePower()
	r.trace("power lost")
	r.broker.abandon()
	r.ledger.powerLost(r.places)
}

// stop ends the broker in good order.
func (r *run) stop() {
	r.ledger.counts.Stops++
	r.broker.over = true
	r.fs.Inject(nil)
	var late []*client // that wait for a disk that is full
	for _, c := range r.broker.clients {
		for n := 0; n < 1000 && !c.calm(); n++ {
			r.calmDown()
		}
		if !c.calm() {
			late = append(late, c)
			continue
		}
		c.leave(r.broker.clock())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		defer close(done)
		done <- r.broker.store.Close(ctx)
		for _, c := range late {
			c.await()
			c.leave(r.broker.clock())
		}
	}()
	for {
		synctest.Wait()
		select {
		case err, more := <-done:
			if err != nil && !r.ailing {
				r.ledger.breach("the broker does not end well: %v", err)
			}
			if more {
				continue
			}
			r.closeBooks()
			r.fs = r.fs.Kill()
			return
		default:
		}
		if r.disk.pending() == 0 {
			time.Sleep(time.Millisecond)
			continue
		}
		r.change()
	}
}

func (r *run) calmDown() {
	synctest.Wait()
	if r.disk.pending() > 0 {
		r.change()
		return
	}
	time.Sleep(time.Millisecond)
}

// drain lets everything die that is to die, and sees to it that what is left stays as it is through a proper end.
func (r *run) drain() {
	r.dismiss()
	for range 20 {
		r.settle()
		time.Sleep(50 * time.Millisecond)
	}
	r.census()
	if r.broken() {
		return
	}
	r.stop()
	r.boot()
}

// dismiss has all clients leave.
func (r *run) dismiss() {
	r.settle()
	for _, c := range r.broker.clients {
		c.leave(r.broker.clock())
	}
	r.broker.clients = nil
	for _, p := range r.places {
		if p.busy > 0 {
			p.busy, p.used = 0, r.broker.clock()
		}
	}
	for _, m := range r.ledger.messages {
		m.holder = nil
	}
	r.settle()
}
