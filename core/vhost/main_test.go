package vhost

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/logtest"
	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/policies"
	"github.com/curfewmq/curfew/sdk/hook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plugin replaces the real plugins: it has their arguments, expires idle queues and dead-letters dropped messages.
type plugin struct{}

func (plugin) Arguments() []hook.Argument {
	millis := func(v any, _ hook.Args) error { return hook.CheckInt(v, 0, hook.MaxMillis) }
	limit := &hook.PolicyKey{Operator: true, Merge: hook.TakeLower, Argument: hook.TakeLower}
	return []hook.Argument{
		{Name: "x-message-ttl", Check: millis, Order: 20, Policy: limit},
		{Name: "x-expires", Check: func(v any, _ hook.Args) error { return hook.CheckInt(v, 1, hook.MaxMillis) }, Order: 10, Policy: limit},
		{Name: "x-max-length", Order: 60, Policy: limit},
		{Name: "x-max-length-bytes", Check: millis, QueueTypes: every, Order: 70, Policy: limit},
		{Name: "x-dead-letter-exchange", Order: 30, NamesExchange: true, Check: func(v any, _ hook.Args) error {
			if _, ok := v.(string); !ok {
				return &hook.ArgTypeError{Type: hook.TypeName(v)}
			}
			return nil
		}},
		{Name: "x-dead-letter-routing-key", Order: 40},
		{Name: "x-refuse-above", Order: 80, QueueTypes: every},
		{Name: "x-overflow", Order: 90, QueueTypes: every},
		{Name: "x-at-least-once", Order: 91, QueueTypes: every},
		{Name: "x-dead-letter-strategy", Order: 50, QueueTypes: onlyQuorum},
	}
}

// pluginRules know the keys of plugin.
var pluginRules = policies.NewRules(plugin{}.Arguments(), nil)

func (plugin) Strategies() []string    { return []string{"usual", "other"} }
func (plugin) DefaultStrategy() string { return "usual" }

func (plugin) Attach(q hook.Queue) hook.Hooks {
	var h hook.Hooks
	if lease := hook.IntSetting(q, "expires"); lease.Set() {
		h.OnIdle = func(now hook.Instant, idle time.Duration, v *hook.Verdict) {
			if idle >= time.Duration(lease.N())*time.Millisecond {
				v.Action, v.Reason = hook.Drop, hook.ReasonQueueExpired
				return
			}
			v.Deadline = now.Add(-idle).AddMillis(lease.N())
		}
	}
	if most := hook.IntSetting(q, "refuse-above"); most.Set() {
		h.Refuses = true
		full := hook.Verdict{Action: hook.Refuse}
		if overflow, _ := hook.StringSetting(q, "overflow"); overflow == "reject-publish-dlx" {
			full = hook.Verdict{Action: hook.Drop, Reason: hook.ReasonMaxLen, Nack: true}
		}
		h.OnEnqueue = func(_ hook.Instant, _ []hook.Message, vs []hook.Verdict) {
			for i := range vs {
				if int64(q.Ready()+i) >= most.N() {
					vs[i] = full
				}
			}
		}
	}
	h.Length = hook.IntSetting(q, "max-length")
	exchange, ok := hook.StringSetting(q, "dead-letter-exchange")
	if !ok {
		return h
	}
	target := &hook.Target{Exchange: exchange}
	target.Key, target.HasKey = hook.StringSetting(q, "dead-letter-routing-key")
	v, _ := q.Setting("at-least-once")
	target.AtLeastOnce, _ = v.(bool)
	route := func(_ hook.Instant, _ []hook.Message, vs []hook.Verdict) {
		for i := range vs {
			if vs[i].Action == hook.Drop {
				vs[i].Action, vs[i].Target = hook.Route, target
			}
		}
	}
	h.OnHead = route
	if enter := h.OnEnqueue; enter != nil {
		h.OnEnqueue = func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
			enter(now, ms, vs)
			route(now, ms, vs)
		}
	}
	return h
}

func newVHost(tb testing.TB) (*VHost, *logtest.Log) {
	tb.Helper()
	return newVHostWith(tb, nil)
}

func newVHostWith(tb testing.TB, k DefinitionLog) (*VHost, *logtest.Log) {
	tb.Helper()
	c, err := chain.New([]chain.Named{{Name: "fake", Plugin: plugin{}}}, chain.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	log := new(logtest.Log)
	return New(Config{Name: "/", Chain: c, Clock: clock.New(), Log: slog.New(slog.NewTextHandler(log, nil)), DefinitionLog: k}), log
}

// want fails unless err is an *Error of that kind with that text.
func want(t *testing.T, err error, kind Kind, text string) {
	t.Helper()
	e, ok := err.(*Error) //nolint:errorlint // it is not wrapped: sessions show its text
	if !ok {
		t.Fatalf("got error %v, want %q", err, text)
	}
	if e.Kind != kind || e.Text != text {
		t.Fatalf("got kind %d, text\n%s\nwant kind %d, text\n%s", e.Kind, e.Text, kind, text)
	}
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// args makes a table from names and values in turn.
func args(pairs ...any) amqp.Table {
	var t amqp.Table
	for i := 0; i < len(pairs); i += 2 {
		name, _ := pairs[i].(string)
		t = append(t, amqp.Field{Key: name, Value: pairs[i+1]})
	}
	return t
}

// declare creates a queue, or fails the test.
func declare(tb testing.TB, v *VHost, name string, pairs ...any) *queue.Mailbox {
	tb.Helper()
	d, err := v.DeclareQueue(QueueDeclare{Name: name, Durable: true, Args: args(pairs...)})
	must(tb, err)
	return d.Mailbox
}

func exchangeOf(tb testing.TB, v *VHost, name, kind string, pairs ...any) {
	tb.Helper()
	must(tb, v.DeclareExchange(Exchange{Name: name, Type: kind, Args: args(pairs...)}, nil))
}

func bind(tb testing.TB, v *VHost, source, queue, key string, pairs ...any) {
	tb.Helper()
	must(tb, v.Bind(Binding{Source: source, Destination: queue, Key: key, Args: args(pairs...)}, 0))
}

func bindExchange(tb testing.TB, v *VHost, source, destination, key string) {
	tb.Helper()
	must(tb, v.Bind(Binding{Source: source, Destination: destination, ToExchange: true, Key: key}, 0))
}

// publish publishes messages to a queue, without routing them.
func publish(s *queue.Mailbox, messages ...queue.Message) {
	b := queue.NewBatch()
	b.Messages = append(b.Messages, messages...)
	s.Publish(b)
}

func text(body string) queue.Message {
	return queue.Message{Routing: &queue.RoutingInfo{Exchange: "first", Key: "key"}, Props: []byte{0, 0}, Body: []byte(body)}
}

// got is a message taken from a queue.
type got struct {
	exchange, key, body string
	redelivered         bool
	props               amqp.Properties
}

// take gets one message and acknowledges it.
func take(t *testing.T, s *queue.Mailbox) (m got, ok bool) {
	t.Helper()
	err := s.Do(func(q *queue.Queue, now hook.Instant) {
		ok = q.Get(now, &queue.Consumer{Queue: s, NoAck: true}, func(d queue.Delivery, _ int) {
			m = got{exchange: string(d.Exchange), key: string(d.Key), body: string(d.Body), redelivered: d.Redelivered}
			m.props, _ = amqp.ParseProperties(bytes.Clone(d.Props))
		})
	})
	must(t, err)
	return m, ok
}

// leave gets every message of a queue, and settles them all in one way.
func leave(tb testing.TB, s *queue.Mailbox, kind queue.SettleKind) {
	tb.Helper()
	var items []queue.PendingAck
	c := &queue.Consumer{Queue: s}
	err := s.Do(func(q *queue.Queue, now hook.Instant) {
		for q.Get(now, c, func(d queue.Delivery, _ int) { items = append(items, queue.PendingAck{Ref: d.Ref, Consumer: c}) }) {
		}
	})
	must(tb, err)
	s.Settle(kind, items)
}

// names returns the names of the queues that a message is routed to, in order.
func names(t *testing.T, v *VHost, exchange, key string, extra ...string) string {
	t.Helper()
	queues, _, err := v.Route(exchange, &parts.Message{Key: key, More: extra}, nil)
	must(t, err)
	return join(queues)
}

func join(queues []*queue.Mailbox) string {
	var all []string
	for _, s := range queues {
		all = append(all, s.Config().Name)
	}
	return strings.Join(all, " ")
}
