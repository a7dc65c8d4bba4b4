package queue

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// A queue was deleted while some of its messages were on their way to another one, whose commit waited for space. The deletion was
// written first: a crash found these messages in neither.
func TestADeletionLeavesWhatIsOnItsWay(t *testing.T) {
	const n = 3
	all := partings(t)
	recurs := all["released"]
	recurs.recurs = true
	all["released again"] = recurs
	for name, leave := range all {
		t.Run(name, func(t *testing.T) {
			for _, crashes := range []bool{true, false} {
				synctest.Test(t, func(t *testing.T) { deleteWhileItSends(t, n, leave, crashes) })
			}
		})
	}
}

func deleteWhileItSends(t *testing.T, n int, leave parting, crashes bool) {
	t.Helper()
	e, w, from, to := leaveOnAFullDisk(t, n, leave)
	if _, err := from.Delete(false, false); err != nil {
		t.Error(err)
	}
	from.commit(nil)
	time.Sleep(time.Second)
	handleAll(from.mailbox)
	want := [2]int{n, 0}
	if st := w.Stats(); st.Live == 0 {
		t.Errorf("before the crash: %+v", st)
	}
	if !crashes {
		e.left.Store(1000)
		if err := w.Sync(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		handleAll(from.mailbox)
		if err := w.Sync(); err != nil {
			t.Fatal(err)
		}
		if to.ready != n {
			t.Errorf("%d messages have arrived, want %d", to.ready, n)
		}
		to.Purge(3 * second)
		to.commit(nil) // the purge may be durable by now, and its messages accounted for in this turn
		if err := w.Sync(); err != nil {
			t.Fatal(err)
		}
		handleAll(to.mailbox)
		if err := w.Sync(); err != nil {
			t.Fatal(err)
		}
		if st := w.Stats(); st.Live != 0 {
			t.Errorf("%d bytes are live", st.Live)
		}
		want = [2]int{}
	}
	r := testBroker.NewRestorer()
	if _, err := r.Apply(1, e.losePower(t, w)); err != nil {
		t.Fatal(err)
	}
	for i, want := range want {
		if q := r.find(uint64(7 + i)); q.messages() != want {
			t.Errorf("crash before: %t: a restart finds %d messages in queue %d, want %d", crashes, q.messages(), 7+i, want)
		}
	}
	r.Discard()
}

// A dead letter could not be written where it went: its queue's journal had failed. When its old queue is deleted, the definition stays so
// that a restart finds the dead letter there. But the deletion had one run for each level, gaps included, as nothing was on its way any more:
// it removed the dead letter, too.
func TestADeletionLeavesDeadLettersThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, c := &memoryJournal{}, &courier{}
		target := &hook.Target{Exchange: "x"}
		q, _ := passive(t, Config{Storage: &Storage{Journal: j, ID: 7, Shard: 1}}, hook.Hooks{OnHead: func(_ hook.Instant, _ []hook.Message, vs []hook.Verdict) {
			for i := range vs {
				vs[i] = hook.Verdict{Action: hook.Route, Reason: hook.ReasonRejected, Target: target}
			}
		}})
		q.host = c
		for id := range uint64(3) {
			q.enqueue(second, batchOf(persist(id)))
		}
		for i := range 3 {
			q.Get(second, nil2(), func(d Delivery, _ int) {
				if i == 1 {
					q.settleAll(second, Reject, []PendingAck{{Ref: d.Ref}})
				}
			})
		}
		q.commit(nil)
		if len(c.batches) != 1 || !q.mailbox.Sends() {
			t.Fatalf("%d batches of dead letters", len(c.batches))
		}
		c.batches[0].complete(errors.New("input/output error")) // the other shard has failed
		if _, err := q.Delete(false, false); err != nil {
			t.Fatal(err)
		}
		q.commit(nil)
		handleAll(q.mailbox)
		told := make(chan error, 1)
		if !q.mailbox.AfterDeadLetters(func(err error) { told <- err }) {
			t.Fatal("the definition would be deleted")
		}
		if err := <-told; err == nil {
			t.Fatal("the definition would be deleted")
		}
		if left := messagesAfter(t, q, j); left != 1 {
			t.Errorf("the definition stays because of one dead letter; a restart finds %d messages", left)
		}
	})
}

// A queue was deleted while it redrove, and its target's commit never became durable: the broker was stopped on a full disk, or the
// target's shard failed. But the redrive said that all had arrived: the definition was deleted, and the messages were in neither place.
func TestADeletionLeavesWhatFailsOnItsWay(t *testing.T) {
	const n = 3
	for name, leave := range partings(t) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, w, from, to := leaveOnAFullDisk(t, n, leave)
				if _, err := from.Delete(false, false); err != nil {
					t.Error(err)
				}
				from.commit(nil)
				var failed error
				ended := false
				if !from.mailbox.AfterDeadLetters(func(err error) { failed, ended = err, true }) { // as logDeletion
					t.Fatal("nothing is under way")
				}
				if err := w.Close(t.Context()); !errors.Is(err, wlog.ErrFull) {
					t.Errorf("closed: %v", err)
				}
				handleAll(from.mailbox)
				handleAll(to.mailbox)
				var ops []byte
				_ = e.Close()
				after := newScarceEngine(t, e.disk)
				again := after.open(t, func(o []byte) { ops = append(ops, o...) })
				if err := again.Close(t.Context()); err != nil {
					t.Error(err)
				}
				_ = after.Close()
				r := testBroker.NewRestorer()
				if _, err := r.Apply(1, ops); err != nil {
					t.Fatal(err)
				}
				old, arrived := r.find(7), r.find(8)
				if a, b := old.messages(), arrived.messages(); b == 0 && ended && failed == nil {
					t.Errorf("the definition is deleted though %d messages are in the old queue, %d in the new one", a, b)
				}
				r.Discard()
			})
		})
	}
}

// failing is a journal that fails when it is told to.
type failing struct {
	memoryJournal
	err error
}

func (j *failing) Err() error { return j.err }

// A queue was deleted, and then its journal failed: the next task stopped it, and plugins were told once more that all its messages were
// gone.
func TestADeletedQueueTellsOnceThatAllAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, all := &failing{}, 0
		q, _ := passive(t, Config{Storage: &Storage{Journal: j, ID: 7, Shard: 1}}, hook.Hooks{
			OnEnqueue: func(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
				for i := range vs {
					vs[i].Watch = true
				}
			},
			OnGone: func(ms []hook.Message) {
				if ms == nil {
					all++
				}
			},
		})
		q.enqueue(second, batchOf(persist(1)))
		if _, err := q.Delete(false, false); err != nil {
			t.Fatal(err)
		}
		q.commit(nil)
		j.err = errors.New("input/output error")
		q.mailbox.handle(second, &task{kind: taskTick})
		if all != 1 {
			t.Errorf("told %d times", all)
		}
	})
}

// remembered is diary with an ID for each message.
type remembered struct{ hook.NoHooks }

func (remembered) ExchangeTypes() []hook.ExchangeType {
	all := diary{}.ExchangeTypes()
	old := all[0].Schedule
	all[0].Schedule = func(x *hook.Exchange) hook.Schedule {
		s := old(x)
		s.Plan = func(m *hook.Publishing, p *hook.Plan) error {
			p.Hold, p.ID = 2*second, append([]byte(nil), m.Part(hook.PartBody)[:8]...)
			return nil
		}
		s.Released = func(_ *hook.Publishing, r *hook.Release) { r.Hold, r.State = r.Due+10*second, r.State+1 }
		return s
	}
	return all
}

// What an exchange holds was dropped while messages that recur were on their way. To forget them it read them: if that failed, the queue
// stopped in the middle of its deletion, was deleted once more, and counted what it had twice.
func TestADeletionReadsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 2000
		spilling(t, 0)
		j, c := &memoryJournal{}, &courier{}
		cfg := schedulingBy(t, remembered{})
		cfg.Storage = &Storage{Journal: j, ID: 7, Shard: 1}
		q, _ := passive(t, cfg, hook.Hooks{})
		q.host = c
		for i := range uint64(n) {
			m := patterned(i, 1024)
			m.Flags = Persistent
			q.enqueue(second, batchOf(m))
		}
		for range n/256 + 1 {
			q.tick(2 * second)
			q.commit(nil)
			synctest.Wait()
		}
		if len(c.batches) == 0 || !q.mailbox.Sends() {
			t.Fatal("nothing is on its way")
		}
		time.Sleep(time.Minute)
		_ = testBroker.spill.Close()
		q.mailbox.handle(2*second, &task{kind: taskCall, call: &call{done: make(chan struct{}), fn: func(q *Queue, _ hook.Instant) {
			q.close()
		}}})
		if q.stopped != nil {
			t.Errorf("the deletion has stopped the queue: %v", q.stopped)
		}
		before := q.Stats()
		if released := before.DeadLettered[hook.ReasonReleased]; before.Deleted != n || before.Published != n+released {
			t.Errorf("of %d messages %d were deleted with the queue; %+v", n, before.Deleted, before.Counters)
		}
		for _, b := range c.batches {
			b.complete(nil)
		}
		handleAll(q.mailbox)
		for q.garbage != nil {
			q.freeGarbage()
		}
		q.commit(nil)
	})
}

// A queue of several levels and sparse chunks is deleted while messages of it are on their way, which arrive, are refused, or fail, before
// or after that: in the end nothing is live in its journal, and a restart finds nothing in it, unless some failed on their way.
func TestWhatIsDeletedWhileItSendsIsAccountedFor(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) { deletesAtRandom(t, rand.New(rand.NewPCG(1, seed)), seed) })
	}
}

func deletesAtRandom(t *testing.T, rnd *rand.Rand, seed uint64) {
	t.Helper()
	j, c := &memoryJournal{}, &courier{}
	from, _ := passive(t, Config{Profile: &Profile{Levels: 3}, Name: "from", Storage: &Storage{Journal: j, ID: 7, Shard: 1}}, hook.Hooks{})
	to, _ := passive(t, Config{Name: "to", Storage: &Storage{Journal: j, ID: 8, Shard: 1}}, hook.Hooks{
		OnEnqueue: func(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
			for i := range ms {
				if idOf(ms[i].Part(hook.PartBody))%2 == 1 {
					vs[i].Action = hook.Refuse
				}
			}
		},
	})
	from.host, to.host = c, c
	n := 1 + rnd.IntN(6000)
	for i := range n {
		m := persist(uint64(i))
		m.Priority = uint8(rnd.IntN(4))
		if rnd.IntN(10) == 0 {
			m.Flags = 0
		}
		from.enqueue(second, batchOf(m))
	}
	var held []PendingAck
	for range rnd.IntN(n + 1) {
		from.Get(second, nil2(), func(d Delivery, _ int) { held = append(held, PendingAck{Ref: d.Ref}) })
	}
	rnd.Shuffle(len(held), func(i, k int) { held[i], held[k] = held[k], held[i] })
	cut := len(held) * rnd.IntN(101) / 100
	from.settleAll(second, Ack, held[:cut])
	from.settleAll(second, Requeue, held[cut:cut+rnd.IntN(len(held)-cut+1)])
	target := &RedriveTarget{Target: hook.Target{Exchange: "x"}}
	some := 1 + rnd.IntN(5)
	if _, err := from.StartRedrive(second, RedriveOptions{Choose: func(*Stored) (*RedriveTarget, RedriveFailure) {
		if rnd.IntN(some) > 0 {
			return nil, NotChosen
		}
		return target, NotChosen
	}, Total: -1}); err != nil {
		t.Fatal(err)
	}
	now := second
	for range rnd.IntN(12) {
		from.redrive.goOn(from, now)
		now += second
	}
	from.commit(nil)
	if rnd.IntN(2) == 0 {
		for range 5 { // it is never done: the journal's extent does not change with these
			from.Relocate(j.extent)
		}
	}
	arrive := func(b *Batch) {
		if rnd.IntN(4) == 0 {
			b.complete(errors.New("input/output error"))
			return
		}
		to.mailbox.handle(now, &task{kind: taskPublish, batch: b})
	}
	early := rnd.IntN(len(c.batches) + 1)
	for _, b := range c.batches[:early] {
		arrive(b)
	}
	if rnd.IntN(2) == 0 {
		handleAll(from.mailbox)
	}
	batches := len(c.batches)
	if rnd.IntN(3) == 0 {
		from.Purge(now)
	}
	if _, err := from.Delete(false, false); err != nil {
		t.Fatal(err)
	}
	from.commit(nil)
	handleAll(from.mailbox)
	for _, b := range c.batches[early:batches] {
		arrive(b)
	}
	handleAll(from.mailbox)
	handleAll(to.mailbox)
	for from.garbage != nil {
		from.freeGarbage()
	}
	from.commit(nil)
	failed := false
	from.mailbox.AfterDeadLetters(func(err error) { failed = err != nil })
	synctest.Wait()
	if left := messagesAfter(t, from, j); left > 0 != failed {
		t.Errorf("seed %d: a restart finds %d messages; some failed: %t", seed, left, failed)
	}
	to.Purge(now)
	for to.garbage != nil {
		to.freeGarbage()
	}
	to.commit(nil)
	for extent, bytes := range j.used {
		if bytes < 0 || bytes > 0 && !failed {
			t.Errorf("seed %d: %d bytes are live in extent %d", seed, bytes, extent)
		}
	}
	checkSums(t, from)
	if from.Stats().Unacked != 0 || from.moving != 0 || from.mailbox.removals.Load() != nil && from.mailbox.removals.Load().open != 0 {
		t.Errorf("seed %d: %+v", seed, from.Stats())
	}
}

// redriveAll begins to move all messages, in so many parts.
func redriveAll(t *testing.T, from *Queue, parts int) {
	t.Helper()
	target := &RedriveTarget{Target: hook.Target{Exchange: "x"}}
	if _, err := from.StartRedrive(second, RedriveOptions{Choose: func(*Stored) (*RedriveTarget, RedriveFailure) { return target, NotChosen }, Total: -1}); err != nil {
		t.Fatal(err)
	}
	for i := range parts {
		from.redrive.goOn(from, second*hook.Instant(i+1))
	}
	from.commit(nil)
}

// A durable queue was deleted while transient messages of it were redriven, to a queue that had stopped. No restart finds these, but the
// definition stayed, and the name was reserved.
func TestADeletionDoesNotStayForTransientMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, c := &memoryJournal{}, &courier{}
		q, _ := passive(t, Config{Name: "from", Storage: &Storage{Journal: j, ID: 7, Shard: 1}}, hook.Hooks{})
		q.host = c
		for id := range uint64(3) {
			m := persist(id)
			m.Flags = 0
			q.enqueue(second, batchOf(m))
		}
		redriveAll(t, q, 1)
		if _, err := q.Delete(false, false); err != nil {
			t.Fatal(err)
		}
		q.commit(nil)
		c.batches[0].complete(errors.New("stopped"))
		handleAll(q.mailbox)
		if left := messagesAfter(t, q, j); left != 0 {
			t.Fatalf("a restart finds %d", left)
		}
		if q.mailbox.AfterDeadLetters(func(err error) { t.Logf("stays: %v", err) }) {
			t.Error("the definition stays, and a restart finds nothing in it")
		}
		synctest.Wait()
	})
}

// A queue stopped while it redrove, and its part failed, too: all was in the old queue. When that was deleted later, its definition stayed until
// a restart, which brought all of it back, though nothing was on its way.
func TestAStoppedQueueCanBeDeleted(t *testing.T) {
	for _, stopsFirst := range []bool{false, true} {
		t.Run(strconv.FormatBool(stopsFirst), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j, c := &memoryJournal{}, &courier{}
				q, _ := passive(t, Config{Name: "from", Storage: &Storage{Journal: j, ID: 7, Shard: 1}}, hook.Hooks{})
				q.host = c
				for id := range uint64(1000) {
					q.enqueue(second, batchOf(persist(id)))
				}
				redriveAll(t, q, 1)
				if stopsFirst {
					q.stop(errUnreadable)
				}
				c.batches[0].complete(errors.New("the target is stopped"))
				handleAll(q.mailbox)
				if !stopsFirst {
					q.stop(errUnreadable)
				}
				if _, err := q.Delete(false, false); err != nil {
					t.Fatal(err)
				}
				q.commit(nil)
				handleAll(q.mailbox)
				if q.mailbox.AfterDeadLetters(func(err error) { t.Logf("stays: %v", err) }) {
					t.Errorf("stops first: %t: the definition stays; a restart finds %d messages", stopsFirst, messagesAfter(t, q, j))
				}
				synctest.Wait()
			})
		})
	}
}

// A queue was deleted while it had two parts on their way. One arrived durably, and one failed: for that, the definition stayed. But a
// restart found what had arrived, too, or it was live in the journal until then.
func TestADeletionForgetsWhatHasArrived(t *testing.T) {
	for _, same := range []bool{false, true} {
		t.Run(strconv.FormatBool(same), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j, other, c := &memoryJournal{}, &memoryJournal{}, &courier{}
				if same {
					other = j
				}
				q, _ := passive(t, Config{Name: "from", Storage: &Storage{Journal: j, ID: 7, Shard: 1}}, hook.Hooks{})
				to, _ := passive(t, Config{Name: "to", Storage: &Storage{Journal: other, ID: 8, Shard: 2}}, hook.Hooks{})
				q.host, to.host = c, c
				for id := range uint64(maxBatch + 10) {
					q.enqueue(second, batchOf(persist(id)))
				}
				redriveAll(t, q, 2)
				if len(c.batches) != 2 {
					t.Fatalf("%d batches", len(c.batches))
				}
				if _, err := q.Delete(false, false); err != nil {
					t.Fatal(err)
				}
				q.commit(nil)
				to.mailbox.handle(second, &task{kind: taskPublish, batch: c.batches[0]})
				c.batches[1].complete(errors.New("input/output error"))
				handleAll(q.mailbox)
				handleAll(to.mailbox)
				handleAll(q.mailbox)
				if left := messagesAfter(t, q, j); left != 10 {
					t.Errorf("same shard: %t: a restart finds %d messages, want 10; %d have arrived", same, left, to.ready)
				}
				if same {
					to.Purge(second)
					for to.garbage != nil {
						to.freeGarbage()
					}
					to.commit(nil)
					used := sum(j.used)
					j.used = map[uint32]int64{}
					n := j.reborn(t, q)
					t.Logf("used %d, need %d", used, sum(j.used))
					if need := sum(j.used); used != need {
						t.Errorf("%d bytes are live, the replay of %d messages needs %d", used, n.messages(), need)
					}
				}
			})
		})
	}
}
