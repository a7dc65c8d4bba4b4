package wasm

import (
	"encoding/binary"
	"math"

	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// callReason is the occasion on which a policy is called about messages. It selects the hook, the reason in the records, and the effect
// of the verdicts.
type callReason uint8

const (
	atEnqueue callReason = iota // the messages are about to be enqueued
	atDue
	atHead
	atRequeue
	atChange // they are queued, and their deadlines are recomputed
)

var (
	hooksOf = [...]abi.Hook{atEnqueue: abi.OnEnqueue, atDue: abi.OnDeadline, atHead: abi.OnHead, atRequeue: abi.OnRequeue, atChange: abi.OnEnqueue}
	whyOf   = [...]byte{atEnqueue: abi.WhyEnqueue, atDue: abi.WhyDeadline, atHead: abi.WhyHead, atRequeue: abi.WhyRequeue, atChange: abi.WhyEnqueue}
)

// call is a call of a policy about some messages of a queue.
type call struct {
	*binding
	at  callReason
	now hook.Instant
	ms  []hook.Message
	vs  []hook.Verdict

	shadowing bool     // the policy is a shadow
	attempt   *attempt // set if the messages' earlier verdicts are in doubt, or missing; records how the call ends
	digest    uint64   // of the module; see [hook.Verdict]
}

// slice returns the call for some of the messages.
func (c *call) slice(from, to int) call {
	p := *c
	p.ms, p.vs = c.ms[from:to], c.vs[from:to]
	return p
}

// ask calls a version, with as many calls of the guest as needed.
func (v *version) ask(c *call) {
	c.digest = v.digest
	switch h := hooksOf[c.at]; {
	case v.hooks.has(h):
		v.askBatches(h, c)
	case h == abi.OnEnqueue && v.hooks.has(abi.Deadline):
		v.askEach(c)
	default:
		for i := range c.ms {
			c.noOpinion(i)
		}
	}
}

func (v *version) askBatches(h abi.Hook, c *call) {
	var r fuelBudget
	if len(c.ms) <= v.capacity {
		v.askBatch(h, c, &r)
		return
	}
	for from := 0; from < len(c.ms); from += v.capacity {
		part := c.slice(from, min(from+v.capacity, len(c.ms)))
		v.askBatch(h, &part, &r)
	}
}

// fuelBudget is the fuel that several calls with few messages share. Without it, a module that takes few messages at once would get
// a full budget for each of these calls.
type fuelBudget struct {
	fuel     int64
	messages int // number of messages for which it is left
}

// minBudgeted is the smallest number of messages for which there is a budget.
const minBudgeted = 64

// next returns the fuel for a call with n messages.
func (r *fuelBudget) next(v *version, n int) int64 {
	if r.messages < n {
		r.messages = max(n, minBudgeted)
		r.fuel = v.budget(r.messages)
	}
	return r.fuel
}

// spend records the fuel that is left after a call.
func (r *fuelBudget) spend(left int64, n int) {
	r.fuel = left
	r.messages -= n
}

// borrow returns an instance for a call; nil if the guest cannot be called now.
func (v *version) borrow(now hook.Instant) *instance {
	if v.since.Load() == 0 {
		v.since.CompareAndSwap(0, int64(now))
	}
	if !v.breaker.allows(now) {
		return nil
	}
	return v.pool.take(now)
}

// unanswered handles a call without an instance. If another version has replaced v, it calls that one.
func (v *version) unanswered(h abi.Hook, c *call) {
	if next := v.successor(); next != nil {
		again := *c // a copy, so that c and every caller's call stay off the heap
		next.ask(&again)
		return
	}
	if c.attempt != nil { // the earlier failure has been counted
		c.attempt.unavailable = true
	} else {
		v.stats.failures[unavailable].Add(uint64(len(c.ms)))
	}
	c.failed(v)
	c.watch(v, h).report(c, v, unavailable, "it is not asked: it fails too often, or every instance is at work or broken")
}

// successor returns the version that has replaced v; nil if none has.
func (v *version) successor() *version {
	if next := v.policy.active.Load(); next != v {
		return next
	}
	return nil
}

// askBatch makes one call of the guest.
func (v *version) askBatch(h abi.Hook, c *call, r *fuelBudget) {
	in := v.borrow(c.now)
	if in == nil {
		v.unanswered(h, c)
		return
	}
	w := c.watch(v, h)
	in.begin(c, w)
	f := in.batchCall(h, c, r)
	in.end()
	if f != nil {
		c.undecided(v, len(c.ms))
		v.giveUp(in, c, f)
		c.fallBack(v)
		w.report(c, v, f.kind, f.brief())
		return
	}
	bad := in.applyVerdicts(c, w)
	w.report(c, v, 0, "")
	v.giveBack(in)
	if bad.count > 0 {
		v.countInvalid(c, bad)
	}
}

// giveBack ends a successful call.
func (v *version) giveBack(in *instance) {
	v.breaker.success(v)
	v.pool.put(in)
}

// giveUp ends a failed call. An instance that reported the failure itself may be used again; one that trapped must not. If the call
// repeats one that has failed before, its failure has no effect on calls about other messages: it neither delays the next instance nor
// counts for the breaker. A delay would prevent other calls, whose failures count for the breaker.
func (v *version) giveUp(in *instance, c *call, f *failure) {
	switch {
	case f.kind == reportedFailure:
		v.pool.restore(in)
	case c.attempt != nil:
		v.pool.lose(in)
	default:
		v.pool.discard(in, c.now)
	}
	v.failed(c.now, f)
	if c.attempt != nil {
		c.attempt.failed = true
		v.retries.failure()
		return
	}
	v.breaker.failure(c.now, v)
}

// begin gives host functions access to the call's messages; end removes it.
func (in *instance) begin(c *call, w *watch) {
	in.batch, in.queue, in.watch, in.complaint = c.ms, c.queue, w, ""
	in.holds = in.holds[:0]
	in.pending.messages += uint64(len(c.ms))
}

func (in *instance) end() { in.batch, in.queue, in.watch = nil, nil, nil }

// batchCall writes the records and runs the guest's hook.
func (in *instance) batchCall(h abi.Hook, c *call, r *fuelBudget) *failure {
	n := len(c.ms)
	b, ok := in.memory.Read(in.buffer, uint32(n*(abi.RecordSize+abi.VerdictSize)))
	if !ok {
		return &failure{kind: outOfMemory, what: h.String(), reason: "its buffer does not lie in its memory any more"}
	}
	for i := range c.ms {
		c.writeRecord(b[i*abi.RecordSize:][:abi.RecordSize:abi.RecordSize], &c.ms[i])
	}
	c.presetVerdicts(b[:n*abi.RecordSize], b[n*abi.RecordSize:])
	in.stack[0], in.stack[1] = uint64(millis(c.now)), uint64(n)
	if f := in.run(h, c.now, r, n); f != nil {
		return f
	}
	if result := int32(in.stack[0]); result < 0 {
		return &failure{kind: reportedFailure, what: h.String(), reason: in.failureText(result)}
	}
	return nil
}

// millis converts an instant for guests.
func millis(t hook.Instant) int64 {
	if t == 0 {
		return -1
	}
	return int64(t) / 1_000_000
}

// writeRecord encodes a message for the guest.
func (c *call) writeRecord(b []byte, m *hook.Message) {
	_ = b[abi.RecordSize-1]
	le := binary.LittleEndian
	expiration := m.Expiration
	if c.at != atEnqueue {
		expiration = c.expiration(m)
	}
	le.PutUint64(b[abi.RecordEnqueued:], uint64(millis(m.Enqueued)))
	le.PutUint64(b[abi.RecordExpiration:], uint64(expiration.N()))
	le.PutUint64(b[abi.RecordQueueTTL:], uint64(c.ttl.N()))
	le.PutUint64(b[abi.RecordDeadline:], uint64(millis(m.Deadline)))
	le.PutUint64(b[abi.RecordState:], uint64(m.State))
	le.PutUint32(b[abi.RecordSizeOf:], uint32(m.Size))
	le.PutUint32(b[abi.RecordDeliveries:], m.Deliveries)
	le.PutUint32(b[abi.RecordDeaths:], uint32(m.Deaths()))
	le.PutUint64(b[abi.RecordQueue:], uint64(m.Priority)<<32|uint64(c.flags(m))<<40|uint64(whyOf[c.at])<<48)
}

// flags returns the flags of a message's record.
func (c *call) flags(m *hook.Message) byte {
	flags := c.dlx
	if m.Redelivered {
		flags |= abi.FlagRedelivered
	}
	if m.Persistent {
		flags |= abi.FlagPersistent
	}
	return flags
}

// expiration returns the publisher's expiration. The broker fills it in for messages that are enqueued or restamped; otherwise it is
// read from the message.
func (c *call) expiration(m *hook.Message) hook.Limit {
	if c.at == atEnqueue || c.at == atChange || m.Expiration.Set() {
		return m.Expiration
	}
	if n, ok := hook.WholeText(m.Part(hook.PartExpiration)); ok {
		return hook.LimitOf(n)
	}
	return 0
}

// presetVerdicts sets all verdicts to no opinion, so that a guest may skip a message. Messages that already have a deadline get it preset
// as until, so that a bare keep leaves it unchanged.
func (c *call) presetVerdicts(records, verdicts []byte) {
	le := binary.LittleEndian
	clear(verdicts)
	for i := range c.ms {
		b := verdicts[i*abi.VerdictSize:][:abi.VerdictSize]
		until := uint64(minusOne64)
		if c.at == atHead || c.at == atRequeue {
			until = le.Uint64(records[i*abi.RecordSize+abi.RecordDeadline:])
		}
		le.PutUint32(b, abi.NoOpinion)
		le.PutUint64(b[abi.VerdictUntil:], until)
	}
}

// minusOne64 is -1 as an i64.
const minusOne64 = 1<<64 - 1

// failureText returns the error text for a call whose guest returned the negative number r.
func (in *instance) failureText(r int32) string {
	if in.complaint == "" {
		return "it returned " + decimal(r) + ", and does not say why"
	}
	return "it returned " + decimal(r) + ": " + in.complaint
}

// applyVerdicts applies the guest's verdicts.
func (in *instance) applyVerdicts(c *call, w *watch) (bad mistakes) {
	n := len(c.ms)
	b, ok := in.memory.Read(in.buffer+uint32(n*abi.RecordSize), uint32(n*abi.VerdictSize))
	if !ok { // memory does not shrink
		panic("a buffer that was there has gone")
	}
	plain := c.at == atEnqueue && len(in.holds) == 0
	for i := range c.ms {
		if plain && c.applyKeep(i, b[i*abi.VerdictSize:]) {
			continue
		}
		a := readAnswer(b[i*abi.VerdictSize:])
		a.hold = in.held(i)
		if what := c.decide(i, &a, in); what != fine {
			bad.add(what, &a, i)
			w.failed(i, what, &a)
			c.failedOne(in.version, i)
		}
	}
	in.entered(c, n-bad.count)
	return bad
}

// entered counts enqueued messages about which the instance decided.
func (in *instance) entered(c *call, n int) {
	if c.at == atEnqueue {
		in.pending.entered += uint64(n)
	}
}

// applyKeep is a fast path of apply for the most frequent verdict: keep an enqueued message until a time. It reports whether it applied
// the verdict.
func (c *call) applyKeep(i int, b []byte) bool {
	le := binary.LittleEndian
	until := int64(le.Uint64(b[abi.VerdictUntil:]))
	if le.Uint64(b[abi.VerdictAction:]) != abi.Keep || until < abi.Earliest || until > math.MaxInt64/1_000_000-1 || c.vs[i].Deadline != 0 {
		return false
	}
	c.vs[i].Deadline = hook.Instant(until)*1_000_000 + c.now%1_000_000
	guest.SetDigest(&c.vs[i], c.digest)
	return true
}

// askEach calls the hook deadline for each message.
func (v *version) askEach(c *call) {
	in := v.borrow(c.now)
	if in == nil {
		v.unanswered(abi.Deadline, c)
		return
	}
	var bad mistakes
	var r fuelBudget
	w := c.watch(v, abi.Deadline)
	in.begin(c, w)
	for i := range c.ms {
		in.batch, in.holds = c.ms[i:i+1], in.holds[:0]
		if w != nil {
			w.next(v)
		}
		in.scalarParams(c, &c.ms[i])
		if f := in.run(abi.Deadline, c.now, &r, 1); f != nil {
			in.end()
			rest := c.slice(i, len(c.ms))
			rest.undecided(v, len(rest.ms))
			v.giveUp(in, c, f)
			rest.fallBack(v)
			w.report(&rest, v, f.kind, f.brief())
			return
		}
		a := verdict{action: abi.Keep, until: int64(in.stack[0]), hold: in.held(0)}
		if what := c.decide(i, &a, in); what != fine {
			bad.add(what, &a, i)
			w.failed(0, what, &a)
			c.failedOne(v, i)
		} else {
			in.entered(c, 1)
		}
		if w != nil {
			one := c.slice(i, i+1)
			w.report(&one, v, 0, "")
		}
	}
	in.end()
	v.giveBack(in)
	if bad.count > 0 {
		v.countInvalid(c, bad)
	}
}

// scalarParams sets the parameters of the hook deadline. If a policy is called again about a message, now is the time when the message
// entered: otherwise its TTL would start again.
func (in *instance) scalarParams(c *call, m *hook.Message) {
	in.stack[0] = uint64(millis(m.Enqueued))
	in.stack[1] = uint64(c.expiration(m).N())
	in.stack[2] = uint64(c.ttl.N())
	in.stack[3] = uint64(m.Priority)
	in.stack[4] = uint64(m.Deliveries)
	in.stack[5] = uint64(uint32(m.Size))
}
