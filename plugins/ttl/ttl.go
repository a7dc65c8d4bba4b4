// Package ttl gives messages a deadline, from the queue's message-ttl and the publisher's expiration, and drops them when it is reached.
// It offers the expiry strategies deadline, rabbitmq, lavinmq and ottermq.
package ttl

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Config is the section plugins.ttl.
type Config struct {
	// Strategy is the expiry strategy of queues that name none.
	Strategy string `koanf:"strategy" doc:"Default expiry strategy of queues."`
	// Max is the longest time that any message may wait, with or without a TTL. 0 =
	// no limit.
	Max time.Duration `koanf:"max" accepts:"0s, or whole milliseconds from 1ms, such as 90s, 1h30m or 7d" doc:"Longest time a message may wait, with or without a TTL; 0s = no limit."`
	// Retroactive applies a policy's change of a queue's TTL to queued messages, in
	// the strategies deadline and rabbitmq.
	Retroactive bool `koanf:"retroactive" doc:"Whether a policy that changes a queue's TTL also applies to messages already queued."`
}

// Factory makes the plugin.
var Factory = hook.NewFactory("ttl", Config{Strategy: "deadline"}, build)

type plugin struct {
	strategy    string
	ceiling     hook.Limit // milliseconds
	retroactive bool
}

var (
	_ hook.Strategist        = (*plugin)(nil)
	_ hook.ExpirationChecker = (*plugin)(nil)
)

func build(c Config) (hook.Plugin, error) {
	var errs []error
	if c.Strategy == "" {
		errs = append(errs, errors.New("strategy: is empty; name the expiry strategy of queues that choose none"))
	}
	if c.Max < 0 || c.Max%time.Millisecond != 0 {
		errs = append(errs, fmt.Errorf("max: %s is out of range; accepted are 0s (no limit) and whole milliseconds from 1ms", c.Max))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	p := &plugin{strategy: c.Strategy, retroactive: c.Retroactive}
	if c.Max > 0 {
		p.ceiling = hook.LimitOf(c.Max.Milliseconds())
	}
	return p, nil
}

// Arguments implements [hook.Plugin].
func (p *plugin) Arguments() []hook.Argument {
	return []hook.Argument{{Name: "x-message-ttl", Check: checkTTL, Order: 20, Policy: &hook.PolicyKey{
		Check:    hook.PolicyInt(0, math.MaxInt64, "message TTL"), // without the arguments' limit, as in RabbitMQ
		Operator: true, Merge: hook.TakeLower, Argument: hook.TakeLower,
	}}}
}

func checkTTL(v any, _ hook.Args) error { return hook.CheckInt(v, 0, hook.MaxMillis) }

// Strategies implements [hook.Strategist].
func (p *plugin) Strategies() []string {
	return []string{"deadline", "rabbitmq", "lavinmq", "ottermq"}
}

// DefaultStrategy implements [hook.Strategist]. It may name another plugin's strategy; the chain checks that it exists.
func (p *plugin) DefaultStrategy() string { return p.strategy }

// Attach implements [hook.Plugin]. It returns no hooks for a queue with another plugin's strategy.
func (p *plugin) Attach(q hook.Queue) hook.Hooks {
	ttl := hook.IntSetting(q, "message-ttl")
	hs := hook.Hooks{Strategy: true, OnHead: expireDue, DeadlineFromReady: true, Shared: true}
	retroactive := p.retroactive
	switch q.Strategy() {
	case "deadline":
		hs.Scan, hs.OnEnqueue = hook.ScanAnywhere, lower(ttl.Min(p.ceiling))
	case "rabbitmq":
		hs.Scan, hs.OnEnqueue = hook.ScanHeads, lower(ttl.Min(p.ceiling))
	case "ottermq":
		retroactive = true // OtterMQ computes the deadline when it needs it
		hs.Scan, hs.OnEnqueue = hook.ScanLazy, stampExpirations
		if ttl.Min(p.ceiling).Set() {
			hs.OnEnqueue = ownFirst{ttl, p.ceiling}.stamp
		}
	case "lavinmq":
		retroactive = true // LavinMQ looks the TTL up when it needs it
		l := &lavin{queue: q, ttl: ttl.Min(p.ceiling)}
		hs.Scan, hs.OnEnqueue, hs.OnHead, hs.OnRequeue = hook.ScanTop, l.stamp, l.expireDue, l.requeue
		hs.Shared = false // its result depends on the number of consumers
	default:
		return hook.Hooks{Shared: true}
	}
	if retroactive {
		hs.OnRestamp = hs.OnEnqueue
	}
	return hs
}

// lower returns the callback that gives messages the lower of the queue's TTL and their own. All queues without a TTL share one callback.
func lower(ttl hook.Limit) func(hook.Instant, []hook.Message, []hook.Verdict) {
	if !ttl.Set() {
		return stampExpirations
	}
	return lifetime(hook.Instant(0).AddMillis(ttl.N())).stamp
}

func stampExpirations(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	for i := range ms {
		if m := &ms[i]; m.Expiration.Set() {
			setDeadline(&vs[i], m.Enqueued.AddMillis(m.Expiration.N()))
		}
	}
}

// lifetime has a queue's TTL.
type lifetime time.Duration

func (l lifetime) stamp(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	for i := range ms {
		m := &ms[i]
		t := m.Enqueued.Add(time.Duration(l))
		if m.Expiration.Set() {
			t = min(t, m.Enqueued.AddMillis(m.Expiration.N()))
		}
		setDeadline(&vs[i], t)
	}
}

// ownFirst gives messages their own TTL, or the queue's if they have none.
type ownFirst struct{ ttl, ceiling hook.Limit }

func (o ownFirst) stamp(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	for i := range ms {
		m, t := &ms[i], o.ttl
		if m.Expiration.Set() {
			t = m.Expiration
		}
		if t = t.Min(o.ceiling); t.Set() {
			setDeadline(&vs[i], m.Enqueued.AddMillis(t.N()))
		}
	}
}

// setDeadline sets a deadline unless a previous plugin has set an earlier one.
func setDeadline(v *hook.Verdict, t hook.Instant) {
	if v.Deadline == 0 || t < v.Deadline {
		v.Deadline = t
	}
}

// expireDue drops due messages. Messages that are being removed keep their reason.
func expireDue(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	for i := range ms {
		if due(now, &ms[i], &vs[i]) {
			expire(&vs[i])
		}
	}
}

func due(now hook.Instant, m *hook.Message, v *hook.Verdict) bool {
	return v.Action == hook.Keep && m.Deadline != 0 && now >= m.Deadline
}

func expire(v *hook.Verdict) { v.Action, v.Reason = hook.Drop, hook.ReasonExpired }

// CheckExpiration implements [hook.ExpirationChecker]. The property is a decimal number of milliseconds, with an optional sign, up to ten
// years. The errors are RabbitMQ's.
func (p *plugin) CheckExpiration(raw []byte) (hook.Limit, error) {
	negative, digits, rest := cutInteger(raw)
	significant := bytes.TrimLeft(digits, "0")
	switch {
	case len(digits) == 0:
		return 0, errors.New("no_integer")
	case len(rest) > 0:
		return 0, errors.New("{leftover_string," + strconv.Quote(string(rest)) + "}")
	case len(significant) == 0:
		return hook.LimitOf(0), nil
	case negative:
		return 0, errors.New("{value_negative,-" + string(significant) + "}")
	}
	n, ok := hook.WholeText(significant)
	if !ok || n > hook.MaxMillis {
		return 0, errors.New("{value_too_large," + string(significant) + "}")
	}
	return hook.LimitOf(n), nil
}

// cutInteger splits off the integer at the start of b.
func cutInteger(b []byte) (negative bool, digits, rest []byte) {
	unsigned := bytes.TrimLeft(b, "+-")
	if len(b)-len(unsigned) > 1 {
		return false, nil, b
	}
	rest = bytes.TrimLeft(unsigned, "0123456789")
	return len(b) > 0 && b[0] == '-', unsigned[:len(unsigned)-len(rest)], rest
}

// lavin is the strategy lavinmq on one queue: deadlines are rounded down to tenths of a second, and a message with TTL 0 waits while the
// queue has a consumer, even one without credit.
type lavin struct {
	queue hook.Queue
	ttl   hook.Limit
}

const (
	tick = hook.Instant(100 * time.Millisecond)

	// zeroTTL is the state of messages with TTL 0.
	zeroTTL = 1
)

func (l *lavin) stamp(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	for i := range ms {
		t := l.ttl.Min(ms[i].Expiration)
		if !t.Set() {
			continue
		}
		d := ms[i].Enqueued.AddMillis(t.N())
		setDeadline(&vs[i], max(d-d%tick, 1)) // 0 would mean no deadline
		if t.N() == 0 {
			vs[i].State = zeroTTL
		}
	}
}

func (l *lavin) expireDue(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	for i := range ms {
		m, v := &ms[i], &vs[i]
		if !due(now, m, v) {
			continue
		}
		if m.State == zeroTTL && !m.Redelivered && l.queue.Consumers() > 0 {
			v.Again, v.Deadline = true, now.Add(time.Duration(tick)) // the consumer may leave
			continue
		}
		expire(v)
	}
}

// requeue expires messages with TTL 0, because they have had their delivery.
func (l *lavin) requeue(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
	for i := range ms {
		if ms[i].State == zeroTTL {
			vs[i].Deadline = now
		}
	}
}
