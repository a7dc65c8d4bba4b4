package vhost

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/logtest"
	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// holder is a plugin whose exchanges hold messages for as long as their header "wait" or the setting "wait" says, in milliseconds.
type holder struct {
	hook.NoHooks
	created int
	filter  hook.Filter
}

func (p *holder) ExchangeTypes() []hook.ExchangeType {
	return []hook.ExchangeType{{
		Name: "x-held", Schedule: p.schedule,
		Arguments: []hook.ExchangeArgument{
			{Name: "x-inner", Compared: true},
			{Name: "x-wait", Policy: &hook.PolicyKey{Check: hook.PolicyInt(0, 1<<40, "wait"), Argument: hook.TakeLower}},
			{Name: "x-most", Policy: &hook.PolicyKey{}},
		},
	}, {Name: "x-any", Volatile: true, New: func(*hook.Exchange) hook.Router { return &everywhere{} }}}
}

func (*holder) ExchangeArguments() []hook.ExchangeArgument { return nil }

func (p *holder) Filter(*hook.Exchange) hook.Filter { return p.filter }

func (p *holder) schedule(x *hook.Exchange) hook.Schedule {
	p.created++
	inner, _ := x.Args.Lookup("x-inner")
	s := hook.Schedule{Negates: "wait", Released: recur}
	s.Inner, _ = inner.(string)
	usual, _ := x.Setting("wait")
	wait, _ := hook.Int(usual)
	if most, ok := x.Setting("most"); ok {
		n, _ := hook.Int(most)
		s.MaxHeld = hook.LimitOf(n)
	}
	s.Plan = func(m *hook.Publishing, p *hook.Plan) error {
		if text, ok := m.HeaderText("wait"); ok && string(text) == "bad" {
			return errors.New("invalid header 'wait'")
		}
		if m.Key == "panic" {
			panic(m.Key)
		}
		n, ok := m.HeaderInt("wait")
		if !ok {
			n = wait
		}
		if n > 0 {
			p.Hold = m.Now.AddMillis(n)
		}
		p.ID, _ = m.HeaderText("id")
		_, p.Cancel = m.Header("cancel")
		return nil
	}
	return s
}

// recur releases messages with the header "times" so often, and skips the second time if they have the header "skip".
func recur(m *hook.Publishing, r *hook.Release) {
	times, _ := m.HeaderInt("times")
	if r.State++; r.State < times {
		every, _ := m.HeaderInt("wait")
		r.Hold = r.Due.AddMillis(every)
	}
	_, skips := m.Header("skip")
	r.Skip = skips && r.State == 2
}

// everywhere leads every message everywhere, and counts them.
type everywhere struct {
	to    []hook.Destination
	asked int
}

func (e *everywhere) Bind(b *hook.Binding) { e.to = append(e.to, b.Destination) }
func (e *everywhere) Unbind(b *hook.Binding) {
	e.to = slices.DeleteFunc(e.to, func(d hook.Destination) bool { return d == b.Destination })
}

func (e *everywhere) Route(m *hook.Publishing, dst []hook.Destination) []hook.Destination {
	e.asked++
	m.Filtered = e.asked > 1
	if m.Filtered {
		return dst
	}
	return append(dst, e.to...)
}

func newHoldingVHost(tb testing.TB, p hook.Plugin, k DefinitionLog) (*VHost, *logtest.Log) {
	tb.Helper()
	c, err := chain.New([]chain.Named{{Name: "fake", Plugin: plugin{}}, {Name: "holder", Plugin: p}}, chain.Options{})
	must(tb, err)
	log := new(logtest.Log)
	return New(Config{Name: "/", Chain: c, Clock: clock.New(), Log: slog.New(slog.NewTextHandler(log, nil)), DefinitionLog: k}), log
}

// headersOf encodes properties with headers from names and values in turn.
func headersOf(pairs ...any) []byte {
	p := amqp.Properties{Headers: args(pairs...)}
	p.Set(amqp.PropHeaders)
	return p.Append(nil)
}

// answers counts the answers to published messages.
type answers struct{ confirmed, refused, lost int }

func (o *answers) Confirmed(b *queue.Batch) {
	for i := range b.Messages {
		switch f := b.Messages[i].Flags; {
		case f&queue.Refused != 0:
			o.refused++
		case f&queue.Mandatory != 0:
			o.lost++
		default:
			o.confirmed++
		}
	}
}

func (o *answers) Failed(*queue.Batch, error) { panic("a batch failed") }

// sent is a message to publish.
type sent struct {
	exchange, key, body string
	mandatory           bool
	props               []byte
}

// send publishes a message as a client does, and returns to how many queues it went.
func (s sent) send(tb testing.TB, v *VHost) (queues int, o *answers) {
	tb.Helper()
	if s.props == nil {
		s.props = []byte{0, 0}
	}
	m := &parts.Message{Key: s.key, Props: s.props, Body: []byte(s.body), Mandatory: s.mandatory}
	to, reusable, err := v.Route(s.exchange, m, nil)
	must(tb, err)
	if len(to) > 0 && to[0].Config().Schedule != nil && reusable {
		tb.Errorf("%s: a route that depends on the message can be reused", s.body)
	}
	o = &answers{}
	for _, q := range to {
		b := queue.NewBatch()
		b.Publisher = o
		message := queue.Message{Routing: &queue.RoutingInfo{Exchange: s.exchange, Key: s.key}, Props: s.props, Body: []byte(s.body), Flags: queue.HasHeaders}
		message.Passes, message.Planned = m.Passes, m.Passes && !m.Held
		if m.Cancels && s.mandatory {
			message.Flags |= queue.Mandatory
		}
		b.Messages = append(b.Messages, message)
		q.Publish(b)
	}
	return len(to), o
}

// newSchedule returns a vhost with the exchange "x", which holds messages, and its queue "q".
func newSchedule(t *testing.T, arguments ...any) (*VHost, *queue.Mailbox) {
	t.Helper()
	v, _ := newHoldingVHost(t, &holder{}, nil)
	q := declare(t, v, "q")
	exchangeOf(t, v, "x", "x-held", append([]any{"x-inner", "fanout"}, arguments...)...)
	bind(t, v, "x", "q", "")
	return v, q
}

// held returns how many messages an exchange holds.
func held(t *testing.T, v *VHost, exchange string) (n int) {
	t.Helper()
	m, err := v.Schedule(exchange)
	must(t, err)
	must(t, m.Do(func(q *queue.Queue, _ hook.Instant) { n = q.Stats().Held }))
	return n
}

func wantHeld(t *testing.T, v *VHost, exchange string, want int) {
	t.Helper()
	if n := held(t, v, exchange); n != want {
		t.Errorf("exchange %s holds %d messages, want %d", exchange, n, want)
	}
}

// arrived takes the messages of a queue: bodies, with their header "wait".
func arrived(t *testing.T, m *queue.Mailbox) string {
	t.Helper()
	var got []string
	for {
		d, ok := take(t, m)
		if !ok {
			return strings.Join(got, " ")
		}
		line := d.body
		if v, has := d.props.Headers.Lookup("wait"); has {
			line += fmt.Sprintf("(%v)", v)
		}
		got = append(got, line)
	}
}
