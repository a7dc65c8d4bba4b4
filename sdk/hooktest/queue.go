package hooktest

import "github.com/curfewmq/curfew/sdk/hook"

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
