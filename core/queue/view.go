package queue

import (
	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// pluginView is a Queue as its plugins see it.
type pluginView Queue

var _ hook.Queue = (*pluginView)(nil)

func (v *pluginView) VHost() string                   { return v.cfg.VHost }
func (v *pluginView) Name() string                    { return v.cfg.Name }
func (v *pluginView) Type() string                    { return v.cfg.Kind }
func (v *pluginView) Setting(name string) (any, bool) { return v.cfg.Settings(name) }
func (v *pluginView) Strategy() string                { return v.cfg.Strategy }
func (v *pluginView) Ready() int                      { return v.ready + (*Queue)(v).waiting() }
func (v *pluginView) ReadyBytes() int64               { return v.readyBytes }
func (v *pluginView) Unacked() int                    { return v.unacked }
func (v *pluginView) Held() int                       { return (*Queue)(v).held() }
func (v *pluginView) Consumers() int                  { return v.consumers.count() }
func (v *pluginView) Credit() int                     { return v.consumers.credit() }

// messageView lets hooks look into the messages that they are asked about. Either
// incoming or stored is set.
type messageView struct {
	queue    *Queue
	now      hook.Instant
	incoming []Message // about to enter
	stored   []leaving
	digits   parts.Digits
}

var (
	_ hook.Source   = (*messageView)(nil)
	_ guest.Witness = (*messageView)(nil)
)

// contents returns the bytes of a message, and whether its deaths were recorded by the
// broker.
func (v *messageView) contents(i int) (m telemetry.Message, body []byte, recorded bool) {
	if v.incoming != nil {
		m := &v.incoming[i]
		return telemetry.Message{
			Exchange: amqp.BytesOf(m.Routing.Exchange), Key: amqp.BytesOf(m.Routing.Key), Props: m.Props, Size: len(m.Body),
		}, m.Body, m.Flags&HasDeathHistory != 0
	}
	r, s := &v.stored[i].record, v.queue.at(v.stored[i].ref).slot()
	return telemetry.Message{Exchange: r.exchange, Key: r.key, Props: r.props, Size: len(r.body)}, r.body, s.flags&hasDeathHistory != 0
}

// props returns the properties of a message.
func (v *messageView) props(i int) []byte {
	if v.incoming != nil {
		return v.incoming[i].Props
	}
	return v.stored[i].record.props
}

// Part implements [hook.Source].
func (v *messageView) Part(i int, p hook.Part) []byte {
	switch m, body, _ := v.contents(i); p {
	case hook.PartExchange:
		return m.Exchange
	case hook.PartRoutingKey:
		return m.Key
	case hook.PartBody:
		return body
	default:
		x, err := amqp.ScanProps(m.Props)
		if err != nil { // the session checked them
			return nil
		}
		return parts.Property(m.Props, &x, p, &v.digits)
	}
}

// Header implements [hook.Source].
func (v *messageView) Header(i int, name string) (any, bool) {
	return parts.Header(headers(v.props(i)), name)
}

// HeaderInt implements [hook.Source].
func (v *messageView) HeaderInt(i int, name string) (int64, bool) {
	return parts.HeaderInt(headers(v.props(i)), name)
}

// HeaderText implements [hook.Source].
func (v *messageView) HeaderText(i int, name string) ([]byte, bool) {
	return parts.HeaderText(headers(v.props(i)), name)
}

// Deaths implements [hook.Source].
func (v *messageView) Deaths(i int) int {
	if m, _, recorded := v.contents(i); recorded {
		return deaths(m.Props)
	}
	return 0
}

// Decided implements [guest.Witness].
func (v *messageView) Decided(i int, d *guest.Decision) {
	m, _, _ := v.contents(i)
	m.VHost = v.queue.cfg.VHost
	v.queue.host.Decided(v.queue.cfg, v.now, &m, d)
}

func headers(props []byte) amqp.RawTable {
	x, err := amqp.ScanProps(props)
	if err != nil { // the session checked them
		return nil
	}
	return x.Headers(props)
}

// deaths sums the counts of the x-death table.
func deaths(props []byte) int {
	v, _ := parts.Header(headers(props), "x-death")
	entries, _ := v.(amqp.Array)
	n := 0
	for _, e := range entries {
		t, _ := e.(amqp.Table)
		count, _ := t.Lookup("count")
		c, _ := count.(int64)
		n += int(c)
	}
	return n
}
