package wasm

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Bounds on the differences that a shadow remembers. With properties of at most 255 bytes each, all of them together take less than
// 2 MiB per shadow.
const (
	// Differences is the number of messages that are remembered, the latest ones.
	Differences = 256
	// DifferencesPerSecond is the number of messages that are remembered per second. All are counted.
	DifferencesPerSecond = 64
	// DifferenceHeaders is the number of bytes of a message's headers that are remembered.
	DifferenceHeaders = 4096
)

// Difference is a message about which a shadow disagreed with the strategy in force.
type Difference struct {
	ID    uint64 // grows by one with each remembered difference
	At    hook.Instant
	VHost string
	Queue string
	// Strategy is the strategy in force.
	Strategy string
	Hook     string // the hook that was called, such as "on_enqueue"
	Message  DifferenceMessage

	Active, Shadow hook.Verdict
	// The SHA-256 of the modules, in hexadecimal. ActiveDigest is that of the strategy in force, "" if that is not a module.
	ActiveDigest, ShadowDigest string
}

// DifferenceMessage describes a message at the time when a shadow disagreed.
type DifferenceMessage struct {
	Exchange, RoutingKey                          string
	MessageID, CorrelationID, Type, AppID, UserID string
	Expiration, Timestamp                         string // decimal digits: milliseconds, and seconds since 1970
	Headers                                       []byte // the encoded table, or its beginning
	HeadersSize                                   int    // bytes, of all headers
	Size                                          int    // of the body
	Enqueued, Deadline                            hook.Instant
	Deliveries                                    uint32
	Priority                                      uint8
	Redelivered, Persistent                       bool
}

// differences holds the latest differences of a shadow. Queues' turns add to it, and any goroutine reads it.
type differences struct {
	second atomic.Int64 // the second, since the epoch, to which left applies
	left   atomic.Int64 // number of differences that may still be remembered in that second

	mu   sync.Mutex   // guards the fields below
	ring []difference // grows to Differences entries, and is then overwritten
	next uint64       // ID of the next
}

// difference is a Difference whose texts share memory. The next difference in its place reuses that memory.
type difference struct {
	Difference
	texts []byte
	sizes [len(differenceTexts)]int
}

// differenceTexts are the remembered parts, in the order in which they are stored in texts. The headers come last.
var differenceTexts = [...]hook.Part{
	hook.PartExchange, hook.PartRoutingKey, hook.PartMessageID, hook.PartCorrelationID, hook.PartType, hook.PartAppID, hook.PartUserID,
	hook.PartExpiration, hook.PartTimestamp, hook.PartHeaders,
}

// allows reports whether another difference may be remembered in this second. It takes no lock, because with a shadow that always
// differs it is called for each message.
func (d *differences) allows(now hook.Instant) bool {
	second, was := int64(now)/int64(time.Second), d.second.Load()
	if second > was && d.second.CompareAndSwap(was, second) { // turns that began earlier still use the previous second
		d.left.Store(DifferencesPerSecond)
	}
	return d.left.Load() > 0 && d.left.Add(-1) >= 0
}

// add remembers message i of a call. active is the verdict in force; the shadow's verdict is in the call.
func (d *differences) add(c *call, i int, active *hook.Verdict, v *version) {
	m := &c.ms[i]
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.ring) < Differences {
		d.ring = append(d.ring, difference{})
	}
	e := &d.ring[d.next%Differences]
	d.next++
	e.Difference = Difference{
		ID: d.next, At: c.now, VHost: c.queue.VHost(), Queue: c.queue.Name(), Strategy: c.queue.Strategy(), Hook: hooksOf[c.at].String(),
		Active: *active, Shadow: c.vs[i], ActiveDigest: c.activeDigest(), ShadowDigest: v.module.Digest,
		Message: DifferenceMessage{
			Size: m.Size, Enqueued: m.Enqueued, Deadline: m.Deadline, Deliveries: m.Deliveries, Priority: m.Priority,
			Redelivered: m.Redelivered, Persistent: m.Persistent,
		},
	}
	e.texts = e.texts[:0]
	for p, part := range differenceTexts {
		b := m.Part(part)
		if part == hook.PartHeaders {
			e.Message.HeadersSize = len(b)
			b = b[:min(len(b), DifferenceHeaders)]
		}
		b = b[:min(len(b), DifferenceHeaders)] // names have at most 255 bytes; the other parts are cut
		e.sizes[p] = len(b)
		e.texts = append(e.texts, b...)
	}
}

// activeDigest returns the digest of the module in force; "" if there is none.
func (c *call) activeDigest() string {
	if c.policy == nil {
		return ""
	}
	return c.policy.digest()
}

// read returns a copy of the recorded differences, which callers may keep.
func (e *difference) read() Difference {
	d := e.Difference
	into := [...]*string{
		&d.Message.Exchange, &d.Message.RoutingKey, &d.Message.MessageID, &d.Message.CorrelationID, &d.Message.Type, &d.Message.AppID, &d.Message.UserID,
		&d.Message.Expiration, &d.Message.Timestamp,
	}
	rest := e.texts
	for p, to := range into {
		*to, rest = string(rest[:e.sizes[p]]), rest[e.sizes[p]:]
	}
	d.Message.Headers = slices.Clone(rest)
	return d
}

// after returns the remembered differences with a higher ID, at most count of them, in
// the order of their IDs.
func (d *differences) after(id uint64, count int) []Difference {
	d.mu.Lock()
	defer d.mu.Unlock()
	if id > d.next { // of a shadow that was of this name, whose reader is to see the differences of this one
		id = 0
	}
	first := max(id, d.next-uint64(len(d.ring)))
	all := []Difference{}
	for n := first; n < d.next && len(all) < count; n++ {
		all = append(all, d.ring[n%Differences].read())
	}
	return all
}

// ShadowDifferences are the latest differences of a shadow.
type ShadowDifferences struct {
	Compared, Differing uint64       // messages, all of them
	Latest              []Difference // in the order of their IDs
}

// Differences returns the messages on which a shadow disagreed, with IDs after one, and
// at most count of them. Its errors are [ErrUnknown] and [ErrNoShadow].
func (h *Host) Differences(name string, after uint64, count int) (ShadowDifferences, error) {
	p := h.table.Load().policies[name]
	switch {
	case p == nil:
		return ShadowDifferences{}, ErrUnknown
	case p.origin != Shadow:
		return ShadowDifferences{}, ErrNoShadow
	}
	return ShadowDifferences{p.compared.Load(), p.differing.Load(), p.differences.after(after, count)}, nil
}

// watchEnqueue and watchHead call the shadow of another plugin's strategy. They do not
// change the verdicts. A hold in force may come from any plugin, so only a later hold of
// the shadow counts as a difference.
func (b *binding) watchEnqueue(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	c := call{binding: b, at: atEnqueue, now: now, ms: ms, vs: vs}
	b.shadow.compare(c, c.holdsBefore())
}

func (b *binding) watchHead(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	c := call{binding: b, now: now, ms: ms, vs: vs}
	c.forEachRun(whenThere, func(run call) { b.shadow.compare(run, run.holdsBefore()) })
}

// holdsBefore returns the holds with which a shadow's verdicts begin; nil if there are none, or no shadow.
func (c *call) holdsBefore() []hook.Instant {
	if c.shadow == nil || !slices.ContainsFunc(c.vs, func(v hook.Verdict) bool { return v.Hold != 0 }) {
		return nil
	}
	holds := make([]hook.Instant, len(c.vs))
	for i := range holds {
		holds[i] = c.vs[i].Hold
	}
	return holds
}

// compare calls a shadow, and counts its verdicts that differ from those in force. holds are the holds of other plugins; nil means
// none.
func (p *policy) compare(c call, holds []hook.Instant) {
	c.shadowing = true
	v := p.active.Load()
	if v == nil {
		return
	}
	buf := shadowBuffers.Get().(*shadowBuffer)
	for from := 0; from < len(c.ms); from += len(buf) {
		to := min(from+len(buf), len(c.ms))
		v.compareSome(c.slice(from, to), buf, holds[min(from, len(holds)):min(to, len(holds))])
	}
	shadowBuffers.Put(buf)
}

// shadowBuffer holds the verdicts of a shadow, so that not every call allocates them on the heap.
type shadowBuffer [64]hook.Verdict

var shadowBuffers = sync.Pool{New: func() any { return new(shadowBuffer) }}

func (v *version) compareSome(c call, buf *shadowBuffer, holds []hook.Instant) {
	inForce := c.vs
	c.vs = buf[:len(c.ms)]
	clear(c.vs)
	if c.at != atEnqueue {
		for i := range c.ms {
			c.vs[i].Deadline, c.vs[i].State = c.ms[i].Deadline, c.ms[i].State
		}
	}
	for i := range holds {
		c.vs[i].Hold = holds[i]
	}
	v.ask(&c)
	differing := 0
	for i := range inForce {
		same := alike(&inForce[i], &c.vs[i])
		if o := v.policy.observer; o != nil {
			o(inForce[i], c.vs[i], !same)
		}
		if same {
			continue
		}
		if differing++; v.policy.differences.allows(c.now) {
			v.policy.differences.add(&c, i, &inForce[i], v)
		}
	}
	v.policy.compared.Add(uint64(len(inForce)))
	v.policy.differing.Add(uint64(differing))
}

// alike reports whether two verdicts have the same effect. Deadlines in the same millisecond count as equal.
func alike(a, b *hook.Verdict) bool {
	if a.Action != b.Action {
		return false
	}
	switch a.Action {
	case hook.Drop:
		return a.Final == b.Final
	case hook.Route:
		return a.Target != nil && b.Target != nil && *a.Target == *b.Target
	case hook.Keep:
		return millis(a.Deadline) == millis(b.Deadline) && a.AskHead == b.AskHead && millis(a.Hold) == millis(b.Hold)
	}
	return true
}
