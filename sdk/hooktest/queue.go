package hooktest

import (
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// Spec describes a queue. Empty fields have the defaults of a plain queue.
type Spec struct {
	VHost    string         // "/"
	Name     string         // "q"
	Type     string         // "classic"
	Strategy string         // "deadline"
	Settings map[string]any // by policy name: "message-ttl", not "x-message-ttl"

	Ready      int
	ReadyBytes int64
	Unacked    int
	Held       int
	Consumers  int
	Credit     int
}

// Queue is a [hook.Queue] made from a Spec, which may be changed between calls.
type Queue struct {
	Spec

	onCount func() // called when a live count is read, if set
}

var _ hook.Queue = (*Queue)(nil)

// NewQueue returns a queue described by s.
func NewQueue(s Spec) *Queue {
	for field, otherwise := range map[*string]string{&s.VHost: "/", &s.Name: "q", &s.Type: "classic", &s.Strategy: "deadline"} {
		if *field == "" {
			*field = otherwise
		}
	}
	return &Queue{Spec: s}
}

// VHost implements [hook.Queue].
func (q *Queue) VHost() string { return q.Spec.VHost }

// Name implements [hook.Queue].
func (q *Queue) Name() string { return q.Spec.Name }

// Type implements [hook.Queue].
func (q *Queue) Type() string { return q.Spec.Type }

// Strategy implements [hook.Queue].
func (q *Queue) Strategy() string { return q.Spec.Strategy }

// Setting implements [hook.Queue].
func (q *Queue) Setting(name string) (any, bool) {
	v, ok := q.Settings[name]
	return v, ok
}

// Ready implements [hook.Queue].
func (q *Queue) Ready() int { return q.count(q.Spec.Ready) }

// ReadyBytes implements [hook.Queue].
func (q *Queue) ReadyBytes() int64 {
	q.count(0)
	return q.Spec.ReadyBytes
}

// Unacked implements [hook.Queue].
func (q *Queue) Unacked() int { return q.count(q.Spec.Unacked) }

// Held implements [hook.Queue].
func (q *Queue) Held() int { return q.count(q.Spec.Held) }

// Consumers implements [hook.Queue].
func (q *Queue) Consumers() int { return q.count(q.Spec.Consumers) }

// Credit implements [hook.Queue].
func (q *Queue) Credit() int { return q.count(q.Spec.Credit) }

func (q *Queue) count(n int) int {
	if q.onCount != nil {
		q.onCount()
	}
	return n
}

// Enter changes the counts as the broker does when a message is enqueued with verdict v. An
// empty queue delivers the message to a consumer with credit, or drops it if it is due. A
// held message does not count; any other becomes ready.
func (q *Queue) Enter(now hook.Instant, m *hook.Message, v *hook.Verdict) {
	s := &q.Spec
	switch {
	case v.Action != hook.Keep:
	case v.Hold > now:
		s.Held++
	case s.Ready == 0 && s.Credit > 0:
		s.Credit--
		s.Unacked++
	case s.Ready == 0 && v.Deadline != 0 && v.Deadline <= now:
	default:
		s.Ready++
		s.ReadyBytes += int64(m.Size)
	}
}

// Content has a message's data beyond the fields of [hook.Message].
type Content struct {
	Exchange, RoutingKey string
	Headers              map[string]any
	Deaths               int
	Parts                map[hook.Part][]byte // other parts
}

// Source is a [hook.Source] made from contents, one for each message.
type Source []Content

var _ hook.Source = (*Source)(nil)

// Part implements [hook.Source].
func (s *Source) Part(i int, p hook.Part) []byte {
	c := &(*s)[i]
	switch p {
	case hook.PartExchange:
		return []byte(c.Exchange)
	case hook.PartRoutingKey:
		return []byte(c.RoutingKey)
	}
	return c.Parts[p]
}

// Header implements [hook.Source].
func (s *Source) Header(i int, name string) (any, bool) {
	v, ok := (*s)[i].Headers[name]
	return v, ok
}

// HeaderInt implements [hook.Source].
func (s *Source) HeaderInt(i int, name string) (int64, bool) {
	return hook.HeaderInt((*s)[i].Headers[name])
}

// HeaderText implements [hook.Source].
func (s *Source) HeaderText(i int, name string) ([]byte, bool) {
	switch v := (*s)[i].Headers[name].(type) {
	case string:
		return []byte(v), true
	case []byte:
		return v, true
	}
	return nil, false
}

// Deaths implements [hook.Source].
func (s *Source) Deaths(i int) int { return (*s)[i].Deaths }

// Bind gives messages their contents; messages without one get empty contents.
func Bind(ms []hook.Message, contents ...Content) {
	s := make(Source, max(len(ms), len(contents)))
	copy(s, contents)
	for i := range ms {
		ms[i].Bind(&s, i)
	}
}

// Messages returns ms with empty contents.
func Messages(ms ...hook.Message) []hook.Message {
	Bind(ms)
	return ms
}

// Scribble overwrites messages after a callback, as the broker does in tests: a plugin that retained them reads garbage, and panics when it
// reads their contents.
func Scribble(ms []hook.Message) {
	for i := range ms {
		ms[i] = hook.Message{
			Enqueued: -1, Deadline: -1, State: -1, Expiration: -1, Size: -1,
			Deliveries: 1<<32 - 1, Priority: 255, Why: 255, Redelivered: true, Persistent: true, Traced: true,
		}
		guest.SetMessageDigest(&ms[i], 1<<64-1)
		ms[i].Bind(returned{}, -1)
	}
}

// returned is the source of messages after their callback.
type returned struct{}

const kept = "hooktest: a message was read after its callback had returned"

func (returned) Part(int, hook.Part) []byte            { panic(kept) }
func (returned) Header(int, string) (any, bool)        { panic(kept) }
func (returned) HeaderInt(int, string) (int64, bool)   { panic(kept) }
func (returned) HeaderText(int, string) ([]byte, bool) { panic(kept) }
func (returned) Deaths(int) int                        { panic(kept) }
