package session

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// holdings is a plugin that reads holds: milliseconds and a time.
type holdings struct {
	hook.NoHooks
	asked int
}

func (*holdings) HoldHeaders() []string { return []string{"after", "at"} }

func (h *holdings) ReadHold(_ hook.Instant, values []any) (w hook.Wait, err error) {
	h.asked++
	if values[0] == "panic" {
		panic("asked for it")
	}
	if values[0] == "no" {
		return hook.Wait{After: 1}, errors.New("invalid header 'after': no")
	}
	w.After, _ = hook.Int(values[0])
	if t, ok := values[1].(time.Time); ok {
		w.Until = hook.Instant(t.UnixNano())
	}
	return w, nil
}

// heldAt is the time at which the messages of these tests enter.
const heldAt = hook.Instant(1_700_000_000 * time.Second)

// withHolds returns a client of a vhost with the plugin and two queues of a fanout exchange, and a function that returns the ends of the
// holds of a queue's messages, in milliseconds from heldAt; 0 means that a message is not held.
func withHolds(t *testing.T) (p *probe, h *holdings, held func(queue string) []int64) {
	t.Helper()
	h = &holdings{}
	v := vhost.New(vhost.Config{Name: "/", Chain: withPlugin(t, h), Clock: func() hook.Instant { return heldAt }, Log: discard()})
	p = newProbe(t, func(o *Options) { o.VHosts = func(string) (*vhost.VHost, bool) { return v, true } })
	p.now = heldAt
	p.open().channel(1)
	for _, name := range []string{"q", "r"} {
		p.queue(1, name)
		do[*amqp.QueueBindOK](p, 1, &amqp.QueueBind{Queue: name, Exchange: "amq.fanout"})
	}
	return p, h, func(name string) (ms []int64) {
		m, err := v.Queue(name, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = m.Do(func(q *queue.Queue, _ hook.Instant) {
			ms = make([]int64, q.Stats().Ready)
			q.HeldFrom(0, 0, func(m *queue.Held) bool {
				ms = append(ms, m.Until.Sub(heldAt).Milliseconds())
				return true
			})
		})
		return ms
	}
}

func to(key string, headers ...any) published {
	return published{key: key, props: headed(headers...)}
}

// headed returns properties with headers: names and values in turn.
func headed(headers ...any) (p amqp.Properties) {
	p.Set(amqp.PropHeaders)
	p.Headers = table(headers...)
	return p
}

func TestPublishersHoldMessages(t *testing.T) {
	for _, tc := range []struct {
		name     string
		messages []published
		want     []int64
	}{
		{"no headers", []published{{key: "q"}}, []int64{0}},
		{"other headers", []published{to("q", "a", int32(1000), "CC", amqp.Array{"r"})}, []int64{0}},
		{"for a time", []published{to("q", "after", int32(1000)), to("q", "after", int32(1000)), to("q", "after", int32(500))}, []int64{500, 1000, 1000}},
		{"for no time", []published{to("q", "after", int32(0))}, []int64{0}},
		{"for the longest time", []published{to("q", "after", int64(hook.MaxMillis))}, []int64{hook.MaxMillis}},
		{"until a time", []published{to("q", "at", amqp.Timestamp(1_700_000_060)), to("q", "at", amqp.Timestamp(1_700_000_060))}, []int64{60_000, 60_000}},
		{"until a time that has passed", []published{to("q", "at", amqp.Timestamp(1_600_000_000))}, []int64{0}},
		{"both, the later one counts", []published{
			to("q", "at", amqp.Timestamp(1_700_000_060), "after", int32(1000)),
			to("q", "after", int32(61_000), "at", amqp.Timestamp(1_700_000_060)),
		}, []int64{60_000, 61_000}},
		{"the next message is not", []published{to("q", "after", int32(1000)), {key: "q"}, to("q", "a", int32(1))}, []int64{0, 0, 1000}},
		{"with CC", []published{to("x", "after", int32(1000), "CC", amqp.Array{"q"})}, []int64{1000}},
		{"without a value", []published{to("q", "after", nil)}, []int64{0}},
	} {
		p, _, held := withHolds(t)
		p.publish(1, tc.messages...)
		p.silent()
		if got := held("q"); !slices.Equal(got, tc.want) {
			t.Errorf("%s: held for %v ms, want %v", tc.name, got, tc.want)
		}
	}
}

// A message is held in each queue that it is routed to.
func TestHeldInEachQueue(t *testing.T) {
	p, _, held := withHolds(t)
	p.publish(1, published{exchange: "amq.fanout", props: headed("after", int32(1000))})
	for _, name := range []string{"q", "r"} {
		if got := held(name); !slices.Equal(got, []int64{1000}) {
			t.Errorf("%s: held for %v ms, want 1000", name, got)
		}
	}
}

// In a transaction the time starts at the commit.
func TestHoldsInATransaction(t *testing.T) {
	p, _, held := withHolds(t)
	do[*amqp.TxSelectOK](p, 1, &amqp.TxSelect{})
	p.publish(1, to("q", "after", int32(1000)))
	if got := held("q"); len(got) > 0 {
		t.Errorf("before the commit: held for %v ms", got)
	}
	p.commit(1)
	if got := held("q"); !slices.Equal(got, []int64{1000}) {
		t.Errorf("held for %v ms, want 1000", got)
	}
}

// The plugin is asked once for consecutive messages with the same properties, unless its answer depends on the time.
func TestHoldsAreReadOnce(t *testing.T) {
	for _, tc := range []struct {
		headers []any
		want    int
	}{
		{[]any{"after", int32(1000)}, 1},
		{[]any{"at", amqp.Timestamp(1_700_000_060)}, 1},
		{[]any{"at", amqp.Timestamp(1_700_000_060), "after", int32(1000)}, 3},
		{[]any{"other", int32(1000)}, 0},
	} {
		p, h, _ := withHolds(t)
		p.publish(1, to("q", tc.headers...), to("q", tc.headers...), to("q", tc.headers...))
		if h.asked != tc.want {
			t.Errorf("%v: asked %d times, want %d", tc.headers, h.asked, tc.want)
		}
	}
}

func TestRefusedHolds(t *testing.T) {
	for value, want := range map[string]string{
		"no":    "PRECONDITION_FAILED - invalid header 'after': no",
		"panic": "PRECONDITION_FAILED - the plugin plugin failed on the headers of the message",
	} {
		p, _, held := withHolds(t)
		p.publish(1, to("q", "after", value))
		p.closed(1, 406, want)
		if got := held("q"); len(got) > 0 {
			t.Errorf("%s: the message is there", value)
		}
	}
}

// A timestamp beyond the range of times is not mistaken for one in the past.
func TestTimestampsOfHolds(t *testing.T) {
	for _, seconds := range []amqp.Timestamp{1 << 62, 1 << 63, math.MaxUint64} {
		if got := timeOf(seconds).Year(); got != 9999 {
			t.Errorf("%d: the year %d", seconds, got)
		}
	}
}
