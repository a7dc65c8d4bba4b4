package queue

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/curfewmq/curfew/core/campaign"
	"github.com/curfewmq/curfew/sdk/hook"
)

// holdPair is a durable queue and its model.
type holdPair struct {
	t   *testing.T
	rng *rand.Rand
	q   *Queue
	h   *host
	log *memoryJournal
	m   holdModel
	now hook.Instant
	ids uint64
}

func newHoldPair(t *testing.T, kind string, levels int, seed uint64) *holdPair {
	t.Helper()
	p := &holdPair{t: t, rng: rand.New(rand.NewPCG(seed, 1)), now: second}
	p.m = holdModel{limit: -1, nacksWait: seed%2 == 0, gone: map[hook.Reason]int{}}
	hooks := ttlAndExpiration(hook.ScanAnywhere, 0, false)
	hooks.DeadlineFromReady = true
	hooks.OnReturn = func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		for i := range ms {
			if p.m.nacksWait || ms[i].Return == hook.ReturnFailed {
				vs[i].Hold = now.AddMillis(backOff * int64(ms[i].Returns))
			}
		}
	}
	if seed%3 > 0 {
		p.m.most, p.m.drop = 4, seed%3 == 2
		hooks.ReleaseLength, hooks.DropReleased = hook.LimitOf(4), p.m.drop
	}
	profile := &Profile{Kind: kind, Levels: levels, DeliveryLimit: 2}
	if kind == Quorum {
		p.m.limit = 2
	}
	p.q, p.h, p.log = durable(t, Config{Profile: profile}, hooks)
	p.q.host = evenTaker{p.h}
	return p
}

// evenTaker is a host whose target of redrives takes messages with even numbers.
type evenTaker struct{ *host }

func (e evenTaker) DeadLetter(from *Config, now hook.Instant, ds []DeadLetter, t Tracking) {
	if ds[0].Reason != hook.ReasonRedriven {
		e.host.DeadLetter(from, now, ds, t)
		return
	}
	for i := range ds {
		ds[i].Sent = 1 - int(idOf(ds[i].Body)%2)
	}
	t.Expect(0, ds)
}

// TestCampaignHoldsAgreeWithTheModel plays random clients and times: after each step held, ready,
// unacknowledged and gone are what was published, no message was delivered early, and none
// is anywhere else than in the model. Restarts come in the middle.
func TestCampaignHoldsAgreeWithTheModel(t *testing.T) {
	for _, kind := range []string{Classic, Quorum} {
		for levels := range 3 {
			for seed := range campaign.Size(t, "SIMULATION_SEEDS", 0, 6) {
				t.Run(fmt.Sprintf("%s/%d/%d", kind, levels, seed), func(t *testing.T) {
					p := newHoldPair(t, kind, levels, seed)
					for range 10 {
						for range 60 {
							p.step()
						}
						p.restart()
					}
				})
			}
		}
	}
}

func (p *holdPair) step() {
	p.t.Helper()
	p.now = p.now.AddMillis(p.rng.Int64N(400))
	if p.rng.IntN(50) == 0 {
		p.now = p.now.AddMillis(10_000) // a machine that slept
	}
	p.tick()
	p.compare()
	switch p.rng.IntN(15) {
	case 0, 1, 2, 3:
		p.publish(1 + p.rng.IntN(5))
	case 4, 5, 6:
		p.get()
	case 7, 8:
		p.settle()
	case 9:
		p.move()
	case 10:
		p.cancel()
	case 11:
		p.startRedrive()
	case 12, 13:
		if p.rng.IntN(2) == 0 {
			p.finishRedrive()
		} else if p.rng.IntN(4) == 0 {
			p.relocate()
		}
	default:
		if p.rng.IntN(5) == 0 && p.q.contents != nil {
			p.q.beginRestamping(true, false) // what follows comes before the index of deadlines is complete again
			p.move()
			p.settle()
		}
		if p.rng.IntN(10) == 0 {
			p.purge()
		}
	}
	p.tick()
	p.compare()
}

// tick does what the mailbox's timer does.
func (p *holdPair) tick() {
	for range 1000 {
		next := p.q.next()
		if next == 0 || next > p.now {
			break
		}
		p.q.tick(p.now)
		p.m.advance(p.now)
		p.noteMoving()
	}
	p.m.advance(p.now)
	p.noteMoving()
}

// noteMoving adopts which messages a redrive has taken: they were ready.
func (p *holdPair) noteMoving() {
	p.t.Helper()
	if p.q.redrive == nil {
		return
	}
	for _, part := range p.q.redrive.parts {
		for i := range part.messages {
			r := part.messages[i].ref
			x := p.m.find(idOf(p.q.store.read(*p.q.at(r).slot()).body))
			if x.state != stateReady && x.state != stateMoving {
				p.t.Fatalf("message %d moves, which was not ready but %x", x.id, x.state)
			}
			x.state, x.ref = stateMoving, r
		}
	}
}

func (p *holdPair) startRedrive() {
	target := &RedriveTarget{Target: hook.Target{Key: "to", HasKey: true}}
	_, err := p.q.StartRedrive(p.now, RedriveOptions{
		Choose: func(m *Stored) (*RedriveTarget, RedriveFailure) {
			if idOf(m.Body)%5 == 0 {
				return nil, NotChosen
			}
			return target, NotChosen
		},
		Most: p.rng.IntN(10), Total: -1,
	})
	if err != nil && !errors.Is(err, errRedriving) {
		p.t.Fatal(err)
	}
}

// finishRedrive has the answers come of what is under way.
func (p *holdPair) finishRedrive() {
	p.noteMoving()
	inbox := p.q.mailbox.inbox
	p.q.mailbox.inbox = nil
	if p.rng.IntN(3) == 0 && p.q.redrive != nil {
		p.q.CancelRedrive(p.now, p.q.redrive)
	}
	for i := range inbox {
		moved := inbox[i].transfer.messages
		for k := range moved {
			r := moved[k].ref
			i := slices.IndexFunc(p.m.list, func(x holdModelMessage) bool { return x.state == stateMoving && x.ref == r })
			if x := &p.m.list[i]; x.id%2 == 0 {
				p.m.remove(x.id, hook.ReasonRedriven)
			} else {
				x.state = stateReady
			}
		}
		inbox[i].run(p.q, p.now)
	}
}

// relocate has messages written again, and trims the journal.
func (p *holdPair) relocate() {
	p.q.commit(nil)
	for upTo := p.log.extent - 1; p.q.Relocate(upTo); {
		continue
	}
	p.log.trim()
}

func (p *holdPair) publish(n int) {
	b := NewBatch()
	released := p.rng.IntN(4) == 0 // by an exchange
	waits := released && p.m.most > 0 && !p.m.drop && (p.m.ready()+n > p.m.most || p.m.nextHeld(p.now) != nil)
	for range n {
		p.ids++
		m := message(p.ids, 8+p.rng.IntN(100))
		m.Flags, m.Priority = Persistent, uint8(p.rng.IntN(4))
		x := holdModelMessage{id: p.ids, level: p.q.level(m.Priority), seq: p.m.next, state: stateReady}
		p.m.next++
		m.Released = released
		switch kind := p.rng.IntN(4); {
		case waits:
			x.until = p.now + 1
		case released:
		case kind == 0:
			x.until = p.now.AddMillis(p.rng.Int64N(5000) - 500)
			m.Wait = WaitUntil(x.until)
		case kind == 1:
			x.until = p.now.AddMillis(1 + p.rng.Int64N(5000))
			m.Wait = WaitFor(x.until.Sub(p.now))
		}
		if p.rng.IntN(3) == 0 {
			ms := 1 + p.rng.Int64N(3000)
			setExpiration(&m, ms)
			x.deadline = p.now.AddMillis(ms)
		}
		if x.until > p.now {
			x.state, x.unready = stateHeld, true
			if x.deadline != 0 {
				x.deadline = x.deadline.Add(x.until.Sub(p.now))
			}
		}
		p.m.list = append(p.m.list, x)
		b.Messages = append(b.Messages, m)
	}
	if !released && p.rng.IntN(3) == 0 {
		p.transact(&Part{Batch: b})
	} else {
		p.q.enqueue(p.now, b)
	}
	p.q.HeldFrom(0, 0, func(h *Held) bool {
		p.m.find(idOf(h.Body)).ref = h.Ref
		return true
	})
}

// transact carries out a part of a transaction.
func (p *holdPair) transact(part *Part) {
	t := &transaction{}
	m := &participant{Queue: p.q, part: part}
	m.take(p.now, t)
	t.gather(p.q)
	for _, c := range t.commits {
		c.journal.Commit(c.ops, c.live, nil)
	}
	m.goOn(p.now)
}

func (p *holdPair) get() {
	want := p.m.first()
	noAck := p.rng.IntN(4) == 0
	var got Delivery
	ok := p.q.Get(p.now, &Consumer{NoAck: noAck, Sink: &sink{}}, func(d Delivery, _ int) {
		got = d
		got.Body = slices.Clone(d.Body)
	})
	if ok != (want != nil) || ok && idOf(got.Body) != want.id {
		p.t.Fatalf("got a message: %t, %v, want %+v", ok, got, want)
	}
	if !ok {
		return
	}
	if want.until > p.now {
		p.t.Fatalf("message %d is early by %v", want.id, want.until.Sub(p.now))
	}
	if again := want.failed+want.nacks > 0; again && !got.Redelivered {
		p.t.Fatalf("message %d came back %d times, and is not redelivered", want.id, want.failed+want.nacks)
	}
	if want.restarted && !got.Redelivered {
		p.t.Fatalf("message %d was delivered before a restart, and is not redelivered", want.id)
	}
	if got.Redelivered && !want.delivered && !want.passed {
		p.t.Fatalf("message %d is redelivered, and was never delivered", want.id)
	}
	want.state, want.ref, want.delivered = stateUnacked, got.Ref, true
	if noAck {
		p.m.remove(want.id, hook.ReasonNone)
	}
}

// any returns a message in a state; nil if there is none.
func (p *holdPair) any(state slotFlags) *holdModelMessage {
	var all []*holdModelMessage
	for i := range p.m.list {
		if p.m.list[i].state == state {
			all = append(all, &p.m.list[i])
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[p.rng.IntN(len(all))]
}

func (p *holdPair) settle() {
	x := p.any(stateUnacked)
	if x == nil {
		return
	}
	kind := SettleKind(p.rng.IntN(int(Return) + 1))
	item := []PendingAck{{Ref: x.ref}}
	switch kind {
	case Ack:
		p.m.remove(x.id, hook.ReasonNone)
	case Reject:
		p.m.remove(x.id, hook.ReasonRejected)
	case Requeue, Return:
		p.m.comeBack(p.now, x, kind)
	}
	if p.rng.IntN(3) == 0 {
		p.transact(&Part{Settlements: []Settlement{{kind, item}}})
	} else {
		p.q.settleAll(p.now, kind, item)
	}
	p.m.advance(p.now)
}

func (p *holdPair) move() {
	x := p.any(stateHeld)
	if x == nil {
		return
	}
	until := max(p.now.AddMillis(p.rng.Int64N(5000)-1000), p.now)
	if !p.q.MoveHeld(p.now, x.ref, until) {
		p.t.Fatalf("message %d, %v, is not held", x.id, x.ref)
	}
	if x.unready && x.deadline != 0 {
		x.deadline = x.deadline.Add(until.Sub(x.until))
	}
	x.until = until
	if until <= p.now {
		p.m.release(p.now, x)
	}
}

func (p *holdPair) cancel() {
	x := p.any(stateHeld)
	if x == nil {
		return
	}
	if n := p.q.CancelHeld(p.now, x.ref); n != 1 {
		p.t.Fatalf("cancelled %d messages", n)
	}
	p.m.remove(x.id, hook.ReasonCancelled)
}

// purge removes what is ready.
func (p *holdPair) purge() {
	p.q.Purge(p.now)
	p.m.list = slices.DeleteFunc(p.m.list, func(x holdModelMessage) bool { return x.state == stateReady })
}

// restart makes the queue anew from its journal, some of which was written again before,
// after a while. Now and then the clock is set back meanwhile.
func (p *holdPair) restart() {
	p.t.Helper()
	p.q.journalDelivered()
	p.q.commit(nil)
	if p.rng.IntN(2) == 0 {
		p.relocate()
	}
	back := p.rng.IntN(4) == 0
	p.now = p.now.AddMillis(p.rng.Int64N(3000))
	if back {
		p.now = p.now.AddMillis(-6000)
	}
	now := p.now
	s := &Mailbox{broker: testBroker, clock: func() hook.Instant { return now }, running: true}
	s.config.Store(p.q.cfg)
	s.queue = Queue{essentials: essentials{cfg: p.q.cfg, buf: new(turnBuffers)}, host: p.q.host, mailbox: s, hooks: p.q.hooks}
	p.log.used = map[uint32]int64{}
	p.log.fill(p.t, s)
	p.q = &s.queue
	for i := range p.m.list {
		x := &p.m.list[i]
		if x.state == stateUnacked || x.state == stateMoving {
			x.state = stateReady
		}
	}
	p.m.paused = 0
	if back {
		p.heldAgain()
	}
	for i := range p.m.list {
		x := &p.m.list[i]
		x.restarted = x.restarted || x.delivered
		x.passed = x.passed || x.state == stateReady || x.until <= now
	}
	p.m.gone = map[hook.Reason]int{} // counters begin anew
	p.tick()
	p.q.commit(nil)
	p.compare()
}

// heldAgain adopts what a clock that was set back has done: what was held because it came back may be held
// once more, until the time that it was held for, and everything else is as it was.
func (p *holdPair) heldAgain() {
	p.q.HeldFrom(0, 0, func(h *Held) bool {
		if x := p.m.find(idOf(h.Body)); x.state == stateReady && h.Until == x.until {
			x.state, x.ref = stateHeld, h.Ref
		}
		return true
	})
	for i := range p.m.list {
		if x := &p.m.list[i]; x.state == stateReady {
			x.until = 0 // it was released before
		}
	}
}

func (p *holdPair) compare() {
	p.t.Helper()
	p.q.commit(nil)
	p.log.check(p.t, p.q)
	count := map[slotFlags]int{}
	held := map[uint64]hook.Instant{}
	for _, x := range p.m.list {
		count[x.state]++
		if x.state == stateHeld {
			held[x.id] = x.until
		}
	}
	s := p.q.Stats()
	if s.Ready != count[stateReady] || s.Held != count[stateHeld] || s.Unacked != count[stateUnacked] || s.Discarded != count[stateMoving] {
		p.t.Fatalf("%d ready, %d held, %d unacknowledged, %d moving, want %d, %d, %d, %d", s.Ready, s.Held, s.Unacked, s.Discarded,
			count[stateReady], count[stateHeld], count[stateUnacked], count[stateMoving])
	}
	p.compareEach()
	last := hook.Instant(0)
	p.q.HeldFrom(0, 0, func(h *Held) bool {
		if id := idOf(h.Body); h.Until != held[id] || h.Until < last {
			p.t.Fatalf("message %d is held until %d, behind one until %d, want %d", id, h.Until, last, held[id])
		}
		last = h.Until
		return true
	})
	for _, why := range []hook.Reason{hook.ReasonExpired, hook.ReasonRejected, hook.ReasonDeliveryLimit, hook.ReasonCancelled, hook.ReasonRedriven, hook.ReasonMaxLen} {
		if got := int(s.Dropped[why] + s.DeadLettered[why]); got != p.m.gone[why] {
			p.t.Fatalf("%d left because they are %v, want %d", got, why, p.m.gone[why])
		}
	}
}

// compareEach fails unless the queue knows how often each message came back, and the bytes that are ready are those of the bodies.
func (p *holdPair) compareEach() {
	p.t.Helper()
	if p.q.contents == nil {
		return
	}
	bytes := int64(0)
	for l := range p.q.levels {
		f := &p.q.levels[l]
		for seq, s := f.messageFrom(0); s != nil; seq, s = f.messageFrom(seq + 1) {
			body := p.q.store.read(*s).body
			if s.is(stateReady) {
				bytes += int64(len(body))
			}
			x := p.m.find(idOf(body))
			if failed, nacks := int64(s.returns()), int64(p.q.nacksOf(ref(l, seq))); failed != x.failed || nacks != x.nacks {
				p.t.Fatalf("message %d failed %d times and came back otherwise %d times, want %d and %d", x.id, failed, nacks, x.failed, x.nacks)
			}
		}
	}
	if p.q.readyBytes != bytes {
		p.t.Fatalf("%d bytes are ready, want %d", p.q.readyBytes, bytes)
	}
}
