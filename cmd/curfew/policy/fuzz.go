package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/curfewmq/curfew/plugins/wasm"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
)

// fuzzer draws random messages, including some that no client would publish.
type fuzzer struct {
	*rand.Rand
	now hook.Instant
}

// fuzz calls every hook of a module with random messages until a call fails.
func (p *Program) fuzz(f *flags, module []byte, o wasm.Options) (err error) {
	l, err := newLab(module, o, p.Stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	seed, n := value[uint64](f, "seed"), value[int](f, "messages")
	z := &fuzzer{rand.New(rand.NewPCG(seed, 0)), hook.Instant(defaultStart.UnixNano())}
	for _, b := range barrages() {
		if err := z.barrage(l, b, n); err != nil {
			return fmt.Errorf("--seed %d: %w", seed, err)
		}
	}
	i := l.info()
	fmt.Fprintf(p.Stdout, "# %d calls with %d random messages, none of which made it fail; the one that used most fuel used %d of %d\n",
		i.Calls, i.Messages, i.FuelPerCall, i.MaxFuel)
	if f.text("trace") == "" { // otherwise that prints them
		p.warn(i.Warnings)
	}
	return nil
}

type callback = func(now hook.Instant, ms []hook.Message, vs []hook.Verdict)

// barrage is one hook and the way to call it.
type barrage struct {
	hook abi.Hook
	why  hook.Why
	ask  func(hs *hook.Hooks) callback
}

func barrages() []barrage {
	head := func(hs *hook.Hooks) callback { return hs.OnHead }
	return []barrage{
		{abi.OnEnqueue, hook.WhyEnqueue, func(hs *hook.Hooks) callback { return hs.OnEnqueue }},
		{abi.OnDeadline, hook.WhyDue, head},
		{abi.OnHead, hook.WhyHead, head},
		{abi.OnRequeue, hook.WhyRequeue, func(hs *hook.Hooks) callback { return hs.OnRequeue }},
		{abi.OnIdle, 0, nil},
	}
}

// callsPerQueue is the number of random batches for each random queue.
const callsPerQueue = 100

func (z *fuzzer) barrage(l *lab, b barrage, messages int) error {
	for messages > 0 {
		q := z.queue()
		hs := l.attach(q)
		if b.ask == nil {
			return z.idleness(l, q, &hs, messages)
		}
		ask := b.ask(&hs)
		if ask == nil {
			return nil
		}
		for range callsPerQueue {
			ms := z.messages(b.why, 1+z.IntN(20))
			messages -= len(ms)
			if err := z.fire(l, b, ask, ms); err != nil {
				return err
			}
		}
	}
	return nil
}

// drawn is a random message and its content.
type drawn struct {
	hook.Message

	event event
}

// fire makes one call. If it fails, fire looks for a single message with which it fails, too.
func (z *fuzzer) fire(l *lab, b barrage, ask callback, ms []drawn) error {
	z.call(ask, ms)
	err := l.failed()
	if err == nil {
		return nil
	}
	for i := range ms {
		if _, err := l.host.Reload(underTest, false); err != nil {
			return err
		}
		z.call(ask, ms[i:i+1])
		if alone := l.failed(); alone != nil {
			return fmt.Errorf("%w\nThe failing call was %s with this message, at %d: %s", alone, b.hook, z.now/1e6, ms[i].describe())
		}
	}
	return fmt.Errorf("%w\nIt fails with these %d messages together, but with none of them alone", err, len(ms))
}

func (z *fuzzer) call(ask callback, ms []drawn) {
	views, vs, carried := make([]hook.Message, len(ms)), make([]hook.Verdict, len(ms)), make(contents, len(ms))
	for i := range ms {
		views[i], carried[i] = ms[i].Message, &ms[i].event
		views[i].Bind(carried, i)
		vs[i] = hook.Verdict{Deadline: views[i].Deadline, State: views[i].State}
		if views[i].Why == hook.WhyEnqueue {
			vs[i] = hook.Verdict{}
		}
	}
	ask(z.now, views, vs)
}

func (d *drawn) describe() string {
	b, err := json.Marshal(d.event)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s, enqueued at %d, deadline %d, state %d, handed out %d times",
		b, d.Enqueued/1e6, d.Deadline/1e6, d.State, d.Deliveries)
}

// idleness calls OnIdle the given number of times about an unused queue.
func (z *fuzzer) idleness(l *lab, q *queue, hs *hook.Hooks, times int) error {
	if hs.OnIdle == nil {
		return nil
	}
	for range times {
		q.ready, q.unacked, q.readers = z.IntN(1<<z.IntN(30)), z.IntN(1<<z.IntN(20)), z.IntN(3)
		var v hook.Verdict
		hs.OnIdle(z.now, time.Duration(z.Int64N(int64(1)<<z.IntN(55))), &v)
	}
	return l.failed()
}

func (z *fuzzer) queue() *queue {
	q := newQueue()
	q.settings = map[string]any{
		"message-ttl": z.Int64N(1 << (1 + z.IntN(38))), "expires": 1 + z.Int64N(1<<31), "dead-letter-exchange": z.word(),
		"max-priority": z.Int64N(256),
	}
	for _, name := range []string{"message-ttl", "expires", "dead-letter-exchange", "max-priority"} {
		if z.IntN(2) == 0 {
			delete(q.settings, name)
		}
	}
	return q
}

// messages returns n random messages for a call.
func (z *fuzzer) messages(why hook.Why, n int) []drawn {
	z.now = z.now.Add(time.Duration(z.Int64N(int64(1) << z.IntN(42))))
	ms := make([]drawn, n)
	for i := range ms {
		ms[i] = z.message()
		m := &ms[i].Message
		m.Why, m.Enqueued = why, z.now
		if why == hook.WhyEnqueue {
			continue
		}
		m.Enqueued -= hook.Instant(z.Int64N(int64(1) << z.IntN(50)))
		m.Deadline, m.State = z.deadline(why), z.number()
		m.Redelivered, m.Deliveries = z.IntN(2) == 0, z.Uint32N(1<<z.IntN(32))
	}
	return ms
}

func (z *fuzzer) deadline(why hook.Why) hook.Instant {
	away := hook.Instant(z.Int64N(int64(1) << z.IntN(50)))
	switch {
	case why == hook.WhyDue:
		return z.now - away
	case z.IntN(4) == 0:
		return 0
	case why == hook.WhyHead:
		return z.now + away + 1
	}
	return z.now + away - 1<<40
}

func (z *fuzzer) message() drawn {
	e := event{
		Event: eventPublish, Priority: uint8(z.IntN(256)), Persistent: z.IntN(2) == 0, Deaths: z.IntN(1 << z.IntN(10)),
		Exchange: z.word(), RoutingKey: z.word(), MessageID: z.word(), Type: z.word(), AppID: z.word(), UserID: z.word(), Body: z.word(),
		Headers: map[string]any{},
	}
	if z.IntN(2) == 0 {
		ttl := z.Int64N(int64(1) << (1 + z.IntN(38)))
		e.Expiration = &ttl
	}
	for range z.IntN(4) {
		e.Headers[z.word()] = z.header()
	}
	e.Size = len(e.Body) + z.IntN(1<<z.IntN(28))
	return drawn{e.message(), e}
}

func (z *fuzzer) header() any {
	switch z.IntN(4) {
	case 0:
		return z.IntN(2) == 0
	case 1:
		return z.word()
	case 2:
		return z.NormFloat64()
	}
	return z.number()
}

// number returns a random number, sometimes an extreme one.
func (z *fuzzer) number() int64 {
	if z.IntN(8) == 0 {
		return []int64{0, -1, 1, math.MaxInt64, math.MinInt64, math.MaxInt32}[z.IntN(6)]
	}
	return z.Int64N(math.MaxInt64) >> z.IntN(63)
}

// words are names that policies may look for, and some that none does.
var words = []string{"", "eta", "expires", "ttl", "deadline", "retry", "x-delay", "2026-01-05T12:00:00Z", "0", "-1", "1767571200000", "ÄÖ", "😀", "\x00"}

func (z *fuzzer) word() string {
	if z.IntN(4) > 0 {
		return words[z.IntN(len(words))]
	}
	b := make([]byte, z.IntN(256))
	for i := range b {
		b[i] = byte('a' + z.IntN(26))
	}
	return string(b)
}
