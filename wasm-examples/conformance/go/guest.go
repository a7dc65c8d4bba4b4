// Guest is the guest of the conformance kit, in Go.
package main

import (
	"errors"

	"github.com/curfewmq/curfew/sdk/go/policy"
)

type guest struct{ exchange, key string }

var _ = policy.Register(&guest{})

func main() {} // is not called

// Configure implements [policy.Configurer].
func (g *guest) Configure() error {
	if policy.ConfigInt("refuse", 0) != 0 {
		return errors.New("as asked")
	}
	var ok, too bool
	g.exchange, ok = policy.ConfigText("exchange")
	g.key, too = policy.ConfigText("key")
	if !ok || !too {
		return errors.New("exchange and key have to be set")
	}
	return nil
}

// number says a number.
func number(v *policy.Verdict, n int64) {
	v.Keep(policy.None)
	v.SetState(n)
}

// text says a text, if there is one.
func text(m *policy.Msg, v *policy.Verdict, key, said string, ok bool) {
	if !ok {
		number(v, -1)
		return
	}
	m.Trace(key, said)
	number(v, int64(len(said)))
}

func properties(m *policy.Msg, v *policy.Verdict) {
	present := int64(0)
	for i, name := range []string{"exchange", "routing-key", "message-id", "type", "app-id", "user-id"} {
		said, ok := m.Property(policy.Exchange + policy.Property(i))
		if ok {
			present++
		}
		text(m, v, name, said, ok)
	}
	number(v, present)
}

func body(m *policy.Msg, v *policy.Verdict) {
	b := make([]byte, 8)
	text(m, v, "body", string(b[:m.Body(4, b)]), true)
}

func allLevels(v *policy.Verdict) {
	enabled := int64(0)
	for l := policy.LevelDebug; l <= policy.LevelError; l++ {
		policy.Log(l, "hello")
		if policy.LogEnabled(l) {
			enabled |= 1 << l
		}
	}
	number(v, enabled)
}

func digits(v *policy.Verdict, numbers ...int64) {
	sum := int64(0)
	for _, n := range numbers {
		sum = sum*1000 + n
	}
	number(v, sum)
}

func record(now int64, m *policy.Msg, v *policy.Verdict) {
	digits(v, m.Expiration, m.QueueTTL, m.Deadline-now, m.State, int64(m.Size), int64(m.Deliveries))
}

func rest(now int64, m *policy.Msg, v *policy.Verdict) {
	flags := int64(0)
	for i, set := range []bool{m.Redelivered, m.Persistent, m.HasDLX} {
		if set {
			flags |= 1 << i
		}
	}
	digits(v, now-m.Enqueued, int64(m.Deaths), int64(m.Priority), flags, int64(m.Why))
}

// OnEnqueue implements [policy.EnqueueHook].
func (g *guest) OnEnqueue(now int64, m *policy.Msg, v *policy.Verdict) {
	switch m.Priority {
	case 1:
		v.Keep(m.Enqueued + 1000)
	case 2:
		v.Keep(policy.None)
	case 3:
		v.Expire()
	case 4:
		v.Drop()
	case 5:
		v.AskAgain(now + 5000)
	case 6:
		v.DeadLetter(g.exchange, g.key)
	case 7:
		v.DeadLetter(g.exchange, "")
	case 18:
		record(now, m, v)
	case 19:
		rest(now, m, v)
	case 20:
		v.Keep(policy.None)
		v.AskAtHead()
	case 21, 22, 23:
		hold(now, m, v)
	default:
		read(m, v)
	}
}

// hold holds the message for two seconds.
func hold(now int64, m *policy.Msg, v *policy.Verdict) {
	m.Hold(now + 2000)
	switch m.Priority {
	case 21:
		v.Keep(policy.None)
	case 23:
		m.Hold(policy.None)
	}
}

// read has the broker's functions answer.
func read(m *policy.Msg, v *policy.Verdict) {
	switch m.Priority {
	case 8:
		number(v, m.HeaderInt("number", -7))
	case 9:
		said, ok := m.HeaderText("text")
		text(m, v, "text", said, ok)
	case 10:
		properties(m, v)
	case 11:
		body(m, v)
	case 12:
		number(v, policy.ConfigInt("deep.number", -7))
	case 13:
		said, ok := policy.ConfigText("deep.text")
		text(m, v, "text", said, ok)
	case 14:
		number(v, m.QueueInt("x-max-length", -7))
	case 15:
		said, ok := m.QueueText("overflow")
		text(m, v, "text", said, ok)
	case 16:
		allLevels(v)
	case 17:
		policy.Count("asked", int64(m.Size))
	}
}

// OnDeadline implements [policy.DeadlineHook].
func (g *guest) OnDeadline(now int64, m *policy.Msg, v *policy.Verdict) {
	switch m.Priority {
	case 0:
		v.Expire()
	case 1:
		v.Keep(now + 1000)
		v.SetState(m.State + 1)
	case 2:
		v.DeadLetter(g.exchange, g.key)
	case 3:
		v.AskAgain(now + 5000)
	case 4:
		v.Drop()
	}
}

// OnHead implements [policy.HeadHook].
func (g *guest) OnHead(now int64, m *policy.Msg, v *policy.Verdict) {
	switch m.Priority {
	case 0:
		v.Keep(now + 10)
	case 2:
		m.Hold(now + 10)
	}
}

// OnRequeue implements [policy.RequeueHook].
func (g *guest) OnRequeue(_ int64, m *policy.Msg, v *policy.Verdict) {
	switch m.Priority {
	case 0:
		v.Keep(m.Deadline + 1000)
		v.SetState(int64(m.Deliveries))
	case 2:
		m.Hold(m.Deadline)
	}
}

// OnIdle implements [policy.IdleHook].
func (g *guest) OnIdle(now, idle int64, ready, unacked, consumers int) int64 {
	switch ready {
	case 0:
		return now + idle + int64(unacked)*1000 + int64(consumers)
	case 1:
		return policy.IdleNoOpinion
	case 2:
		return policy.IdleDelete
	}
	return policy.IdleStays
}
