package queue

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/slab"
	"github.com/curfewmq/curfew/sdk/hook"
)

func publish(q *Queue, now hook.Instant, ids ...uint64) {
	b := NewBatch()
	for _, id := range ids {
		b.Messages = append(b.Messages, message(id, 0))
	}
	q.enqueue(now, b)
}

func consume(t *testing.T, q *Queue, c Consumer, room int) (*Consumer, *sink) {
	t.Helper()
	s := &sink{room: room}
	c.Sink = s
	if err := q.AddConsumer(second, &c); err != nil {
		t.Fatal(err)
	}
	return &c, s
}

func wantIDs(t *testing.T, what string, got []uint64, want ...uint64) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func TestConsumersAreServedInTurn(t *testing.T) {
	q, _ := passive(t, Config{}, hook.Hooks{})
	_, a := consume(t, q, Consumer{Tag: "a"}, 100)
	_, b := consume(t, q, Consumer{Tag: "b", NoAck: true}, 100)
	_, c := consume(t, q, Consumer{Tag: "c"}, 100)
	publish(q, second, 1, 2, 3, 4, 5, 6, 7)
	wantIDs(t, "a", a.take(), 1, 4, 7)
	wantIDs(t, "b", b.take(), 2, 5)
	wantIDs(t, "c", c.take(), 3, 6)
	checkSums(t, q)
}

// A consumer that came, or had credit again, between two rounds was served before one that waited for longer.
func TestANewConsumerIsServedAfterThoseThatWait(t *testing.T) {
	q, _ := passive(t, Config{}, hook.Hooks{})
	_, a := consume(t, q, Consumer{Tag: "a"}, 100)
	publish(q, second, 1)
	_, b := consume(t, q, Consumer{Tag: "b"}, 100)
	publish(q, second, 2)
	wantIDs(t, "a alone, then before b", a.take(), 1, 2)
	_, c := consume(t, q, Consumer{Tag: "c"}, 100)
	publish(q, second, 3, 4, 5, 6)
	wantIDs(t, "a", a.take(), 4)
	wantIDs(t, "b", b.take(), 3, 6)
	wantIDs(t, "c", c.take(), 5)
	checkSums(t, q)
}

func TestHigherPriorityConsumersAreServedFirstWhileTheyHaveCredit(t *testing.T) {
	q, _ := passive(t, Config{}, hook.Hooks{})
	_, low := consume(t, q, Consumer{Tag: "low"}, 100)
	cHigh, high := consume(t, q, Consumer{Tag: "high", Priority: 5, Prefetch: 2}, 100)
	publish(q, second, 1, 2, 3, 4)
	wantIDs(t, "high", high.take(), 1, 2)
	wantIDs(t, "low", low.take(), 3, 4)
	q.settleAll(second, Ack, []PendingAck{{Ref: 0, Consumer: cHigh}})
	publish(q, second, 5, 6)
	wantIDs(t, "high after an ack", high.take(), 5)
	wantIDs(t, "low after an ack", low.take(), 6)
	checkSums(t, q)
}

func TestPrefetchBoundsWhatAConsumerHolds(t *testing.T) {
	q, _ := passive(t, Config{}, hook.Hooks{})
	c, s := consume(t, q, Consumer{Prefetch: 3}, 100)
	publish(q, second, 1, 2, 3, 4, 5)
	wantIDs(t, "at first", s.take(), 1, 2, 3)
	q.settleAll(second, Ack, []PendingAck{{Ref: 1, Consumer: c}, {Ref: 0, Consumer: c}})
	wantIDs(t, "after two acks", s.take(), 4, 5)
}

func TestAnAckIsCountedOnce(t *testing.T) {
	q, _ := passive(t, Config{}, hook.Hooks{})
	c, _ := consume(t, q, Consumer{Prefetch: 1}, 100)
	publish(q, second, 1, 2)
	q.settleAll(second, Ack, []PendingAck{{Ref: 0, Consumer: c}, {Ref: 0, Consumer: c}, {Ref: 99, Consumer: c}, {Ref: 1 << 60, Consumer: c}})
	if s := q.Stats(); s.Acked != 1 || s.Unacked != 1 {
		t.Errorf("acked %d, unacked %d, want 1 and 1", s.Acked, s.Unacked)
	}
}

func TestASinkWithoutRoomLosesNothing(t *testing.T) {
	for _, noAck := range []bool{true, false} {
		q, _ := passive(t, Config{}, hook.Hooks{})
		c, s := consume(t, q, Consumer{NoAck: noAck}, 2)
		publish(q, second, 1, 2, 3, 4, 5)
		wantIDs(t, "before", s.take(), 1, 2)
		publish(q, second, 6)
		wantIDs(t, "while full", s.take())
		s.room = 100
		q.consumers.wake(q, second, c)
		wantIDs(t, "after", s.take(), 3, 4, 5, 6)
		checkSums(t, q)
	}
}

func TestAMessageThatFindsNoRoomDoesNotOvertake(t *testing.T) {
	q, _ := passive(t, Config{}, hook.Hooks{})
	_, a := consume(t, q, Consumer{Tag: "a"}, 100)
	_, b := consume(t, q, Consumer{Tag: "b"}, 1)
	publish(q, second, 1, 2, 3, 4, 5, 6)
	wantIDs(t, "b, with room for one", b.take(), 2)
	wantIDs(t, "a", a.take(), 1, 3, 4, 5, 6)
	checkSums(t, q)
}

func TestOnlyOneConsumerIsActive(t *testing.T) {
	q, _ := passive(t, Config{Profile: &Profile{SingleActive: true}}, hook.Hooks{})
	a, sa := consume(t, q, Consumer{Tag: "a", Prefetch: 2}, 100)
	_, sb := consume(t, q, Consumer{Tag: "b"}, 100)
	publish(q, second, 1, 2, 3, 4)
	wantIDs(t, "active", sa.take(), 1, 2)
	wantIDs(t, "waiting", sb.take())
	q.RemoveConsumers(second, nil, a)
	wantIDs(t, "next in line", sb.take(), 3, 4)
}

// The next single active consumer was the oldest, whatever its priority. These are the answers of classic queues of RabbitMQ 3.10.8.
func TestTheNextActiveConsumerHasTheHighestPriority(t *testing.T) {
	for _, kind := range []string{Classic, Quorum} {
		q, _ := passive(t, Config{Profile: &Profile{SingleActive: true, Kind: kind, DeliveryLimit: -1}}, hook.Hooks{})
		consumers, sinks := map[string]*Consumer{}, map[string]*sink{}
		for _, c := range []Consumer{
			{Tag: "first", Priority: 1},
			{Tag: "older high", Priority: 5},
			{Tag: "younger high", Priority: 5},
			{Tag: "highest", Priority: 9},
			{Tag: "lowest", Priority: -1},
			{Tag: "none"},
		} {
			consumers[c.Tag], sinks[c.Tag] = consume(t, q, c, 100)
		}
		for i, tag := range []string{"first", "highest", "older high", "younger high", "none", "lowest"} {
			id := uint64(i)
			publish(q, second, id)
			wantIDs(t, kind+" "+tag, sinks[tag].take(), id)
			for _, c := range q.Consumers() {
				if c.Active != (c.Tag == tag) {
					t.Errorf("%s: while %s is active, %s is active: %t", kind, tag, c.Tag, c.Active)
				}
			}
			q.RemoveConsumers(second, nil, consumers[tag])
		}
	}
}

func TestExclusiveConsumers(t *testing.T) {
	q, _ := passive(t, Config{}, hook.Hooks{})
	c, _ := consume(t, q, Consumer{Exclusive: true}, 1)
	if err := q.AddConsumer(second, &Consumer{Sink: &sink{}}); !errors.Is(err, ErrExclusiveUse) {
		t.Errorf("second consumer beside an exclusive one: %v, want %v", err, ErrExclusiveUse)
	}
	q.RemoveConsumers(second, nil, c)
	consume(t, q, Consumer{}, 1)
	if err := q.AddConsumer(second, &Consumer{Exclusive: true, Sink: &sink{}}); !errors.Is(err, ErrExclusiveUse) {
		t.Errorf("exclusive consumer beside another: %v, want %v", err, ErrExclusiveUse)
	}
}

func TestRequeuedMessagesComeBackWhereTheyWere(t *testing.T) {
	q, _ := passive(t, Config{}, hook.Hooks{})
	publish(q, second, 1, 2, 3, 4)
	var refs []Ref
	for range 3 {
		q.Get(second, nil2(), func(d Delivery, _ int) { refs = append(refs, d.Ref) })
	}
	q.settleAll(second, Requeue, []PendingAck{{Ref: refs[2]}, {Ref: refs[0]}})
	_, s := consume(t, q, Consumer{NoAck: true}, 100)
	for _, d := range s.got[:2] {
		if !d.Redelivered {
			t.Errorf("message %d is not marked as redelivered", idOf(d.Body))
		}
	}
	wantIDs(t, "order", s.take(), 1, 3, 4)
	checkSums(t, q)
}

// nil2 is a consumer of basic.get with acknowledgement.
func nil2() *Consumer { return &Consumer{} }

func TestTTLZeroMeansNowOrNever(t *testing.T) {
	for _, noAck := range []bool{true, false} {
		q, h := passive(t, Config{}, ttlHooks(hook.ScanAnywhere, &hook.Target{}))
		q.enqueue(second, batchOf(expiring(1, 0)))
		if len(h.dead) != 1 || h.dead[0] != (deadMessage{1, hook.ReasonExpired, false}) {
			t.Fatalf("nobody waits: dead %v, want message 1, expired", h.dead)
		}
		c, s := consume(t, q, Consumer{NoAck: noAck, Prefetch: 2}, 100)
		q.enqueue(second, batchOf(expiring(2, 0), expiring(3, 0)))
		wantIDs(t, "with a consumer", s.take(), 2, 3)
		if noAck {
			continue
		}
		q.enqueue(second, batchOf(expiring(4, 0)))
		if len(h.dead) != 2 {
			t.Errorf("a consumer without credit does not wait: dead %v, want message 4 too", h.dead)
		}
		q.settleAll(second+1, Requeue, []PendingAck{{Ref: 2, Consumer: c}})
		wantIDs(t, "a requeued message of TTL 0", s.take())
		checkSums(t, q)
	}
}

// What get told counted a message that its own leaving brought to the head, where its time had been up.
func TestGetDoesNotCountWhatExpiresBehindTheMessage(t *testing.T) {
	for _, scan := range []hook.Scan{hook.ScanHeads, hook.ScanTop} {
		q, _ := passive(t, Config{}, ttlHooks(scan, nil))
		publish(q, second, 1)
		q.enqueue(second, batchOf(expiring(2, time.Second), expiring(3, time.Hour)))
		now := second + hook.Instant(time.Minute)
		if q.ready != 3 {
			t.Errorf("%d messages, want the expired one behind the head to be counted", q.ready)
		}
		q.Get(now, nil2(), func(d Delivery, remaining int) {
			if idOf(d.Body) != 1 || remaining != 1 {
				t.Errorf("got message %d with %d left, want 1 with 1", idOf(d.Body), remaining)
			}
		})
		checkSums(t, q)
	}
}

func TestUnackedMessagesDoNotExpire(t *testing.T) {
	q, h := passive(t, Config{}, ttlHooks(hook.ScanAnywhere, &hook.Target{}))
	q.enqueue(second, batchOf(expiring(1, time.Second)))
	q.Get(second, nil2(), func(Delivery, int) {})
	q.tick(100 * second)
	if len(h.dead) != 0 {
		t.Fatalf("an unacknowledged message expired")
	}
	q.settleAll(100*second, Requeue, []PendingAck{{Ref: 0}})
	if len(h.dead) != 1 {
		t.Errorf("requeued after its deadline it should expire at once")
	}
}

func TestDropHeadKeepsTheNewest(t *testing.T) {
	for _, tc := range []struct {
		name string
		h    hook.Hooks
	}{
		{"by length", hook.Hooks{Length: hook.LimitOf(2)}},
		{"by bytes", hook.Hooks{Bytes: hook.LimitOf(23)}},
	} {
		q, _ := passive(t, Config{}, tc.h)
		publish(q, second, 1, 2, 3, 4, 5)
		_, s := consume(t, q, Consumer{NoAck: true}, 100)
		wantIDs(t, tc.name, s.take(), 4, 5)
		if n := q.Stats().Dropped[hook.ReasonMaxLen]; n != 3 {
			t.Errorf("%s: %d counted as maxlen, want 3", tc.name, n)
		}
		checkSums(t, q)
	}
}

func TestMessagesForWaitingConsumersPassTheLimit(t *testing.T) {
	q, _ := passive(t, Config{}, hook.Hooks{Length: hook.LimitOf(0)})
	_, s := consume(t, q, Consumer{}, 100)
	publish(q, second, 1, 2)
	wantIDs(t, "delivered", s.take(), 1, 2)
}

func TestAutoDeleteEndsWithTheLastConsumer(t *testing.T) {
	q, h := passive(t, Config{AutoDelete: true}, hook.Hooks{})
	publish(q, second, 1)
	a, _ := consume(t, q, Consumer{}, 0)
	b, _ := consume(t, q, Consumer{}, 0)
	q.RemoveConsumers(second, nil, a)
	if q.closed {
		t.Fatal("gone with a consumer left")
	}
	q.RemoveConsumers(second, nil, b)
	if !q.closed || len(h.gone) != 1 || h.gone[0] != (Deletion{Reason: DeletedAutoDelete, At: second, LastUse: second, Messages: 1}) {
		t.Errorf("closed %v, told %+v", q.closed, h.gone)
	}
	checkSums(t, q)
}

// lease is a plugin's idle hook that gives an unused queue d.
func lease(d time.Duration) hook.Hooks {
	return hook.Hooks{OnIdle: func(now hook.Instant, idle time.Duration, v *hook.Verdict) {
		if idle >= d {
			*v = hook.Verdict{Action: hook.Drop, Reason: hook.ReasonQueueExpired}
			return
		}
		v.Deadline = now.Add(d - idle)
	}}
}

func TestAnUnusedQueueExpires(t *testing.T) {
	q, h := passive(t, Config{}, lease(10*time.Second)) // from second 1
	publish(q, 5*second, 1)                             // no use
	if next := q.next(); next != 11*second {
		t.Fatalf("wants to be asked at %v, want %v", next, 11*second)
	}
	q.Touch(8 * second)
	q.tick(11 * second)
	c := Consumer{Sink: &sink{room: 1}}
	if err := q.AddConsumer(17*second, &c); err != nil {
		t.Fatal(err)
	}
	q.tick(50 * second)
	if q.closed {
		t.Fatal("expired while it was used")
	}
	q.RemoveConsumers(60*second, nil, &c)
	q.tick(70*second - 1)
	if q.closed {
		t.Fatal("expired early")
	}
	q.tick(70 * second)
	if !q.closed || len(h.gone) != 1 || h.gone[0] != (Deletion{Reason: DeletedExpired, At: 70 * second, LastUse: 60 * second, Lease: 70 * second, Messages: 1}) {
		t.Errorf("closed %v, told %+v", q.closed, h.gone)
	}
}

func TestDeleteConditions(t *testing.T) {
	q, _ := passive(t, Config{}, hook.Hooks{})
	publish(q, second, 1, 2)
	if _, err := q.Delete(false, true); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("if-empty: %v", err)
	}
	_, s := consume(t, q, Consumer{}, 1)
	if _, err := q.Delete(true, false); !errors.Is(err, ErrInUse) {
		t.Errorf("if-unused: %v", err)
	}
	n, err := q.Delete(false, false)
	if n != 1 || err != nil || s.cancelled != 1 {
		t.Errorf("deleted %d messages, error %v, %d cancelled; want 1, none, 1", n, err, s.cancelled)
	}
	checkSums(t, q)
}

func TestDeliveryLimit(t *testing.T) {
	h := ttlHooks(hook.ScanAnywhere, &hook.Target{})
	q, hst := passive(t, Config{Profile: &Profile{Kind: Quorum, DeliveryLimit: 2}}, h)
	publish(q, second, 1)
	for i := range 3 {
		var ref Ref
		var props []byte
		if !q.Get(second, nil2(), func(d Delivery, _ int) { ref, props = d.Ref, slices.Clone(d.Props) }) {
			t.Fatalf("attempt %d: gone already", i)
		}
		if n, ok := parts.Header(headers(props), "x-delivery-count"); i > 0 && (!ok || n != int64(i)) {
			t.Errorf("attempt %d: x-delivery-count %v, want %d", i, n, i)
		}
		q.settleAll(second, Return, []PendingAck{{Ref: ref}})
	}
	if len(hst.dead) != 1 || hst.dead[0].reason != hook.ReasonDeliveryLimit {
		t.Errorf("dead %v, want message 1 for delivery_limit", hst.dead)
	}
}

func TestAPluginThatKeepsADueMessageIsAskedAgainLater(t *testing.T) {
	h := ttlHooks(hook.ScanAnywhere, nil)
	asked := 0
	h.OnHead = func(hook.Instant, []hook.Message, []hook.Verdict) { asked++ }
	q, _ := passive(t, Config{}, h)
	q.enqueue(second, batchOf(expiring(1, time.Second)))
	q.tick(2 * second)
	q.tick(2 * second)
	if asked != 1 || q.ready != 1 {
		t.Fatalf("asked %d times, %d ready; want 1 and 1", asked, q.ready)
	}
	if next := q.next(); next != 3*second {
		t.Errorf("asked again at %v, want a second later", next)
	}
	for want, now := 2*second, 3*second; now < 200*second; now += want {
		q.tick(now)
		if next := q.next(); next != now+want {
			t.Fatalf("after %v in vain, asked again after %v, want %v", now-2*second, next-now, want)
		}
		want = min(2*want, 64*second)
	}
	h.OnHead = ttlHooks(hook.ScanAnywhere, nil).OnHead
	q.attach(200*second, chainOf(t, h))
	q.tick(q.next())
	if q.ready > 0 {
		t.Error("it stays although its hooks let it go")
	}
}

func TestAnEmptyQueueGivesItsMemoryBack(t *testing.T) {
	before := slab.Used()
	q, _ := passive(t, Config{}, ttlHooks(hook.ScanAnywhere, nil))
	for i := range uint64(100_000) {
		q.enqueue(second, batchOf(expiring(i, time.Duration(i%1000+1)*time.Second)))
	}
	if slab.Used() == before {
		t.Fatal("100,000 messages weigh nothing")
	}
	for now := second; q.ready > 0; now += second {
		for q.next() != 0 && q.next() <= now {
			q.tick(now)
		}
	}
	end := q.next()
	q.tick(end)
	if got := slab.Used() - before; got != 0 {
		t.Errorf("%d bytes are still held after %v of rest", got, trimAfterMillis)
	}
	if q.next() != 0 {
		t.Errorf("an empty queue wants to be woken")
	}
}

func TestAFewLongLivedMessagesDoNotHoldTheRoomOfTheirNeighbours(t *testing.T) {
	before := slab.Used()
	q, h := passive(t, Config{}, ttlHooks(hook.ScanAnywhere, &hook.Target{}))
	const n, each = 300_000 / fewer, 1000
	for i := range uint64(n) {
		m := message(i, 200)
		m.Expiration = hook.LimitOf(1000)
		if i%each == 0 {
			m.Expiration = 0
		}
		q.enqueue(second, batchOf(m))
	}
	for q.ready > n/each {
		q.tick(3 * second)
	}
	if held := slab.Used() - before; held > 5<<20 {
		t.Errorf("%d messages hold %d bytes", q.ready, held)
	}
	h.dead = nil
	_, s := consume(t, q, Consumer{NoAck: true}, n)
	for i, id := range s.take() {
		if id != uint64(i*each) {
			t.Fatalf("survivor %d is message %d, want %d", i, id, i*each)
		}
	}
	checkSums(t, q)
}
