package queue

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// courier is a host whose dead letters go to one queue when the test says so.
type courier struct {
	told
	batches []*Batch
}

func (c *courier) DeadLetter(_ *Config, _ hook.Instant, ds []DeadLetter, t Tracking) {
	b := NewBatch()
	b.Tracking = t
	for i := range ds {
		b.Messages = append(b.Messages, Message{
			Routing: origin, Props: bytes.Clone(ds[i].Props), Body: bytes.Clone(ds[i].Body), Seq: ds[i].Seq, Flags: ds[i].Flags,
		})
		ds[i].Sent, ds[i].Outcome = 1, telemetry.DeadLettered
	}
	c.batches = append(c.batches, b)
	t.Expect(1, ds)
}

func (c *courier) Deleted(*Mailbox, Deletion) {}

// journey is a redrive between two durable queues that share a journal. The target refuses messages with odd numbers.
type journey struct {
	from, to *Queue
	host     *courier
	journal  *memoryJournal
	redrive  *Redrive
}

func newJourney(t *testing.T, messages int) *journey {
	t.Helper()
	y := &journey{host: &courier{}, journal: &memoryJournal{}}
	y.from, _ = passive(t, Config{Name: "from", Storage: &Storage{Journal: y.journal, ID: 7, Shard: 1}}, hook.Hooks{})
	y.to, _ = passive(t, Config{Name: "to", Storage: &Storage{Journal: y.journal, ID: 8, Shard: 1}}, hook.Hooks{
		OnEnqueue: func(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
			for i := range ms {
				if idOf(ms[i].Part(hook.PartBody))%2 == 1 {
					vs[i].Action = hook.Refuse
				}
			}
		},
	})
	y.from.host, y.to.host = y.host, y.host
	for i := range messages {
		y.from.enqueue(second, batchOf(persist(uint64(i))))
	}
	target := &RedriveTarget{Target: hook.Target{Key: "to", HasKey: true}, Only: true}
	var err error
	y.redrive, err = y.from.StartRedrive(second, RedriveOptions{
		Choose: func(*Stored) (*RedriveTarget, RedriveFailure) { return target, NotChosen }, Total: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	y.from.redrive.goOn(y.from, second)
	return y
}

// finish ends what is under way.
func (y *journey) finish() {
	m := y.from.mailbox
	for i := range m.inbox {
		m.inbox[i].run(y.from, second)
	}
	m.inbox = nil
	y.from.commit(nil)
}

// handleAll runs the tasks of a mailbox, and those that follow from them.
func handleAll(m *Mailbox) {
	for {
		synctest.Wait()
		inbox := m.takeInbox(false)
		if len(inbox) == 0 {
			return
		}
		for i := range inbox {
			m.handle(second, &inbox[i])
		}
	}
}

// after returns how many messages a restart finds in both queues.
func (y *journey) after(t *testing.T) string {
	t.Helper()
	var mailboxes []*Mailbox
	for _, q := range []*Queue{y.from, y.to} {
		s := &Mailbox{broker: testBroker, clock: func() hook.Instant { return second }}
		s.config.Store(q.cfg)
		s.queue = Queue{essentials: essentials{cfg: q.cfg, buf: new(turnBuffers)}, host: q.host, mailbox: s, hooks: q.hooks}
		mailboxes = append(mailboxes, s)
	}
	used := y.journal.used
	y.journal.used = map[uint32]int64{}
	y.journal.fill(t, mailboxes...)
	if is, want := sum(used), sum(y.journal.used); y.from.redrive == nil && is != want {
		t.Errorf("%d bytes of the journal are of use, want %d", is, want)
	}
	y.journal.used = used
	return fmt.Sprintf("%d %d", mailboxes[0].queue.ready, mailboxes[1].queue.ready)
}

func sum(used map[uint32]int64) (n int64) {
	for _, bytes := range used {
		n += bytes
	}
	return n
}

// What is redriven is in one place at any time, what is refused included; and what is relocated meanwhile does not come back.
func TestRedriveIsOneEntry(t *testing.T) {
	y := newJourney(t, 10)
	if got := y.after(t); got != "10 0" || y.from.ready != 0 || y.from.waiting() != 10 {
		t.Fatalf("%s while the messages are under way, %+v", got, y.from.Stats())
	}
	before := len(y.journal.entries)
	y.to.enqueue(second, y.host.batches[0])
	var text strings.Builder
	if _, err := Dump(&text, y.journal.entries[before].ops); err != nil {
		t.Fatal(err)
	}
	if entry := text.String(); len(y.journal.entries) != before+1 || strings.Count(entry, "queue 8: enqueue") != 5 || !strings.Contains(entry, "queue 7: purge 1 from 0, 1 from 2, 1 from 4, 1 from 6, 1 from 8\n") {
		t.Errorf("%d entries; the first is\n%s", len(y.journal.entries)-before, entry)
	}
	if got := y.after(t); got != "5 5" {
		t.Errorf("%s after the arrival", got)
	}
	for y.from.Relocate(y.journal.extent) {
	}
	if got := y.after(t); got != "5 5" {
		t.Errorf("%s after a relocation", got)
	}
	y.finish()
	s := y.redrive.Status()
	if got := y.after(t); got != "5 5" || y.from.ready != 5 || y.from.waiting() != 0 || s.Moved != 5 || s.Failed[FailRefused] != 5 || s.State != RedriveDone {
		t.Errorf("%s in the end: %+v, %+v", got, y.from.Stats(), s)
	}
	if left := len(y.host.left); left != 5 {
		t.Errorf("%d were reported to leave", left)
	}
}

// A redrive that is cancelled goes on until what is under way has arrived: it had ended for those who asked, while its queue refused the
// next one.
func TestCancelledRedriveRunsUntilAllHasArrived(t *testing.T) {
	y := newJourney(t, 10)
	y.from.CancelRedrive(second, y.redrive)
	if _, err := y.from.StartRedrive(second, RedriveOptions{}); !errors.Is(err, errRedriving) {
		t.Errorf("another redrive: %v", err)
	}
	if s := y.redrive.Status(); s.State != RedriveRunning || s.Ended != 0 {
		t.Errorf("while messages are under way: %+v", s)
	}
	y.to.enqueue(second, y.host.batches[0])
	y.finish()
	if s := y.redrive.Status(); s.State != RedriveCancelled || s.Ended == 0 || s.Moved != 5 {
		t.Errorf("in the end: %+v", s)
	}
	if _, err := y.from.StartRedrive(second, RedriveOptions{}); err != nil {
		t.Error(err)
	}
}

// A target whose log fails: what was sent there stays, and the redrive fails.
func TestRedriveWhoseTargetFails(t *testing.T) {
	y := newJourney(t, 10)
	lost := errors.New("input/output error")
	y.host.batches[0].complete(lost)
	y.finish()
	s := y.redrive.Status()
	if got := y.after(t); got != "10 0" || y.from.ready != 10 || s.Failed[FailTargetStopped] != 10 || s.State != RedriveFailed || s.Reason != lost.Error() {
		t.Errorf("%s: %+v", got, s)
	}
}

// A target that is deleted before messages arrive does not take them with it.
func TestRedriveToADeletedQueue(t *testing.T) {
	y := newJourney(t, 10)
	if _, err := y.to.Delete(false, false); err != nil {
		t.Fatal(err)
	}
	(&task{kind: taskPublish, batch: y.host.batches[0]}).reject(y.to)
	y.finish()
	s := y.redrive.Status()
	if y.from.ready != 10 || s.State != RedriveFailed || s.Failed[FailNoQueue] != 10 || s.Reason != "no queue 'to' in vhost ''" {
		t.Errorf("%+v, %+v", y.from.Stats(), s)
	}
}

// The queue is purged, deleted or stopped while its messages are under way.
func TestRedrivenQueueEnds(t *testing.T) {
	t.Run("purged", func(t *testing.T) {
		y := newJourney(t, 10)
		y.from.enqueue(second, batchOf(persist(11)))
		y.from.Purge(second)
		y.from.commit(nil)
		y.to.enqueue(second, y.host.batches[0])
		y.finish()
		if got := y.after(t); got != "5 5" || y.from.ready != 5 {
			t.Errorf("%s: %+v", got, y.from.Stats())
		}
	})
	t.Run("deleted", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			y := newJourney(t, 10)
			if _, err := y.from.Delete(false, false); err != nil {
				t.Fatal(err)
			}
			y.to.enqueue(second, y.host.batches[0])
			handleAll(y.from.mailbox)
			if s := y.redrive.Status(); s.State != RedriveFailed || !strings.Contains(s.Reason, "it was deleted") || y.from.mailbox.removals.Load().open != 0 {
				t.Errorf("%+v", s)
			}
			for y.from.garbage != nil {
				y.from.freeGarbage()
			}
			y.from.commit(nil)
			if got := y.after(t); got != "0 5" {
				t.Error(got)
			}
		})
	})
	t.Run("stopped", func(t *testing.T) {
		y := newJourney(t, 10)
		y.from.stop(errors.New("input/output error"))
		(&task{kind: taskAnswered, transfer: y.host.batches[0].kept}).decline(y.from, second)
		if s := y.redrive.Status(); s.State != RedriveFailed || !strings.Contains(s.Reason, "is stopped") || y.from.mailbox.removals.Load().open != 0 {
			t.Errorf("%+v", s)
		}
		y.host.batches[0].release()
	})
}

// What a redrive is about ends where the queue ended when it began, also when that is looked at level by level, and messages in front
// are settled meanwhile.
func TestCursor(t *testing.T) {
	q, _ := passive(t, Config{Profile: &Profile{Levels: 2}}, hook.Hooks{})
	put := func(priority uint8, ids ...uint64) {
		for _, id := range ids {
			m := message(id, 8)
			m.Priority = priority
			q.enqueue(second, batchOf(m))
		}
	}
	put(0, 1, 2)
	put(2, 3)
	put(1, 4, 5)
	c := newCursor(q, Horizon{})
	put(2, 6)
	put(0, 7)
	var seen []uint64
	for c.inFront(q) {
		c.each(q, 1, func(h handle) bool {
			seen = append(seen, idOf(q.store.read(*h.slot()).body))
			return true
		})
		put(1, 8)
	}
	if got := fmt.Sprint(seen); got != "[3 4 5 1 2]" || !c.done() {
		t.Error(got)
	}
}

// A message that its target refuses is watched as before: what a plugin had forgotten at the beginning of the redrive it did not know
// after it.
func TestWhatStaysIsWatchedAgain(t *testing.T) {
	y := newJourney(t, 0)
	known := map[uint64]bool{}
	y.from.attach(second, chainOf(t, hook.Hooks{
		OnEnqueue: func(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
			for i := range ms {
				known[idOf(ms[i].Part(hook.PartBody))], vs[i].Watch = true, true
			}
		},
		OnGone: func(ms []hook.Message) {
			for i := range ms {
				delete(known, idOf(ms[i].Part(hook.PartBody)))
			}
		},
		OnStay: func(_ hook.Instant, ms []hook.Message, vs []hook.Verdict) {
			for i := range ms {
				id := idOf(ms[i].Part(hook.PartBody))
				known[id], vs[i].Watch = true, id != 3
			}
		},
	}))
	for i := range 4 {
		y.from.enqueue(second, batchOf(persist(uint64(i))))
	}
	target := &RedriveTarget{Target: hook.Target{Key: "to", HasKey: true}}
	_, err := y.from.StartRedrive(second, RedriveOptions{Choose: func(*Stored) (*RedriveTarget, RedriveFailure) { return target, NotChosen }})
	if err != nil {
		t.Fatal(err)
	}
	y.from.redrive.goOn(y.from, second)
	if len(known) != 0 {
		t.Errorf("%v are known while they move", known)
	}
	y.to.enqueue(second, y.host.batches[0])
	y.finish()
	if len(known) != 2 || !known[1] || !known[3] {
		t.Errorf("%v are known in the end, want 1 and 3", known)
	}
	y.from.settleAll(second, Ack, seen{}.get(y.from, second))
	if len(known) != 1 || !known[3] {
		t.Errorf("%v are known after all were acknowledged, want 3, which is not watched", known)
	}
}

// What a target refuses is not dead-lettered there, whatever the verdict: the sender keeps it.
func TestATargetDoesNothingWithWhatItsSenderKeeps(t *testing.T) {
	for name, v := range map[string]hook.Verdict{
		"refused":         {Action: hook.Refuse},
		"dropped":         {Action: hook.Drop, Reason: hook.ReasonMaxLen, Nack: true},
		"dead-lettered":   {Action: hook.Route, Reason: hook.ReasonMaxLen, Target: &hook.Target{Key: "dead", HasKey: true}, Nack: true},
		"at least once":   {Action: hook.Route, Reason: hook.ReasonMaxLen, Target: &hook.Target{AtLeastOnce: true}, Nack: true},
		"kept and nacked": {Nack: true},
	} {
		for _, of := range []string{"a redrive", "at least once"} {
			t.Run(name+", "+of, func(t *testing.T) {
				to, h := passive(t, Config{}, hook.Hooks{OnEnqueue: func(_ hook.Instant, _ []hook.Message, vs []hook.Verdict) { vs[0] = v }})
				b := batchOf(message(1, 8), message(2, 8))
				y := newJourney(t, 0)
				b.kept = &transfer{}
				if of == "a redrive" {
					b.kept.redrive = y.redrive
				}
				to.buf.ops.keeps = true
				to.takeInTurn(second, b.Messages)
				if b.Messages[0].Flags&Refused == 0 || b.Messages[1].Flags&Refused != 0 || len(h.dead)+len(h.left) > 0 || h.refused != 1 {
					t.Errorf("flags %b and %b; %d dead, %d left, %d refused", b.Messages[0].Flags, b.Messages[1].Flags, len(h.dead), len(h.left), h.refused)
				}
				if s := to.Stats(); s.Ready != 1 || s.Unacked+s.Discarded != 0 || s.Refused != 1 {
					t.Errorf("%+v", s)
				}
				checkSums(t, to)
			})
		}
	}
}

// The removals of redriven messages from their old queue are no changes that a full disk may refuse, whatever they are committed with: the
// old queue does not repeat them.
func TestRemovalsOfWhatIsRedrivenAreCommittedOnAFullDisk(t *testing.T) {
	y := newJourney(t, 1)
	y.to.enqueue(second, batchOf(persist(8)))
	y.journal.full = true
	n := &y.to.buf.ops
	n.arriving, n.entered, n.enqueued = y.host.batches[0], 1, 1 // its messages are in no commit to come: a hook dropped them
	y.to.journalDeadlineSet(y.to.at(y.to.nextRef()), 100*second, true)
	y.to.commit(nil)
	y.to.confirm(y.host.batches[0])
	y.finish()
	if got := y.after(t); got != "0 1" {
		t.Errorf("after a restart: %s", got)
	}
}
