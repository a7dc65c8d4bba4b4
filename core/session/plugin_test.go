package session

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// switchboard offers exchange types whose exchanges route every message to all queues, and a filter that drops bodies seen before.
type switchboard struct {
	hook.NoHooks
	asked int      // calls of Route
	seen  []string // routed messages, as plugins see them
	known []string // bodies that the filter admitted
}

func (s *switchboard) ExchangeTypes() []hook.ExchangeType {
	return []hook.ExchangeType{
		{Name: "x-keys", New: func(*hook.Exchange) hook.Router { return &line{board: s} }},
		{Name: "x-reads", New: func(*hook.Exchange) hook.Router { return &line{board: s, reads: true} }},
		{Name: "x-volatile", Volatile: true, New: func(*hook.Exchange) hook.Router { return &line{board: s} }},
	}
}

func (s *switchboard) ExchangeArguments() []hook.ExchangeArgument {
	return []hook.ExchangeArgument{{Name: "x-once"}}
}

func (s *switchboard) Filter(x *hook.Exchange) hook.Filter {
	if _, ok := x.Args.Lookup("x-once"); !ok {
		return nil
	}
	return func(m *hook.Publishing) bool {
		body := string(m.Part(hook.PartBody))
		if body == "panic filter" {
			panic(body)
		}
		if slices.Contains(s.known, body) {
			return false
		}
		s.known = append(s.known, body)
		return true
	}
}

// line is a router.
type line struct {
	board *switchboard
	reads bool
	to    []hook.Destination
}

func (l *line) Bind(b *hook.Binding) { l.to = append(l.to, b.Destination) }
func (l *line) Unbind(b *hook.Binding) {
	l.to = slices.DeleteFunc(l.to, func(d hook.Destination) bool { return d == b.Destination })
}

func (l *line) Route(m *hook.Publishing, dst []hook.Destination) []hook.Destination {
	l.board.asked++
	if strings.HasPrefix(m.Key, "panic") {
		panic(m.Key)
	}
	if l.reads {
		n, _ := m.HeaderInt("n")
		l.board.seen = append(l.board.seen, fmt.Sprintf("%s %v %d %s %s %s %d",
			m.Key, m.More, n, m.Part(hook.PartCorrelationID), m.Part(hook.PartExchange), m.Part(hook.PartBody), m.Now))
	}
	return append(dst, l.to...)
}

// withBoard returns a client of a vhost with the plugin, and the plugin.
func withBoard(t *testing.T) (*probe, *switchboard) {
	t.Helper()
	s := &switchboard{}
	c, err := chain.New([]chain.Named{{Name: "board", Plugin: s}}, chain.Options{})
	if err != nil {
		t.Fatal(err)
	}
	v := vhost.New(vhost.Config{Name: "/", Chain: c, Clock: clock.New(), Log: discard()})
	p := newProbe(t, func(o *Options) { o.VHosts = func(string) (*vhost.VHost, bool) { return v, true } }).open().channel(1).channel(2)
	p.queue(1, "q")
	return p, s
}

func (p *probe) pluginExchange(name, kind string, args ...amqp.Field) {
	p.t.Helper()
	do[*amqp.ExchangeDeclareOK](p, 1, &amqp.ExchangeDeclare{Exchange: name, Type: kind, Arguments: args})
	do[*amqp.QueueBindOK](p, 1, &amqp.QueueBind{Queue: "q", Exchange: name, RoutingKey: "k"})
}

// A route through a plugin is computed once for messages with one key, until the topology changes, unless the plugin reads more than
// the keys, or asks to be called for each message.
func TestPluginRoutesAreCached(t *testing.T) {
	for kind, want := range map[string]string{"x-keys": "1 1 2", "x-reads": "1 2 3", "x-volatile": "1 2 3"} {
		p, s := withBoard(t)
		p.pluginExchange("x", kind)
		var got []string
		note := func() { got = append(got, strconv.Itoa(s.asked)) }
		p.publish(1, published{exchange: "x", key: "k", body: "1"})
		note()
		p.publish(1, published{exchange: "x", key: "k", body: "2"})
		note()
		p.queue(1, "other")
		do[*amqp.QueueBindOK](p, 1, &amqp.QueueBind{Queue: "other", Exchange: "x", RoutingKey: "k"})
		p.publish(1, published{exchange: "x", key: "k", body: "3"})
		note()
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%s: asked %s times, want %s", kind, got, want)
		}
		p.holds(1, "q", 3)
		p.holds(1, "other", 1)
	}
}

// A plugin sees the whole message, once, with its CC and BCC.
func TestPluginsSeeTheMessage(t *testing.T) {
	p, s := withBoard(t)
	p.pluginExchange("x", "x-reads")
	props := amqp.Properties{CorrelationID: "corr", Headers: amqp.Table{
		{Key: "n", Value: int32(7)}, {Key: "CC", Value: amqp.Array{"cc"}}, {Key: "BCC", Value: amqp.Array{"bcc"}},
	}}
	props.Set(amqp.PropCorrelationID, amqp.PropHeaders)
	p.now = 5
	p.publish(1, published{exchange: "x", key: "k", body: "body", props: props}, published{exchange: "x", key: "l"})
	want := []string{"k [cc bcc] 7 corr x body 5", "l [] 0  x  5"}
	if !slices.Equal(s.seen, want) {
		t.Errorf("got %q, want %q", s.seen, want)
	}
	p.holds(1, "q", 2)
}

// A panic closes the publisher's channel, and nothing else.
func TestPluginPanicClosesTheChannel(t *testing.T) {
	p, _ := withBoard(t)
	p.pluginExchange("x", "x-volatile")
	p.pluginExchange("f", "fanout", amqp.Field{Key: "x-once", Value: true})
	p.publish(1, published{exchange: "x", key: "k"}, published{exchange: "x", key: "panic"}, published{exchange: "x", key: "k"})
	p.closed(1, 406, "PRECONDITION_FAILED - the plugin 'board' failed to route a message through exchange 'x' in vhost '/'")
	p.holds(2, "q", 1)
	p.channel(1)
	p.publish(1, published{exchange: "f", key: "k", body: "panic filter", mandatory: true})
	p.closed(1, 406, "PRECONDITION_FAILED - the plugin 'board' failed to route a message through exchange 'f' in vhost '/'")
	p.publish(2, published{exchange: "x", key: "k"})
	p.holds(2, "q", 2)
}

// A message that a filter drops is unroutable: it is returned if it is mandatory, and confirmed.
func TestFilteredMessages(t *testing.T) {
	p, _ := withBoard(t)
	p.pluginExchange("f", "fanout", amqp.Field{Key: "x-once", Value: true})
	do[*amqp.ConfirmSelectOK](p, 1, &amqp.ConfirmSelect{})
	p.publish(1, published{exchange: "f", body: "a"}, published{exchange: "f", body: "a"})
	if got := p.confirms(1); got != "+2 +1" { // the second at once, because it goes nowhere
		t.Errorf("confirms %s", got)
	}
	p.publish(1, published{exchange: "f", body: "a", mandatory: true})
	if m := expect[*amqp.BasicReturn](p, 1); m.ReplyText != "NO_ROUTE" {
		t.Errorf("returned: %+v", m)
	}
	p.content(1)
	p.confirms(1)
	p.holds(2, "q", 1)
	if n := p.conn.Counters(); n.Dropped != 1 || n.Returned != 1 || n.Published != 3 {
		t.Errorf("counted %d dropped, %d returned of %d", n.Dropped, n.Returned, n.Published)
	}
}

// A filter used to remember messages that were refused before they could be routed. Now it is asked only about the others.
func TestFiltersAreNotAskedAboutRefusedMessages(t *testing.T) {
	p, s := withBoard(t)
	p.pluginExchange("f", "topic", amqp.Field{Key: "x-once", Value: true})
	invalid := amqp.Properties{UserID: "somebody else"}
	invalid.Set(amqp.PropUserID)
	p.publish(1, published{exchange: "f", key: "k", body: "a", props: invalid})
	p.closed(1, 406, "PRECONDITION_FAILED - user_id property set to 'somebody else' but authenticated user was 'guest'")
	if len(s.known) > 0 {
		t.Errorf("the filter knows %q", s.known)
	}
}

// A transaction's messages are routed when they are published; a commit does not call plugins again.
func TestPluginsAndTransactions(t *testing.T) {
	p, s := withBoard(t)
	p.pluginExchange("x", "x-volatile")
	do[*amqp.TxSelectOK](p, 1, &amqp.TxSelect{})
	p.publish(1, published{exchange: "x", key: "k", body: "a"}, published{exchange: "x", key: "k", body: "b"})
	p.queue(2, "other") // the topology changes before the commit
	do[*amqp.QueueBindOK](p, 2, &amqp.QueueBind{Queue: "other", Exchange: "x", RoutingKey: "k"})
	p.commit(1)
	p.holds(2, "q", 2)
	p.holds(2, "other", 0)
	if s.asked != 2 {
		t.Errorf("asked %d times about 2 messages", s.asked)
	}
	p.publish(1, published{exchange: "x", key: "panic"})
	p.closed(1, 406, "PRECONDITION_FAILED - the plugin 'board' failed to route a message through exchange 'x' in vhost '/'")
}

// The copies of the firehose go through plugins' exchanges, too.
func TestPluginsAndFirehose(t *testing.T) {
	p, s := withBoard(t)
	do[*amqp.ExchangeDeclareOK](p, 1, &amqp.ExchangeDeclare{Exchange: "copies", Type: "x-reads"})
	p.queue(1, "copied")
	do[*amqp.QueueBindOK](p, 1, &amqp.QueueBind{Queue: "copied", Exchange: "copies", RoutingKey: ""})
	do[*amqp.ExchangeBindOK](p, 1, &amqp.ExchangeBind{Source: vhost.TraceExchange, Destination: "copies", RoutingKey: "#"})
	p.trace(true)
	p.publish(1, published{key: "q", body: "a"})
	p.holds(2, "copied", 1)
	if len(s.seen) != 1 || !strings.HasPrefix(s.seen[0], "publish. [] 0  "+vhost.TraceExchange+" a ") {
		t.Errorf("got %q", s.seen)
	}
}
