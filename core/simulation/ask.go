package simulation

import (
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

type call = func(now hook.Instant, ms []hook.Message, vs []hook.Verdict)

// ask asks the plugins about the message, and adds an event. view holds the fields that are
// special to this question, and v is the verdict that the plugins start from.
func (r *run) ask(name string, why hook.Why, view hook.Message, v hook.Verdict, ask call) hook.Verdict {
	m := &r.play.Message
	view.Why, view.Size, view.Priority, view.Persistent, view.Redelivered, view.Deliveries = why, m.Size, m.Priority, m.Persistent, r.redelivered, r.failed
	view.Enqueued = r.play.At
	if why != hook.WhyEnqueue {
		view.Deadline, view.State = r.deadline, r.state
		guest.SetMessageDigest(&view, r.digest)
	}
	view.Bind(&contents{Message: parts.Message{Exchange: m.Exchange, Key: m.Key, Props: m.Props, Body: m.Body}, deaths: m.Deaths}, 0)
	ms, vs := []hook.Message{view}, []hook.Verdict{v}
	r.forget()
	ask(r.now, ms, vs)
	if why == hook.WhyEnqueue || why == hook.WhyRequeue {
		vs[0].Again = false // asking again is not simulated
	}
	e := Event{At: r.now, Hook: name, Verdict: vs[0], Text: Words(&vs[0], r.play.At)}
	if r.stage.Deciders != nil {
		e.By = slices.Compact(r.stage.Deciders())
	}
	if r.stage.Opinions != nil {
		e.Opinions = r.stage.Opinions()
	}
	if r.stage.Notes != nil {
		e.Notes = r.stage.Notes()
	}
	r.result.Events = append(r.result.Events, e)
	return vs[0]
}

// forget discards the hooks that plugins returned when they were attached.
func (r *run) forget() {
	if r.stage.Deciders != nil {
		r.stage.Deciders()
	}
	if r.stage.Opinions != nil {
		r.stage.Opinions()
	}
}

// note adds an event in which no plugin was asked.
func (r *run) note(text string) {
	r.result.Events = append(r.result.Events, Event{At: r.now, Text: text})
}

// contents is the message as plugins read it.
type contents struct {
	parts.Message
	deaths int
}

// Deaths implements [hook.Source].
func (c *contents) Deaths(int) int { return c.deaths }

// Words describes a verdict, with times relative to since.
func Words(v *hook.Verdict, since hook.Instant) string {
	after := func(t hook.Instant) string { return "+" + t.Sub(since).Round(time.Microsecond).String() }
	switch v.Action {
	case hook.Refuse:
		return "refuse: the publisher gets basic.nack"
	case hook.Drop:
		if v.Final {
			return "drop (" + v.Reason.String() + "), not to be dead-lettered"
		}
		return "drop (" + v.Reason.String() + ")"
	case hook.Route:
		s := "dead-letter (" + v.Reason.String() + ")"
		if v.Target != nil {
			s += " to " + exchangeName(v.Target.Exchange)
			if v.Target.HasKey {
				s += " with the key '" + v.Target.Key + "'"
			}
		}
		return s
	}
	s := "keep"
	switch {
	case v.Deadline != 0 && v.Again:
		s += ", ask again at " + after(v.Deadline)
	case v.Deadline != 0:
		s += " until " + after(v.Deadline)
	}
	if v.Hold != 0 {
		s += ", held until " + after(v.Hold)
	}
	if v.AskHead {
		s += ", ask again at the head"
	}
	return s
}

func exchangeName(name string) string {
	if name == "" {
		return "the default exchange"
	}
	return "exchange '" + name + "'"
}
