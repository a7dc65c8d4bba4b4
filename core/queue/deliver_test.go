package queue

import (
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

// A consumer whose channel was at its limit, or its connection's buffer full, was offered a message, took none, and nobody
// else got it.
func TestAConsumerWithoutRoomStopsNobody(t *testing.T) {
	q, _ := passive(t, Config{}, hook.Hooks{})
	a, full := consume(t, q, Consumer{Tag: "a", Priority: 1}, 0)
	_, alsoFull := consume(t, q, Consumer{Tag: "b"}, 0)
	_, c := consume(t, q, Consumer{Tag: "c"}, 1)
	_, d := consume(t, q, Consumer{Tag: "d"}, 100)
	publish(q, second, 1, 2, 3)
	wantIDs(t, "those without room", append(full.take(), alsoFull.take()...))
	wantIDs(t, "one with some", c.take(), 1)
	wantIDs(t, "one with plenty", d.take(), 2, 3)
	full.room = 1
	q.consumers.wake(q, second, a)
	publish(q, second, 4)
	wantIDs(t, "one that has room again", full.take(), 4)
	checkSums(t, q)
}

// Messages that came back, and that a sink had no room for, were overtaken by one another: 1, 4, 2, 3.
func TestWhatCameBackStaysInOrder(t *testing.T) {
	q, _ := passive(t, Config{}, hook.Hooks{})
	a, sa := consume(t, q, Consumer{Tag: "a"}, 100)
	publish(q, second, 1, 2, 3, 4, 5)
	var items []PendingAck
	for _, d := range sa.got {
		items = append(items, PendingAck{Ref: d.Ref, Consumer: a})
	}
	q.RemoveConsumers(second, nil, a)
	q.settleAll(second, Ack, items[4:])
	q.settleAll(second, Return, items[:4])
	b, sb := consume(t, q, Consumer{Tag: "b"}, 1)
	sb.room = 100
	q.consumers.wake(q, second, b)
	wantIDs(t, "in order", sb.take(), 1, 2, 3, 4)
	checkSums(t, q)
}

// A message that came back again and again left a note each time, while another was in front of it.
func TestWhatComesBackLeavesOneNote(t *testing.T) {
	q, _ := passive(t, Config{}, hook.Hooks{})
	c, s := consume(t, q, Consumer{Prefetch: 2}, 1<<20)
	publish(q, second, 1, 2)
	for range 1000 {
		last := s.got[len(s.got)-1]
		if idOf(last.Body) == 2 { // the first is kept
			last = s.got[0]
		}
		q.settleAll(second, Requeue, []PendingAck{{Ref: last.Ref, Consumer: c}})
	}
	if n := len(q.levels[0].requeued); n > 1 {
		t.Errorf("%d notes of one message", n)
	}
}

// A message that had come back was out of the reach of consumers when it came back once more after a purge.
func TestWhatCameBackSurvivesAPurge(t *testing.T) {
	q, _ := passive(t, Config{}, hook.Hooks{})
	get := func() (got Delivery) {
		q.Get(second, &Consumer{}, func(d Delivery, _ int) {
			got = d
			got.Body = append([]byte(nil), d.Body...)
		})
		return got
	}
	publish(q, second, 1, 2, 3)
	one := get()
	get()
	q.settleAll(second, Requeue, []PendingAck{{Ref: one.Ref}})
	one = get()
	q.Purge(second)
	publish(q, second, 4, 5)
	get()
	q.settleAll(second, Requeue, []PendingAck{{Ref: one.Ref}})
	for _, want := range []uint64{1, 5} {
		if d := get(); d.Body == nil || idOf(d.Body) != want {
			t.Fatalf("got %v, want message %d", d.Body, want)
		}
	}
}

// Who consumed next was served what was left before it was served what those who left had not acknowledged.
func TestTheNextActiveConsumerGetsWhatCameBackFirst(t *testing.T) {
	for _, kind := range []string{Classic, Quorum} {
		q, _ := passive(t, Config{Profile: &Profile{SingleActive: true, Kind: kind, DeliveryLimit: -1}}, hook.Hooks{})
		a, sa := consume(t, q, Consumer{Prefetch: 3}, 100)
		_, sb := consume(t, q, Consumer{}, 100)
		publish(q, second, 1, 2, 3, 4, 5)
		var held []PendingAck
		for _, d := range sa.got {
			held = append(held, PendingAck{Ref: d.Ref, Consumer: a})
		}
		q.RemoveConsumers(second, held, a)
		wantIDs(t, kind, sb.take(), 1, 2, 3, 4, 5)
		checkSums(t, q)
	}
}

// nosy are hooks that want to be asked about messages of priority 1 when they are next, and remember when they were.
func nosy(asked *[]hook.Instant, v hook.Verdict) hook.Hooks {
	return hook.Hooks{
		Strategy: true,
		OnEnqueue: func(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
			for i := range vs {
				vs[i].AskHead = ms[i].Priority == 1
			}
		},
		OnHead: func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
			for i := range ms {
				if ms[i].Why == hook.WhyHead {
					*asked = append(*asked, now)
					vs[i] = v
				}
			}
		},
	}
}

func prioritised(ids []uint64, which func(id uint64) bool) (ms []Message) {
	for _, id := range ids {
		m := message(id, 0)
		if which(id) {
			m.Priority = 1
		}
		ms = append(ms, m)
	}
	return ms
}

// With credit for one, all messages were asked about at once, and delivered unasked later.
func TestAMessageIsAskedAboutWhenItIsNext(t *testing.T) {
	var asked []hook.Instant
	q, _ := passive(t, Config{}, nosy(&asked, hook.Verdict{}))
	q.enqueue(second, batchOf(prioritised([]uint64{1, 2, 3}, func(uint64) bool { return true })...))
	c, s := consume(t, q, Consumer{Prefetch: 1}, 100)
	if len(asked) != 1 || asked[0] != second {
		t.Errorf("with credit for one: asked at %v", asked)
	}
	q.settleAll(100*second, Ack, []PendingAck{{Ref: s.got[0].Ref, Consumer: c}})
	if len(asked) != 2 || asked[1] != 100*second {
		t.Errorf("100 s later: asked at %v", asked)
	}
	q.settleAll(200*second, Requeue, []PendingAck{{Ref: s.got[1].Ref, Consumer: c}})
	if len(asked) != 3 || asked[2] != 200*second {
		t.Errorf("when it came back: asked at %v", asked)
	}
	wantIDs(t, "in order", s.take(), 1, 2, 2)
}

// A message that a sink had no room for was delivered unasked when there was.
func TestAMessageIsAskedAboutAgainWhenThereWasNoRoom(t *testing.T) {
	var asked []hook.Instant
	q, _ := passive(t, Config{}, nosy(&asked, hook.Verdict{}))
	c, s := consume(t, q, Consumer{}, 0)
	q.enqueue(second, batchOf(prioritised([]uint64{1, 2}, func(uint64) bool { return true })...))
	if len(asked) != 0 {
		t.Errorf("asked at %v, and nobody takes it", asked)
	}
	s.room = 1
	q.consumers.wake(q, 100*second, c)
	if len(asked) != 1 || asked[0] != 100*second {
		t.Errorf("with room for one: asked at %v", asked)
	}
	wantIDs(t, "who has room", s.take(), 1)
}

// Where some messages were asked about, those that were kept were overtaken by the others: 2 4 6 1 3 5.
func TestMessagesThatAreKeptStayInOrder(t *testing.T) {
	for _, noAck := range []bool{false, true} {
		var asked []hook.Instant
		q, _ := passive(t, Config{}, nosy(&asked, hook.Verdict{}))
		ids := []uint64{1, 2, 3, 4, 5, 6}
		ms := prioritised(ids, func(id uint64) bool { return id%2 == 1 })
		q.enqueue(second, batchOf(ms...))
		_, s := consume(t, q, Consumer{NoAck: noAck}, 100)
		wantIDs(t, "in order", s.take(), ids...)
		if len(asked) != 3 {
			t.Errorf("asked %d times, want 3", len(asked))
		}
		checkSums(t, q)
	}
}

// A consumer that waits, and acknowledges nothing, got what is asked about at the head unasked, and what a lazy strategy
// lets nobody have.
func TestAConsumerThatWaitsBypassesNoHook(t *testing.T) {
	for _, noAck := range []bool{false, true} {
		var asked []hook.Instant
		drop := hook.Verdict{Action: hook.Drop, Reason: hook.ReasonExpired}
		q, _ := passive(t, Config{}, nosy(&asked, drop))
		_, s := consume(t, q, Consumer{NoAck: noAck}, 100)
		q.enqueue(second, batchOf(prioritised([]uint64{1, 2, 3}, func(id uint64) bool { return id == 2 })...))
		wantIDs(t, "those that are not dropped", s.take(), 1, 3)
		checkSums(t, q)

		q, _ = passive(t, Config{}, ttlHooks(hook.ScanLazy, nil))
		_, s = consume(t, q, Consumer{NoAck: noAck}, 100)
		q.enqueue(second, batchOf(expiring(1, 0), message(2, 0)))
		wantIDs(t, "those whose time is not up", s.take(), 2)
		checkSums(t, q)
	}
}

// A message the time of which was up somewhere in the queue was said to be at the head, and not asked about there later.
func TestADueMessageIsNotAtTheHead(t *testing.T) {
	var whys []hook.Why
	q, _ := passive(t, Config{}, hook.Hooks{
		Strategy: true,
		OnEnqueue: func(now hook.Instant, _ []hook.Message, vs []hook.Verdict) {
			for i := range vs {
				vs[i].AskHead, vs[i].Deadline = true, now+second*hook.Instant(5-4*min(i, 1))
			}
		},
		OnHead: func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
			for i := range ms {
				whys = append(whys, ms[i].Why)
				vs[i].Deadline = now + 100*second
			}
		},
	})
	publish(q, second, 1, 2)
	q.tick(3 * second)
	_, s := consume(t, q, Consumer{}, 100)
	wantIDs(t, "both", s.take(), 1, 2)
	if len(whys) != 3 || whys[0] != hook.WhyDue || whys[1] != hook.WhyHead || whys[2] != hook.WhyHead {
		t.Errorf("asked because of %v, want due, head, head", whys)
	}
}

// A policy that asked for its turn at the head when a message was due, or came back, was not heard.
func TestHooksAskForTheHeadLater(t *testing.T) {
	for _, restart := range []bool{false, true} {
		var asked []uint64
		q, _, j := durable(t, Config{}, hook.Hooks{
			Strategy: true,
			OnEnqueue: func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
				for i := range ms {
					if ms[i].Expiration.Set() {
						vs[i].Deadline = now.AddMillis(ms[i].Expiration.N())
					}
				}
			},
			OnHead: func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
				for i := range ms {
					if ms[i].Why == hook.WhyHead {
						asked = append(asked, idOf(ms[i].Part(hook.PartBody)))
						continue
					}
					vs[i].Deadline, vs[i].AskHead = now+100*second, true
				}
			},
			OnRequeue: func(_ hook.Instant, _ []hook.Message, vs []hook.Verdict) {
				for i := range vs {
					vs[i].AskHead = true
				}
			},
		})
		due := expiring(1, 1e9)
		due.Flags = Persistent
		q.enqueue(second, batchOf(due, persist(2), persist(3)))
		q.tick(3 * second)
		var held []PendingAck
		for range 2 {
			q.Get(3*second, &Consumer{}, func(d Delivery, _ int) { held = append(held, PendingAck{Ref: d.Ref}) })
		}
		wantIDs(t, "when it was due", asked, 1)
		q.settleAll(4*second, Requeue, held[1:])
		q.commit(nil)
		if asked = nil; restart {
			q = j.reborn(t, q)
		}
		for q.Get(5*second, &Consumer{NoAck: true}, func(Delivery, int) {}) {
		}
		if restart {
			wantIDs(t, "after a restart", asked, 1, 2)
		} else {
			wantIDs(t, "when it came back", asked, 2)
		}
	}
}

// What a turn was asked about that broke off, because a body could not be read, was said of another queue's messages.
func TestATurnThatBreaksOffLeavesNothingToOthers(t *testing.T) {
	var asked []hook.Instant
	q, _ := passive(t, Config{}, nosy(&asked, hook.Verdict{}))
	q.buf.asked = append(q.buf.asked, Ref(0), Ref(1))
	publish(q, second, 1, 2)
	q.buf.asked = append(q.buf.asked, Ref(0), Ref(1))
	q.Get(second, nil2(), func(Delivery, int) {})
	q.Get(second, nil2(), func(Delivery, int) {})
	q.settleAll(second, Requeue, []PendingAck{{Ref: 0}, {Ref: 1}})
	consume(t, q, Consumer{}, 100)
	if len(asked) > 0 {
		t.Errorf("asked %d times about messages that nobody is curious about", len(asked))
	}
}
