package queue

import (
	"bytes"
	"errors"
	"testing"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// sorter is a host whose dead letters go to a queue each, by their numbers, and the last one to both.
type sorter struct {
	told
	last    uint64
	batches [2]*Batch
}

func (s *sorter) DeadLetter(_ *Config, _ hook.Instant, ds []DeadLetter, t Tracking) {
	for i := range s.batches {
		s.batches[i] = NewBatch()
		s.batches[i].Tracking, s.batches[i].to = t, &Mailbox{broker: testBroker, order: uint64(i) + 1}
	}
	for i := range ds {
		d, id := &ds[i], idOf(ds[i].Body)
		for k, b := range s.batches {
			if id%2 == uint64(k) || id == s.last {
				b.Messages = append(b.Messages, Message{Routing: origin, Props: bytes.Clone(d.Props), Body: bytes.Clone(d.Body), Seq: d.Seq, Flags: d.Flags})
				d.Sent++
			}
		}
		d.Outcome = telemetry.DeadLettered
	}
	t.Expect(len(s.batches), ds)
}

func (s *sorter) Deleted(*Mailbox, Deletion) {}

// parting is a way in which messages leave a queue for others.
type parting struct {
	cfg    Config
	hooks  hook.Hooks
	start  func(q *Queue) // two seconds after the beginning
	recurs bool           // the messages are to leave again, if their bodies say so
}

func partings(t *testing.T) map[string]parting {
	t.Helper()
	soon := hook.Hooks{OnEnqueue: func(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		for i := range ms {
			vs[i].Deadline = 2 * second
		}
	}, OnHead: func(_ hook.Instant, _ []hook.Message, vs []hook.Verdict) {
		for i := range vs {
			vs[i] = hook.Verdict{Action: hook.Route, Reason: hook.ReasonExpired, Target: &hook.Target{Exchange: "x"}}
		}
	}, Strategy: true}
	return map[string]parting{
		"released":      {cfg: scheduling(t), start: func(q *Queue) { q.tick(2 * second) }},
		"dead-lettered": {hooks: soon, start: func(q *Queue) { q.tick(2 * second) }},
		"redriven": {start: func(q *Queue) {
			target := &RedriveTarget{Target: hook.Target{Exchange: "x"}}
			_, err := q.StartRedrive(second, RedriveOptions{Choose: func(*Stored) (*RedriveTarget, RedriveFailure) { return target, NotChosen }, Total: -1})
			if err != nil {
				t.Fatal(err)
			}
			q.redrive.goOn(q, second)
		}},
	}
}

// One turn's messages, released by an exchange, dead-lettered or redriven, went to several queues: all were removed with the last
// queue's, and a crash before that left those that were in the first queue twice.
func TestWhatLeavesTogetherForSeveralQueuesIsNeverTwice(t *testing.T) {
	const n = 6
	for name, leave := range partings(t) {
		t.Run(name, func(t *testing.T) {
			j, s := &memoryJournal{}, &sorter{last: n}
			durable := func(cfg Config, id uint64, h hook.Hooks) *Queue {
				cfg.Storage = &Storage{Journal: j, ID: id, Shard: 1}
				q, _ := passive(t, cfg, h)
				q.host = s
				return q
			}
			from := durable(leave.cfg, 7, leave.hooks)
			to := []*Queue{durable(Config{Name: "even"}, 8, hook.Hooks{}), durable(Config{Name: "odd"}, 9, hook.Hooks{})}
			for id := range uint64(n + 1) {
				from.enqueue(second, batchOf(persist(id)))
			}
			leave.start(from)
			for k, q := range to {
				if q.enqueue(2*second, s.batches[k]); k == 0 { // a crash
					if left := messagesAfter(t, from, j); left != n/2+1 {
						t.Errorf("the first queue has %d messages, and a restart finds %d of %d in their old queue, too", q.ready, left-n/2-1, n+1)
					}
				}
			}
			for i := range from.mailbox.inbox {
				from.mailbox.inbox[i].run(from, 2*second)
			}
			from.commit(nil)
			if left := messagesAfter(t, from, j); left != 0 || from.messages() != 0 {
				t.Errorf("%d messages are left, %d of them after a restart", from.messages(), left)
			}
		})
	}
}

// messagesAfter returns how many messages a restart finds in a queue.
func messagesAfter(t *testing.T, q *Queue, j *memoryJournal) int {
	t.Helper()
	used := j.used
	defer func() { j.used = used }()
	j.used = map[uint32]int64{}
	return j.reborn(t, q).messages()
}

// faulty is a courier whose queue cannot read a message that it dead-letters.
type faulty struct{ courier }

func (f *faulty) DeadLetter(from *Config, now hook.Instant, ds []DeadLetter, t Tracking) {
	f.courier.DeadLetter(from, now, ds, t)
	if from.Name == "to" {
		panic(unreadable{errors.New("input/output error")})
	}
}

// The turn of a batch dead-letters messages and ends then, because a body cannot be read. The batch is answered once; and what was removed
// with its arrival has not failed, for which its old queue would come back after it was deleted.
func TestABatchIsConfirmedOnce(t *testing.T) {
	leave, j, f := partings(t)["dead-lettered"], &memoryJournal{}, &faulty{}
	from, _ := passive(t, Config{Storage: &Storage{Journal: j, ID: 7, Shard: 1}}, leave.hooks)
	to, _ := passive(t, Config{Name: "to", Storage: &Storage{Journal: j, ID: 8, Shard: 1}}, hook.Hooks{Length: hook.LimitOf(0), OnHead: leave.hooks.OnHead})
	from.host, to.host = f, f
	from.enqueue(second, batchOf(persist(1)))
	leave.start(from)
	to.mailbox.handle(2*second, &task{kind: taskPublish, batch: f.batches[0]})
	if open, failed := from.mailbox.underway(); open != 0 || failed != nil || to.stopped == nil || messagesAfter(t, from, j) != 0 {
		t.Errorf("%d removals are not done, and one failed: %v; the queue is stopped: %v", open, failed, to.stopped)
	}
	if f.batches[1].Removal == nil { // it was made of the first one, which was confirmed
		t.Error("the batch has two owners")
	}
	f.batches[1].release()
}

// A queue took a redriven message and could not read another one later in the same turn. An entry had the message's arrival and its
// removal from its old queue, which made it ready again all the same: a restart did not find it there.
func TestWhatIsRemovedWithItsArrivalDoesNotStay(t *testing.T) {
	j, f, ways := &memoryJournal{}, &faulty{}, partings(t)
	from, _ := passive(t, Config{Storage: &Storage{Journal: j, ID: 7, Shard: 1}}, hook.Hooks{})
	to, _ := passive(t, Config{Name: "to", Storage: &Storage{Journal: j, ID: 8, Shard: 1}}, hook.Hooks{Length: hook.LimitOf(0), OnHead: ways["dead-lettered"].hooks.OnHead})
	from.host, to.host = f, f
	from.enqueue(second, batchOf(persist(1)))
	ways["redriven"].start(from)
	r := from.redrive
	to.mailbox.handle(2*second, &task{kind: taskPublish, batch: f.batches[0]})
	for i := range from.mailbox.inbox {
		from.mailbox.inbox[i].run(from, 2*second)
	}
	from.commit(nil)
	if left := messagesAfter(t, from, j); to.stopped == nil || left != from.messages() || j.records != 1 {
		t.Errorf("the old queue has %d messages, and a restart finds %d there, %d in all; the new queue is stopped: %v", from.messages(), left, j.records, to.stopped)
	}
	if s := r.Status(); s.Moved != 1 || s.State != RedriveDone {
		t.Errorf("%+v", s)
	}
	f.batches[1].release()
}
