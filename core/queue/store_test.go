package queue

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/slab"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

func TestRecordsComeBackAsTheyWere(t *testing.T) {
	long := strings.Repeat("k", 255)
	many := make([]string, 300)
	for i := range many {
		many[i] = strings.Repeat("b", i*3) // a header's key can be longer than a routing key
	}
	for _, o := range []*RoutingInfo{
		{},
		{Exchange: "x", Key: "k"},
		{Exchange: long, Key: long, BCC: []string{""}},
		{Exchange: "", Key: "k", BCC: many},
	} {
		for _, k := range []strategyData{{}, {state: -5}, {digest: 1 << 63}, {-5, 7}} {
			for _, size := range []int{0, 1, 127, 128, 5000, segmentSize - 100, segmentSize, 3 << 20} {
				checkRecord(t, o, k, bytes.Repeat([]byte{'p'}, min(size, 70_000)), bytes.Repeat([]byte{'x'}, size))
			}
		}
	}
}

func checkRecord(t *testing.T, o *RoutingInfo, k strategyData, props, body []byte) {
	t.Helper()
	var s store
	defer s.release()
	m := Message{Routing: o, Props: props, Body: body}
	v := guest.Signed(hook.Verdict{State: k.state}, k.digest)
	flags := slotFlagsOf(&m, &v, strategyDataOf(&v))
	at := s.add(5*second, &m, k, flags)
	if size := recordSize(&m, flags); int(at.length) != size || len(s.at(at.segment).buf) != size {
		t.Fatalf("record of %d bytes was announced as %d", len(s.at(at.segment).buf), size)
	}
	r := s.read(at)
	if string(r.exchange) != o.Exchange || string(r.key) != o.Key || !slices.Equal(blindKeys(r.bcc), o.BCC) ||
		!bytes.Equal(r.props, props) || !bytes.Equal(r.body, body) || r.strategyData != k || r.enqueued != 5*second {
		t.Errorf("a record of %d bytes came back changed", at.length)
	}
}

// Whatever is added and freed in whatever order, what is left can be read, and
// nothing is held in the end.
func TestTheStoreHoldsWhatIsNotFreed(t *testing.T) {
	before := slab.Used()
	rng := rand.New(rand.NewPCG(1, 1))
	var s store
	type kept struct {
		at    slot
		id    uint64
		since hook.Instant
	}
	var all []kept
	for i := range uint64(20_000) {
		now := hook.Instant(i) * 1e6
		m := message(i, rng.IntN(2000))
		all = append(all, kept{s.add(now, &m, strategyData{}, 0), i, now})
		if i%500 < 400 { // it grows for a while, then shrinks
			continue
		}
		for range min(5, len(all)-1) {
			n := rng.IntN(len(all))
			s.free(all[n].at)
			all = slices.Delete(all, n, n+1)
		}
		n := rng.IntN(len(all))
		if s.last() != all[n].at.segment && s.mostlyGone(all[n].at.segment) {
			all[n].at = s.move(all[n].at)
		}
	}
	for _, k := range all {
		if r := s.read(k.at); idOf(r.body) != k.id || r.enqueued != k.since {
			t.Fatalf("message %d of %v is now %d of %v", k.id, k.since, idOf(r.body), r.enqueued)
		}
		s.free(k.at)
	}
	if s.live != 0 {
		t.Errorf("%d bytes are alive in an empty store", s.live)
	}
	s.release()
	if got := slab.Used() - before; got != 0 {
		t.Errorf("%d bytes are still held", got)
	}
}

// A mark is what was said last, whatever it was before, and records with and without one lie side by side. A segment that
// grows under a record takes it along.
// When a message entered its queue is known for as long as it is there, wherever its record is moved.
func TestAgesOfRecordsThatAreMoved(t *testing.T) {
	const day = 24 * 3600 * second
	var s store
	defer s.release()
	type kept struct {
		at      slot
		entered hook.Instant
	}
	var all []kept
	add := func(days hook.Instant) {
		m := message(1, 0)
		all = append(all, kept{s.add(days*day, &m, strategyData{}, 0), days * day})
	}
	endSegment := func(days hook.Instant) {
		m := message(1, segmentSize+1)
		s.free(s.add(days*day, &m, strategyData{}, 0))
	}
	move := func(from int) {
		for i := range all[from:] {
			all[from+i].at = s.move(all[from+i].at)
		}
	}
	add(1)
	for days := hook.Instant(25); days <= 49; days += 24 {
		endSegment(days)
		add(days)
		add(days + 24)
	}
	endSegment(73)
	move(1)
	endSegment(74)
	move(0)
	for i, k := range all {
		if got := s.read(k.at).enqueued; got != k.entered {
			t.Errorf("message %d entered on day %d, want day %d", i, got/day, k.entered/day)
		}
	}
}

func TestMarksChange(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	var s store
	defer s.release()
	type kept struct {
		at slot
		id uint64
		strategyData
	}
	var all []kept
	for i := range uint64(3000) {
		k := kept{id: i, strategyData: strategyData{int64(rng.IntN(2)) * -7, rng.Uint64N(2) * 9}}
		m := message(i, rng.IntN(300))
		k.at = s.add(second, &m, k.strategyData, k.flags())
		all = append(all, k)
		for range 3 {
			k := &all[rng.IntN(len(all))]
			k.strategyData = strategyData{rng.Int64N(3) - 1, rng.Uint64N(2) << 63}
			s.setStrategyData(&k.at, k.strategyData)
		}
		if i%7 == 0 {
			n := rng.IntN(len(all))
			s.free(all[n].at)
			all = slices.Delete(all, n, n+1)
		}
	}
	for _, k := range all {
		r := s.read(k.at)
		if idOf(r.body) != k.id || r.strategyData != k.strategyData || r.enqueued != second || string(r.key) != "key" {
			t.Fatalf("message %d with %+v came back as %d with %+v, entered at %v", k.id, k.strategyData, idOf(r.body), r.strategyData, r.enqueued)
		}
	}
}

// A body that somebody holds on to stays as it is when its message is gone and the queue has others, whatever becomes of the
// segment; its memory is given back when nobody holds it.
func TestHeldBodies(t *testing.T) {
	before := slab.Used()
	for name, forget := range map[string]func(s *store, at slot){
		"freed":    func(s *store, at slot) { s.free(at) },
		"released": func(s *store, _ slot) { s.release() },
	} {
		for _, size := range []int{WorthHolding, segmentSize / 2, segmentSize, 3 << 20} {
			var s store
			add := func(b byte) slot {
				return s.add(0, &Message{Routing: &RoutingInfo{}, Body: bytes.Repeat([]byte{b}, size)}, strategyData{}, 0)
			}
			at := add('x')
			k, body := s.block(at.segment), s.read(at).body
			k.Retain()
			forget(&s, at)
			for range 20 {
				s.free(add('y'))
			}
			add('z')
			if !bytes.Equal(body, bytes.Repeat([]byte{'x'}, size)) {
				t.Errorf("%s: %d bytes that are held have changed", name, size)
			}
			k.Release()
			s.release()
			if n := slab.Used() - before; n != 0 {
				t.Errorf("%s: of %d bytes, %d are held in the end", name, size, n)
			}
		}
	}
}

// A segment that grows leaves what it had to those who hold it.
func TestHeldBodyOfASegmentThatGrows(t *testing.T) {
	before := slab.Used()
	var s store
	m := Message{Routing: &RoutingInfo{}, Body: bytes.Repeat([]byte{'x'}, WorthHolding)}
	at := s.add(0, &m, strategyData{}, 0)
	k, body := s.block(at.segment), s.read(at).body
	k.Retain()
	if next := s.add(0, &m, strategyData{}, 0); next.segment != at.segment {
		t.Fatal("the segment did not grow")
	}
	s.free(at)
	if now := s.read(slot{segment: at.segment, offset: at.length, length: at.length}); &now.body[0] == &body[0] {
		t.Fatal("it lies where it lay")
	}
	var others [20][]byte // none of which is that
	for i := range others {
		others[i] = slab.Alloc(len(k.Buf))
		clear(others[i])
	}
	if !bytes.Equal(body, m.Body) {
		t.Error("a body that is held has changed")
	}
	for _, b := range others {
		slab.Free(b)
	}
	k.Release()
	if s.release(); slab.Used() != before {
		t.Errorf("%d bytes are held in the end", slab.Used()-before)
	}
}

// What a queue kept to fill it again when all that was in it had left stayed for ever, when the next message was too large for it:
// a queue that was empty most of the time held some MiB.
func TestEmptiedSegmentsAreGivenBack(t *testing.T) {
	before := slab.Used()
	var s store
	for i := range 1000 {
		for _, size := range []int{100, 20_000, 2 * segmentSize, segmentSize - 1000} {
			s.free(s.add(hook.Instant(i), &Message{Routing: &RoutingInfo{}, Body: make([]byte, size)}, strategyData{}, 0))
		}
	}
	if s.residentBytes > segmentSize || len(s.segments) > 2 || slab.Used()-before != int64(s.residentBytes) {
		t.Errorf("it holds %d bytes in %d segments, %d in all, of no message", s.residentBytes, len(s.segments), slab.Used()-before)
	}
	s.release()
}
