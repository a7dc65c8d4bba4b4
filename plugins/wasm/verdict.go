package wasm

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// verdict is a guest's decoded verdict.
type verdict struct {
	action, flags uint32
	until, state  int64
	strings       uint32
	exchange, key uint16 // bytes

	hold   int64 // end of the message's hold; see noHold
	latest int64 // the latest allowed value of hold
}

func readAnswer(b []byte) verdict {
	_ = b[abi.VerdictSize-1]
	le := binary.LittleEndian
	return verdict{
		action: le.Uint32(b[abi.VerdictAction:]), flags: le.Uint32(b[abi.VerdictFlags:]),
		until: int64(le.Uint64(b[abi.VerdictUntil:])), state: int64(le.Uint64(b[abi.VerdictState:])),
		strings: le.Uint32(b[abi.VerdictStrings:]), exchange: le.Uint16(b[abi.VerdictExchangeLen:]), key: le.Uint16(b[abi.VerdictKeyLen:]),
	}
}

// mistake is a reason for which a verdict is invalid.
type mistake uint8

const (
	fine mistake = iota
	noAction
	noFlags
	invalidUntil
	invalidHold
	noRoute
	noLater
	noStrings
	longStrings
	badStrings
)

// mistakes counts the invalid verdicts of a call and describes the first one.
type mistakes struct {
	count, index int
	what         mistake
	verdict      verdict
}

func (m *mistakes) add(what mistake, v *verdict, index int) {
	if m.count == 0 {
		m.what, m.verdict, m.index = what, *v, index
	}
	m.count++
}

func (m mistakes) String() string {
	v := m.verdict
	switch m.what {
	case noAction:
		return fmt.Sprintf("there is no action %d", v.action)
	case noFlags:
		return fmt.Sprintf("there are no flags %#x", v.flags)
	case invalidUntil:
		return fmt.Sprintf("until %d is no time in milliseconds since 1970; accepted are -1 and %d to %d", v.until, int64(abi.Earliest), int64(abi.Latest))
	case invalidHold:
		return fmt.Sprintf("hold until %d is no time in milliseconds since 1970, or too late; accepted are -1, 0 and %d to %d", v.hold, int64(abi.Earliest), v.latest)
	case noRoute:
		return "to dead-letter a message needs the grant route"
	case noLater:
		return "to dead-letter a message later needs the hook on_deadline"
	case noStrings:
		return fmt.Sprintf("exchange and routing key, %d bytes at %#x, are not in its memory", int(v.exchange)+int(v.key), v.strings)
	case longStrings:
		return fmt.Sprintf("exchange and routing key have %d and %d bytes; accepted are up to %d each", v.exchange, v.key, abi.MaxName)
	case badStrings:
		return "exchange or routing key is not UTF-8"
	}
	return ""
}

// countInvalid counts and logs invalid verdicts.
func (v *version) countInvalid(c *call, bad mistakes) {
	v.stats.failures[invalidVerdict].Add(uint64(bad.count))
	f := &failure{kind: invalidVerdict, what: hooksOf[c.at].String(), reason: fmt.Sprintf("verdict %d of %d: %s", bad.index, len(c.ms), bad.String())}
	v.stats.last.Store(f)
	v.policy.report.failed(c.now, v.module.Digest, f)
}

func decimal(n int32) string { return strconv.Itoa(int(n)) }

// retryMillis is the delay until the policy is called again about a message that it keeps.
const retryMillis = 1000

// apply applies a guest's verdict to the broker's. An invalid verdict changes nothing.
func (c *call) apply(i int, a *verdict, in *instance) mistake {
	if a.flags&^(abi.SetState|abi.AskAtHead) != 0 {
		return noFlags
	}
	m, v := &c.ms[i], &c.vs[i]
	switch a.action {
	case abi.Keep:
		if a.until != -1 && !plausible(a.until) {
			return invalidUntil
		}
		c.keep(i, a)
	case abi.NoOpinion:
		c.noOpinion(i)
	case abi.Requeue:
		if !atOnceOrNever(a.until) && !plausible(a.until) {
			return invalidUntil
		}
		c.postpone(v, max(c.instant(m, a.until), c.now.AddMillis(retryMillis)))
	case abi.Expire:
		c.remove(v, hook.Drop, false, nil)
	case abi.Drop:
		c.remove(v, hook.Drop, true, nil)
	case abi.DeadLetter:
		if what := c.deadLetter(i, a, in); what != fine {
			return what
		}
	default:
		return noAction
	}
	if a.flags&abi.SetState != 0 {
		v.State = a.state
	}
	v.AskHead = v.AskHead || a.flags&abi.AskAtHead != 0
	return fine
}

// atOnceOrNever reports whether a time is 0 or -1, which are not points in time.
func atOnceOrNever(until int64) bool { return until == -1 || until == 0 }

// plausible reports whether a guest's time is in the accepted range.
func plausible(until int64) bool { return until >= abi.Earliest && until <= abi.Latest }

// instant converts a guest's time; 0 means none. Guests get times rounded down to
// milliseconds. The remainder is added back, so that nothing happens early.
func (c *call) instant(m *hook.Message, until int64) hook.Instant {
	if atOnceOrNever(until) {
		return 0
	}
	const ms = hook.Instant(time.Millisecond)
	return hook.Instant(0).AddMillis(until).Add(time.Duration(max(c.now%ms, m.Enqueued%ms)))
}

// keep keeps a message until a time. In on_deadline and on_head, a time in the past expires the message.
func (c *call) keep(i int, a *verdict) {
	m, v := &c.ms[i], &c.vs[i]
	t := c.instant(m, a.until)
	if m.Deadline != 0 && a.until == millis(m.Deadline) {
		t = m.Deadline // unchanged
	}
	if (c.at == atDue || c.at == atHead) && t != 0 && t <= c.now {
		c.remove(v, hook.Drop, false, nil)
		return
	}
	if c.at == atEnqueue && v.Deadline != 0 && (t == 0 || t > v.Deadline) {
		return // a previous plugin has set an earlier deadline
	}
	c.set(v, t)
}

// set sets the deadline t that the guest asked for; 0 means none. Unless the guest left the deadline unchanged, it is marked with the
// module's digest.
func (c *call) set(v *hook.Verdict, t hook.Instant) {
	switch {
	case t == 0:
		guest.SetDigest(v, 0)
	case t != v.Deadline || c.at == atEnqueue || c.at == atChange:
		guest.SetDigest(v, c.digest)
	}
	v.Deadline = t
}

// postpone sets the deadline t, unless a previous plugin has set an earlier one.
func (c *call) postpone(v *hook.Verdict, t hook.Instant) {
	if c.sooner(v, t) {
		c.set(v, t)
	}
}

// sooner reports whether t may replace a deadline that a previous plugin may have set.
func (c *call) sooner(v *hook.Verdict, t hook.Instant) bool {
	return c.at != atEnqueue || v.Deadline == 0 || t < v.Deadline
}

// remove removes a message. A requeued or restamped message cannot be removed: it becomes due, and the policy is called again.
func (c *call) remove(v *hook.Verdict, action hook.Action, final bool, to *hook.Target) {
	if c.at == atRequeue || c.at == atChange {
		c.set(v, c.now)
		return
	}
	v.Action, v.Reason, v.Final, v.Target = action, hook.ReasonExpired, final, to
}

// noOpinion decides as the broker would without a policy.
func (c *call) noOpinion(i int) {
	m, v := &c.ms[i], &c.vs[i]
	switch c.at {
	case atEnqueue:
		if t := c.builtin(m); t != 0 && c.sooner(v, t) {
			v.Deadline = t
		}
	case atChange:
		v.Deadline, v.State = c.builtin(m), m.State
		guest.SetDigest(v, 0)
	case atDue:
		c.remove(v, hook.Drop, false, nil)
	}
}

// builtin returns the deadline that a message has without a policy: by the lower of the queue's TTL and the message's expiration.
func (c *call) builtin(m *hook.Message) hook.Instant {
	ttl := c.ttl.Min(c.expiration(m))
	if !ttl.Set() {
		return 0
	}
	return m.Enqueued.AddMillis(ttl.N())
}

// failed decides about all messages by the policy's on-error.
func (c *call) failed(v *version) {
	c.undecided(v, len(c.ms))
	c.fallBack(v)
}

func (c *call) failedOne(ver *version, i int) {
	c.undecided(ver, 1)
	c.fallBackOne(ver, i)
}

// undecided counts n messages that enter or come back while the policy fails. It is called before the breaker counts the failure, because
// the failure may cause a rollback, which then includes the counted messages.
func (c *call) undecided(ver *version, n int) {
	stays := c.at == atEnqueue && ver.options.OnError != Reject || c.at == atRequeue
	if stays && c.attempt == nil && !c.shadowing {
		ver.policy.undecided.Add(uint64(n))
	}
}

// fallBack is failed without the counting.
func (c *call) fallBack(v *version) {
	for i := range c.ms {
		c.fallBackOne(v, i)
	}
}

func (c *call) fallBackOne(ver *version, i int) {
	m, v := &c.ms[i], &c.vs[i]
	switch c.at {
	case atEnqueue:
		c.failedToEnter(ver, i)
	case atRequeue:
		v.Again = !c.shadowing
	case atChange:
		guest.Restore(v, m)
		if c.attempt != nil || guest.Digest(v) == 0 {
			v.Again = true
			guest.SetDigest(v, 0) // the digest of a version that has failed
		}
	case atDue:
		c.failedWhenDue(ver, i)
	}
}

func (c *call) failedToEnter(ver *version, i int) {
	v := &c.vs[i]
	switch ver.options.OnError {
	case Builtin:
		c.noOpinion(i)
	case Reject:
		v.Action = hook.Refuse
	}
	v.Again = !c.shadowing // of a refused message, too: a message that an exchange releases may enter nevertheless
}

// failedWhenDue keeps a due message, because the policy might have kept it, and calls the policy again later. With on-error builtin
// the message expires at the deadline that it would have without a policy.
func (c *call) failedWhenDue(ver *version, i int) {
	v, last := &c.vs[i], hook.Instant(0)
	if ver.options.OnError == Builtin {
		last = c.builtin(&c.ms[i])
	}
	if last != 0 && last <= c.now {
		c.remove(v, hook.Drop, false, nil)
		return
	}
	v.Again, v.Deadline = true, max(c.now.AddMillis(retryMillis), hook.Instant(ver.breaker.until.Load()))
	if last != 0 {
		v.Deadline = min(v.Deadline, last)
	}
}

// destination is the map key of a dead-letter target.
type destination struct{ exchange, key string }

// maxTargets bounds the targets that an instance caches.
const maxTargets = 256

// deadLetter routes a message to the guest's target, or keeps it until the guest's time.
func (c *call) deadLetter(i int, a *verdict, in *instance) mistake {
	m, v := &c.ms[i], &c.vs[i]
	switch {
	case !in.version.granted(abi.Route):
		return noRoute
	case !atOnceOrNever(a.until) && !plausible(a.until):
		return invalidUntil
	}
	to, what := in.target(a)
	if what != fine {
		return what
	}
	if t := c.instant(m, a.until); t > c.now {
		if !in.version.hooks.has(abi.OnDeadline) {
			return noLater
		}
		c.postpone(v, t)
		return fine
	}
	c.remove(v, hook.Route, false, to)
	return fine
}

// target reads a verdict's exchange and routing key. Without a key, messages keep their own.
func (in *instance) target(a *verdict) (*hook.Target, mistake) {
	if a.exchange > abi.MaxName || a.key > abi.MaxName {
		return nil, longStrings
	}
	b, ok := in.memory.Read(a.strings, uint32(a.exchange)+uint32(a.key))
	if !ok {
		return nil, noStrings
	}
	exchange, key := b[:a.exchange], b[a.exchange:]
	if t := in.targets[destination{string(exchange), string(key)}]; t != nil {
		return t, fine
	}
	if !utf8.Valid(exchange) || !utf8.Valid(key) {
		return nil, badStrings
	}
	t := &hook.Target{Exchange: string(exchange), Key: string(key), HasKey: len(key) > 0}
	if len(in.targets) >= maxTargets {
		clear(in.targets)
	}
	in.targets[destination{t.Exchange, t.Key}] = t
	return t, fine
}
