package telemetry

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

func props(id string) []byte {
	p := amqp.Properties{MessageID: id}
	p.Set(amqp.PropMessageID)
	return p.Append(nil)
}

// readAll reads the events after a number, and counts the missed ones.
func readAll(r *Ring, after uint64) (all []Event, missed uint64) {
	buffer := make([]Event, 7)
	for {
		n := r.Read(after, buffer)
		if n == 0 {
			return all, missed
		}
		for _, e := range buffer[:n] {
			missed += e.Seq - after - 1
			after = e.Seq
			all = append(all, e)
		}
	}
}

func TestEvents(t *testing.T) {
	now := hook.Instant(1_000_000_000)
	r := New(Options{Events: 8, Clock: func() hook.Instant { return now }})
	place := QueueRef{VHost: "/", Queue: "q", Strategy: "deadline"}
	target := &hook.Target{Exchange: "dlx"}
	r.Removed(&place, now, []Removal{
		{Reason: hook.ReasonExpired, Outcome: DeadLettered, Target: target, Exchange: []byte("x"), Key: []byte("k"), Props: props("id-1"), Deadline: now - 5, Size: 3},
		{Reason: hook.ReasonExpired, Outcome: Dropped},
		{Reason: hook.ReasonRejected, Outcome: DeadLettered, Target: target},
		{Reason: hook.ReasonMaxLen, Outcome: Unroutable, Target: target},
		{Reason: hook.ReasonExpired, Outcome: Cycle, Target: target},
	})
	r.QueueExpired(&place, now, &QueueEnd{LastUse: 1, Lease: 2, Messages: 3, DeadLettered: 4})
	r.Notice(Notice{Kind: AlarmRaised, Name: "disk"})

	ring := r.Events()
	if ring.First() != 1_000_000 || ring.Last() != ring.First()+7 {
		t.Errorf("events %d to %d, want 7 from 1000001 on", ring.First()+1, ring.Last())
	}
	all, missed := readAll(ring, ring.First())
	var kinds []Kind
	for _, e := range all {
		kinds = append(kinds, e.Kind)
	}
	want := []Kind{MessageExpired, MessageExpired, MessageDeadLettered, MessageDropped, MessageCycle, QueueExpired, AlarmRaised}
	if missed != 0 || !slices.Equal(kinds, want) {
		t.Fatalf("missed %d, got %v, want %v", missed, kinds, want)
	}
	e := &all[0]
	id, _ := e.MessageID()
	key, _ := e.RoutingKey()
	exchange, cut := e.Exchange()
	if string(id) != "id-1" || string(key) != "k" || string(exchange) != "x" || cut {
		t.Errorf("got id %q, key %q, exchange %q", id, key, exchange)
	}
	if e.QueueRef != place || e.At != now || e.Deadline != now-5 || e.Target != target || e.Size != 3 || e.Outcome != DeadLettered {
		t.Errorf("got %+v", e)
	}
	if q := &all[5]; q.QueueRef != place || q.Since != 1 || q.Deadline != 2 || q.Messages != 3 || q.DeadLettered != 4 {
		t.Errorf("got %+v", q)
	}
	if n := all[6].Notice; n == nil || n.Name != "disk" || all[6].At != now {
		t.Errorf("got %+v", all[6])
	}
}

// A reused entry contains nothing of its previous event.
func TestEventsAreOverwrittenWhole(t *testing.T) {
	r := newRing(1, 0)
	long := []byte(strings.Repeat("é", 100))
	r.removed(&QueueRef{Queue: "a"}, 1, []Removal{{Key: long, Exchange: long, Props: props(string(long)), Deadline: 1, Target: &hook.Target{}, Digest: 1}})
	all, _ := readAll(r, 0)
	id, idCut := all[0].MessageID()
	key, keyCut := all[0].RoutingKey()
	exchange, exchangeCut := all[0].Exchange()
	if !idCut || !keyCut || !exchangeCut || len(id) != maxID || len(key) != maxKey || len(exchange) != maxExchange {
		t.Errorf("kept %d, %d and %d bytes", len(id), len(key), len(exchange))
	}
	r.removed(&QueueRef{Queue: "b"}, 2, []Removal{{Key: []byte("k"), Reason: hook.ReasonRejected}})
	if n := r.Read(1, all); n != 1 || all[0].Seq != 2 {
		t.Fatalf("read %d events, number %d", n, all[0].Seq)
	}
	got := all[0]
	id, idCut = got.MessageID()
	key, keyCut = got.RoutingKey()
	exchange, exchangeCut = got.Exchange()
	if len(id)+len(exchange) > 0 || string(key) != "k" || idCut || keyCut || exchangeCut || got.Target != nil || got.Deadline != 0 || got.Digest != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestWhole(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "a": "a", "é": "é", "é"[:1]: "", "a€"[:3]: "a", "a€": "a€", "\xff\xff": "\xff\xff", "\x80\x80\x80\x80\x80": "\x80\x80\x80\x80\x80", "😀"[:3]: "",
	} {
		if got := trimPartialRune([]byte(in)); string(got) != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// However many messages expire, they do not displace events of the broker.
func TestStormLeavesTheRestAlone(t *testing.T) {
	r := newRing(100, 0)
	r.notice(1, &Notice{Kind: AlarmRaised, Name: "memory"})
	for range 50 {
		r.removed(&QueueRef{}, 2, make([]Removal, 77))
	}
	r.queueExpired(&QueueRef{Queue: "gone"}, 3, &QueueEnd{})
	all, missed := readAll(r, 0)
	if len(all) != 102 || missed != 50*77-100 || all[0].Kind != AlarmRaised || all[101].Kind != QueueExpired {
		t.Errorf("got %d events and missed %d", len(all), missed)
	}
}

func TestBatchLargerThanTheRing(t *testing.T) {
	r := newRing(3, 10)
	batch := make([]Removal, 8)
	for i := range batch {
		batch[i].Size = i
	}
	r.removed(&QueueRef{}, 1, batch)
	all, missed := readAll(r, 10)
	if len(all) != 3 || missed != 5 || all[0].Size != 5 || all[2].Seq != 18 || r.Last() != 18 {
		t.Errorf("got %d events, the first with %d, missed %d", len(all), all[0].Size, missed)
	}
}

func TestNoRing(t *testing.T) {
	r := New(Options{})
	if r.Events() != nil {
		t.Error("there is a ring")
	}
	r.Removed(&QueueRef{}, 1, make([]Removal, 1))
	r.QueueExpired(&QueueRef{}, 1, &QueueEnd{})
	r.Notice(Notice{})
	var none *Recorder
	none.Notice(Notice{})
}

func TestKnows(t *testing.T) {
	r := newRing(4, 100)
	r.removed(&QueueRef{}, 1, make([]Removal, 2))
	for seq, want := range map[uint64]bool{0: false, 99: false, 100: true, 102: true, 103: false} {
		if r.Knows(seq) != want {
			t.Errorf("%d: got %v", seq, !want)
		}
	}
}

func TestWait(t *testing.T) {
	r := newRing(4, 0)
	closed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	first := r.Wait(0)
	if closed(first) {
		t.Fatal("nothing happened yet")
	}
	if again := r.Wait(0); again != first {
		t.Error("those who wait do not share a channel")
	}
	r.notice(1, &Notice{})
	if !closed(first) || !closed(r.Wait(0)) || closed(r.Wait(1)) {
		t.Error("not woken once")
	}
}

// Whatever is written and however it is read, a reader gets every stored event once and in order, and every missed event shows as a
// gap in the numbers.
func TestReadersSeeEverythingOnceOrMissIt(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		r := newRing(1+rng.IntN(200), uint64(rng.IntN(3)))
		var told []Kind // by number
		place := &QueueRef{}
		after, seen := r.First(), 0
		for range 100 {
			switch rng.IntN(5) {
			case 0:
				n := rng.IntN(100)
				r.removed(place, 1, make([]Removal, n))
				told = append(told, slices.Repeat([]Kind{MessageDropped}, n)...)
			case 1:
				r.queueExpired(place, 1, &QueueEnd{})
				told = append(told, QueueExpired)
			case 2:
				kind := AlarmRaised + Kind(rng.IntN(2))
				r.notice(1, &Notice{Kind: kind})
				told = append(told, kind)
			default:
				into := make([]Event, 1+rng.IntN(90))
				n := r.Read(after, into)
				for _, e := range into[:n] {
					if e.Seq <= after {
						t.Fatalf("event %d comes after %d", e.Seq, after)
					}
					after = e.Seq
					seen++
					if want := told[e.Seq-r.First()-1]; e.Kind != want {
						t.Fatalf("event %d is %v, want %v", e.Seq, e.Kind, want)
					}
				}
				if n < len(into) && after != r.Last() {
					t.Fatalf("read to %d, but there is %d", after, r.Last())
				}
			}
		}
		if int(r.Last()-r.First()) != len(told) || seen > len(told) {
			t.Fatalf("%d events are numbered up to %d", len(told), r.Last()-r.First())
		}
	}
}

// Readers and queues run at the same time: for the race detector, and no goroutine waits forever.
func TestRingIsForEverybody(t *testing.T) {
	const writers, batches, size = 3, 200, 10
	r := newRing(64, 0)
	var writing, reading sync.WaitGroup
	for range writers {
		writing.Go(func() {
			for i := range batches {
				r.removed(&QueueRef{Queue: "q"}, hook.Instant(i), make([]Removal, size))
				r.notice(1, &Notice{Kind: AlarmRaised})
			}
		})
	}
	const total = writers * batches * (size + 1)
	for range 2 {
		reading.Go(func() {
			after, seen, missed := uint64(0), uint64(0), uint64(0)
			into := make([]Event, 16)
			for after < total {
				<-r.Wait(after)
				for _, e := range into[:r.Read(after, into)] {
					seen, missed, after = seen+1, missed+e.Seq-after-1, e.Seq
				}
			}
			if seen+missed != total {
				t.Errorf("saw %d and missed %d, want %d together", seen, missed, total)
			}
		})
	}
	writing.Wait()
	reading.Wait()
}

func BenchmarkRing(b *testing.B) {
	batch := make([]Removal, 256)
	for i := range batch {
		batch[i] = Removal{
			Exchange: []byte("orders"), Key: []byte("orders.eu.created"), Props: props("f81d4fae-7dec-11d0-a765-00a0c91e6bf6"),
			Size: 100, Enqueued: 1, Deadline: 2, Reason: hook.ReasonExpired, Target: &hook.Target{Exchange: "dlx"},
		}
	}
	place := &QueueRef{VHost: "/", Queue: "orders", Strategy: "deadline"}
	for _, size := range []int{1, 16, 256} {
		b.Run(map[int]string{1: "one", 16: "some", 256: "many"}[size], func(b *testing.B) {
			r := newRing(4096, 0)
			b.ReportAllocs()
			for n := 0; n < b.N; n += size {
				r.removed(place, 3, batch[:size])
			}
		})
	}
}

// An event of the broker used to keep the queue of a redrive's event whose entry it reused, and passed filters for that queue.
func TestNoticesForgetWhatTheyOverwrite(t *testing.T) {
	r := newRing(1, 0)
	r.notice(1, &Notice{Kind: RedriveFinished, VHost: "v", Redrive: &RedriveEnd{Queue: "q"}})
	for range r.lanes[ofBroker].size {
		r.notice(2, &Notice{Kind: AlarmRaised})
	}
	for i := range r.lanes[ofBroker].length {
		if e := r.lanes[ofBroker].nth(i); e.QueueRef != (QueueRef{}) {
			t.Errorf("event %d is about %+v", e.Seq, e.QueueRef)
		}
	}
}
