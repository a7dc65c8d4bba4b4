package queue

import (
	"sync"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// maxBatch is how many messages a hook sees at once, and how many due ones a
// turn handles before others have theirs.
const maxBatch = 256

// turnBuffers is room for one turn's batches. Queues borrow one for a turn, so that
// an idle queue owns none.
type turnBuffers struct {
	messages []hook.Message
	verdicts []hook.Verdict
	entering incomingView
	leaving  storedView
	picks    []pick // chosen to be handed out
	due      []pick // chosen to go before their hooks
	parting  []pick // that have waited to leave
	asked    []pick // kept by their hooks, which were asked because they are next
	records  []record
	delivery []Delivery
	dead     []DeadLetter
	left     []telemetry.Removal
	ops      opBuffer
}

// pick is a message chosen for something.
type pick struct {
	seq   uint64
	level int32
	back  bool // it had come back: head had passed it when it was chosen
	next  bool // it is next, and put before its hooks for this
}

func (p pick) ref() Ref { return ref(int(p.level), p.seq) }

// abandon forgets what a turn was doing that did not come to its end, but for what it
// noted: the next turn is another queue's.
func (w *turnBuffers) abandon() {
	w.entering, w.leaving.picks, w.leaving.queue = incomingView{}, nil, nil
	w.asked, w.ops.enqueued = w.asked[:0], 0
}

var turnBufferPool = sync.Pool{New: func() any { return new(turnBuffers) }}

// batch returns n cleared messages and verdicts.
func (w *turnBuffers) batch(n int) ([]hook.Message, []hook.Verdict) {
	if cap(w.messages) < n {
		w.messages = make([]hook.Message, maxBatch)
		w.verdicts = make([]hook.Verdict, maxBatch)
	}
	clear(w.verdicts[:n])
	return w.messages[:n], w.verdicts[:n]
}

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
func (v *pluginView) Consumers() int                  { return v.consumers.count() }
func (v *pluginView) Credit() int                     { return v.consumers.credit() }

// incomingView lets hooks look into messages that are about to enter.
type incomingView struct {
	ms    []Message
	queue *Queue
	now   hook.Instant
}

var (
	_ hook.Source  = (*incomingView)(nil)
	_ hook.Witness = (*incomingView)(nil)
)

// Part implements [hook.Source].
func (s *incomingView) Part(i int, p hook.Part) []byte {
	m := &s.ms[i]
	switch p {
	case hook.PartExchange:
		return amqp.BytesOf(m.Routing.Exchange)
	case hook.PartRoutingKey:
		return amqp.BytesOf(m.Routing.Key)
	case hook.PartBody:
		return m.Body
	}
	return property(m.Props, p)
}

func (s *incomingView) Header(i int, name string) (any, bool) { return header(s.ms[i].Props, name) }

func (s *incomingView) HeaderInt(i int, name string) (int64, bool) {
	return headerInt(s.ms[i].Props, name)
}

func (s *incomingView) HeaderText(i int, name string) ([]byte, bool) {
	return headerText(s.ms[i].Props, name)
}

func (s *incomingView) Deaths(i int) int {
	return deaths(s.ms[i].Props, s.ms[i].Flags&HasDeathHistory != 0)
}

// Decided implements [hook.Witness].
func (s *incomingView) Decided(i int, d *hook.Decision) {
	m := &s.ms[i]
	s.queue.decided(s.now, d, &telemetry.Message{
		Exchange: amqp.BytesOf(m.Routing.Exchange), Key: amqp.BytesOf(m.Routing.Key), Props: m.Props, Size: len(m.Body),
	})
}

// storedView lets hooks look into messages of the queue.
type storedView struct {
	records []record
	picks   []pick
	queue   *Queue
	now     hook.Instant
}

var (
	_ hook.Source  = (*storedView)(nil)
	_ hook.Witness = (*storedView)(nil)
)

// Part implements [hook.Source].
func (s *storedView) Part(i int, p hook.Part) []byte {
	r := &s.records[i]
	switch p {
	case hook.PartExchange:
		return r.exchange
	case hook.PartRoutingKey:
		return r.key
	case hook.PartBody:
		return r.body
	}
	return property(r.props, p)
}

func (s *storedView) Header(i int, name string) (any, bool) { return header(s.records[i].props, name) }

func (s *storedView) HeaderInt(i int, name string) (int64, bool) {
	return headerInt(s.records[i].props, name)
}

func (s *storedView) HeaderText(i int, name string) ([]byte, bool) {
	return headerText(s.records[i].props, name)
}

func (s *storedView) Deaths(i int) int {
	p := s.picks[i]
	at := s.queue.levels[p.level].slot(p.seq)
	return deaths(s.records[i].props, at.flags&hasDeathHistory != 0)
}

// Decided implements [hook.Witness].
func (s *storedView) Decided(i int, d *hook.Decision) {
	r := &s.records[i]
	s.queue.decided(s.now, d, &telemetry.Message{Exchange: r.exchange, Key: r.key, Props: r.props, Size: len(r.body)})
}

func headers(props []byte) amqp.RawTable {
	x, err := amqp.ScanProps(props)
	if err != nil { // the session checked them
		return nil
	}
	return x.Headers(props)
}

func header(props []byte, name string) (any, bool) {
	v, ok, err := headers(props).Lookup(name)
	if err != nil {
		return nil, false
	}
	return v, ok
}

func headerInt(props []byte, name string) (int64, bool) {
	f, ok := headers(props).LookupRaw(name)
	if !ok {
		return 0, false
	}
	if n, ok := f.Int(); ok {
		return n, true
	}
	if x, ok := f.Float(); ok {
		return hook.WholeFloat(x)
	}
	b, _ := f.Text()
	return hook.WholeText(b)
}

func headerText(props []byte, name string) ([]byte, bool) {
	f, ok := headers(props).LookupRaw(name)
	if !ok {
		return nil, false
	}
	return f.Text()
}

// property returns a part of a message that is a property.
func property(props []byte, p hook.Part) []byte {
	x, err := amqp.ScanProps(props)
	if err != nil { // the session checked them
		return nil
	}
	var b []byte
	switch p {
	case hook.PartMessageID:
		b, _ = x.MessageID(props)
	case hook.PartType:
		b, _ = x.Type(props)
	case hook.PartAppID:
		b, _ = x.AppID(props)
	case hook.PartUserID:
		b, _ = x.UserID(props)
	case hook.PartExpiration:
		b, _ = x.Expiration(props)
	case hook.PartHeaders:
		b = x.Headers(props)
	}
	return b
}

// deaths sums the counts of the x-death table, if it is the broker's own.
func deaths(props []byte, ours bool) int {
	if !ours {
		return 0
	}
	v, _ := header(props, "x-death")
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
