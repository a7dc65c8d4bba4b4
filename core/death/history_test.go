package death

import (
	"bytes"
	"strconv"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

type step struct {
	queue  string
	reason hook.Reason
}

// live makes a message die several times and returns the recorder.
func live(t *testing.T, steps []step) *Recorder {
	t.Helper()
	r := new(Recorder)
	m := properties(nil, "")
	for i, s := range steps {
		m = record(t, r, died(s.queue, s.reason, "", second, s.queue), m, i > 0)
	}
	return r
}

func TestCycle(t *testing.T) {
	const (
		expired, rejected = hook.ReasonExpired, hook.ReasonRejected
		maxlen, limit     = hook.ReasonMaxLen, hook.ReasonDeliveryLimit
	)
	for _, c := range []struct {
		name  string
		steps []step
		yes   []string
		no    []string
	}{
		{"to itself", []step{{"a", expired}}, []string{"a"}, []string{"b", ""}},
		{"to itself, rejected", []step{{"a", rejected}}, nil, []string{"a"}},
		{"to itself, maxlen", []step{{"a", maxlen}}, []string{"a"}, []string{"b"}},
		{"to itself, delivery limit", []step{{"a", limit}}, []string{"a"}, []string{"b"}},
		{"two queues", []step{{"a", expired}, {"b", maxlen}}, []string{"a", "b"}, []string{"c"}},
		{"rejected on the way", []step{{"a", expired}, {"b", rejected}, {"c", expired}}, []string{"c"}, []string{"a", "b"}},
		{"rejected before the way", []step{{"b", rejected}, {"a", expired}, {"c", expired}}, []string{"a", "c"}, []string{"b", "d"}},
		{"rejected there, expired elsewhere", []step{{"a", rejected}, {"b", expired}}, []string{"b"}, []string{"a"}},
		{"rejected and expired there", []step{{"a", rejected}, {"b", expired}, {"a", expired}}, []string{"a", "b"}, []string{"c"}},
		{"rejected again", []step{{"a", rejected}, {"b", expired}, {"a", expired}, {"a", rejected}}, nil, []string{"a", "b", "c"}},
		{"the newest entry of a queue counts", []step{{"a", expired}, {"b", rejected}, {"a", maxlen}}, []string{"a"}, []string{"b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := live(t, c.steps).History()
			for _, q := range c.yes {
				if !h.Cycle(q) {
					t.Errorf("no cycle to %q", q)
				}
			}
			for _, q := range c.no {
				if h.Cycle(q) {
					t.Errorf("a cycle to %q", q)
				}
			}
		})
	}
}

// An x-death written by a client does not make a cycle.
func TestClientDeathsMakeNoCycle(t *testing.T) {
	var r Recorder
	forged := xdeath(entry("", 1, "expired", "a", 1, "", "a"))
	m := record(t, &r, died("b", hook.ReasonExpired, "", second, "b"), properties(forged, ""), false)
	if r.History().Cycle("a") {
		t.Error("a cycle to a, where the message never was")
	}
	record(t, &r, died("c", hook.ReasonExpired, "", second, "c"), m, true)
	if r.History().Cycle("a") || !r.History().Cycle("b") {
		t.Error("wrong history after the second death")
	}
}

func TestWarning(t *testing.T) {
	h := live(t, []step{{"b", hook.ReasonExpired}, {"a", hook.ReasonExpired}}).History()
	want := `Message dropped because the following list of queues (ordered by death recency) contains a dead letter cycle without reason 'rejected'. This list will not be logged again: [<<"b">>,<<"a">>,<<"b">>]`
	if got := h.Warning("b"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestWarnings(t *testing.T) {
	var w Warnings
	once := func(h *History, queue string) {
		t.Helper()
		if !w.First(h, queue) || w.First(h, queue) {
			t.Errorf("%q: not once", h.Warning(queue))
		}
	}
	once(&History{queue: "a"}, "a")
	once(&History{queue: "b"}, "a")
	once(&History{queue: "a"}, "b")
	once(&History{queue: "a", earlier: []earlier{{queue: []byte("b")}}}, "a")
	once(&History{queue: "a", earlier: []earlier{{queue: []byte("c")}, {queue: []byte("b")}}}, "a")
	once(&History{queue: "ab"}, "")
	once(&History{queue: "b"}, "a\x00")
	for i := range 3 * maxWarnings {
		w.First(&History{queue: strconv.Itoa(i)}, "a")
	}
	if len(w.seen) > maxWarnings {
		t.Errorf("remembers %d", len(w.seen))
	}
}

func BenchmarkAppend(b *testing.B) {
	d := died("orders", hook.ReasonExpired, "shop", 1700000000*second, "order.new")
	var r Recorder
	r.Prepare(d)
	headers := table{{Key: "traceparent", Value: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}, {Key: "attempt", Value: int32(1)}, {Key: "tenant", Value: "acme"}}
	bare, few := properties(nil, "5000"), properties(headers, "5000")
	once, _ := r.Append(nil, few, false)
	others := bytes.Replace(once, []byte("acme"), []byte("emca"), 1)
	for _, c := range []struct {
		name     string
		props    [2][]byte // in turn
		recorded bool
		keys     bool
	}{
		{"bare", [2][]byte{bare, bare}, false, false},
		{"headers", [2][]byte{few, few}, false, false},
		{"again", [2][]byte{once, once}, true, false},
		{"again, other headers each", [2][]byte{once, others}, true, false},
		{"new keys each", [2][]byte{bare, bare}, false, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			buf := make([]byte, 0, 4096)
			keys := [2][][]byte{{[]byte("order.new")}, {[]byte("order.old")}}
			cycles, i := 0, 0
			for b.Loop() {
				i++
				if c.keys {
					d.Keys = keys[i%2]
				}
				r.Prepare(d)
				buf, _ = r.Append(buf[:0], c.props[i%2], c.recorded)
				if r.History().Cycle("dead") {
					cycles++
				}
			}
		})
	}
}
