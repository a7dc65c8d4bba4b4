package queue

import (
	"bytes"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/curfewmq/curfew/core/campaign"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Properties that messages of one batch have in common are written once.
func TestPropertiesAreWrittenOnce(t *testing.T) {
	q, _, j := durable(t, Config{}, hook.Hooks{})
	b := NewBatch()
	const n = 100
	for id := range uint64(n) {
		m := persist(id)
		m.Props = bytes.Repeat([]byte("x-death "), 60)
		b.Messages = append(b.Messages, m)
	}
	q.enqueue(second, b)
	q.commit(nil)
	if size := len(j.entries[0].ops); len(j.entries) != 1 || size > n*100 {
		t.Errorf("%d messages take %d bytes in %d entries", n, size, len(j.entries))
	}
	if used := j.used[1]; used != int64(len(j.entries[0].ops)) {
		t.Errorf("%d bytes are of use of the %d that were written", used, len(j.entries[0].ops))
	}
}

// Whatever happens to messages that have properties in common, a restart finds them as they were, the journal knows what of it is
// of use, and in the end nothing is.
func TestCampaignWrittenPropertiesModel(t *testing.T) {
	for seed := range campaign.Size(t, "SIMULATION_SEEDS", 6, 15) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			w := &written{props: map[uint64][]byte{}, out: map[uint64]Ref{}, rnd: rand.New(rand.NewPCG(seed, 0))}
			w.q, _, w.j = durable(t, Config{Profile: &Profile{Levels: int(seed % 3)}}, hook.Hooks{})
			for range 300 {
				w.step(t)
				w.q.commit(nil)
				w.j.check(t, w.q)
			}
			w.restart(t)
			for len(w.out) > 0 {
				w.settle(Ack)
			}
			w.q.Purge(second)
			w.clean(t)
			if s := w.q.Stats(); s.Ready != 0 {
				t.Errorf("%d are left", s.Ready)
			}
			for e, n := range w.j.used {
				if n != 0 {
					t.Errorf("%d bytes of extent %d are of use to nobody", n, e)
				}
			}
		})
	}
}

// written is a durable queue, and the properties that its messages should have.
type written struct {
	q     *Queue
	j     *memoryJournal
	rnd   *rand.Rand
	next  uint64
	props map[uint64][]byte // of those that are there
	out   map[uint64]Ref    // those that are delivered
}

var commonProps = [][]byte{bytes.Repeat([]byte("a"), 300), bytes.Repeat([]byte("b"), 300), bytes.Repeat([]byte("c"), 20), noProps}

func (w *written) step(t *testing.T) {
	t.Helper()
	switch w.rnd.IntN(10) {
	case 0, 1, 2, 3:
		w.publish()
	case 4, 5:
		for range w.rnd.IntN(20) {
			w.q.Get(second, nil2(), func(d Delivery, _ int) { w.see(t, d) })
		}
	case 6:
		w.settle([]SettleKind{Ack, Requeue, Return}[w.rnd.IntN(3)])
	case 7:
		for more := w.j.extent > 1; more; {
			more = w.q.Relocate(w.j.extent - 1)
		}
		w.j.trim()
	case 8:
		w.restart(t)
	case 9:
		if w.rnd.IntN(4) == 0 {
			w.q.Purge(second)
			w.clean(t)
			for id := range w.props {
				if _, out := w.out[id]; !out {
					delete(w.props, id)
				}
			}
		}
	}
}

func (w *written) publish() {
	b := NewBatch()
	kind := w.rnd.IntN(len(commonProps))
	for range 1 + w.rnd.IntN(40) {
		if w.rnd.IntN(8) == 0 {
			kind = w.rnd.IntN(len(commonProps))
		}
		m := message(w.next, w.rnd.IntN(100))
		m.Flags, m.Props, m.Priority = Persistent, commonProps[kind], uint8(w.rnd.IntN(3))
		if w.rnd.IntN(10) == 0 {
			m.Routing = &RoutingInfo{Exchange: "x", Key: "k", BCC: []string{"blind", "deaf"}}
		}
		w.props[w.next] = m.Props
		w.next++
		b.Messages = append(b.Messages, m)
	}
	w.q.enqueue(second, b)
}

func (w *written) see(t *testing.T, d Delivery) {
	t.Helper()
	id := idOf(d.Body)
	if want, ok := w.props[id]; !ok || !bytes.Equal(d.Props, want) {
		t.Fatalf("message %d, which is there: %v, has the properties %.40q, want %.40q", id, ok, d.Props, want)
	}
	w.out[id] = d.Ref
}

func (w *written) settle(kind SettleKind) {
	var items []PendingAck
	for id, ref := range w.out {
		if w.rnd.IntN(2) == 0 {
			continue
		}
		items = append(items, PendingAck{Ref: ref})
		delete(w.out, id)
		if kind == Ack {
			delete(w.props, id)
		}
	}
	w.q.settleAll(second, kind, items)
}

// restart has the queue made anew of what is written, and looks at all of it.
func (w *written) restart(t *testing.T) {
	t.Helper()
	w.clean(t)
	w.q.commit(nil)
	w.q = w.j.reborn(t, w.q)
	clear(w.out)
	w.j.check(t, w.q)
	for w.q.Get(second, nil2(), func(d Delivery, _ int) { w.see(t, d) }) {
	}
	if len(w.out) != len(w.props) {
		t.Fatalf("%d messages after a restart, want %d", len(w.out), len(w.props))
	}
	w.settle(Requeue)
}

func (w *written) clean(t *testing.T) {
	t.Helper()
	for w.q.garbage != nil {
		w.q.freeGarbage()
	}
	w.q.commit(nil)
	w.j.check(t, w.q)
}
