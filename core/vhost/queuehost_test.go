package vhost

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// watched returns a vhost with an event recorder.
func watched(tb testing.TB) (*VHost, *telemetry.Recorder) {
	tb.Helper()
	v, _ := newVHost(tb)
	v.host.telemetry = telemetry.New(telemetry.Options{Clock: v.clock, Events: 100})
	return v, v.host.telemetry
}

func events(r *telemetry.Recorder) (all []string) {
	es := make([]telemetry.Event, 100)
	for _, e := range es[:r.Events().Read(0, es)] {
		all = append(all, fmt.Sprintf("%v %s %v %v", e.Kind, e.Queue, e.Reason, e.Outcome))
	}
	return all
}

// A removal is reported and counted once, with its outcome, and the counts outlive the queue.
func TestWhatLeavesIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, r := watched(t)
		nowhere := declare(t, v, "nowhere", "x-dead-letter-exchange", "missing")
		loop := declare(t, v, "loop", "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "loop")
		plain := declare(t, v, "plain")
		for _, s := range []*queue.Mailbox{nowhere, loop, plain} {
			publish(s, text("m"))
			leave(t, s, queue.Reject)
			synctest.Wait()
		}
		want := []string{
			"message_dropped nowhere rejected no_exchange", "message_dead_lettered loop rejected dead_lettered", "message_dropped plain rejected dropped",
		}
		if got := events(r); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		for _, s := range []string{"nowhere", "loop", "plain"} {
			_, err := v.DeleteQueue(s, 0, false, false)
			must(t, err)
		}
		counted := v.Stats().Removals["usual"]
		if got := counted[hook.ReasonRejected]; got != [telemetry.Outcomes]uint64{telemetry.Dropped: 1, telemetry.DeadLettered: 1, telemetry.NoExchange: 1} {
			t.Errorf("counted %v", got)
		}
	})
}

func TestQueuesThatExpireAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, r := watched(t)
		began := v.clock()
		q := declare(t, v, "q", "x-expires", int32(1000))
		publish(q, text("a"), text("b"))
		time.Sleep(2 * time.Second)
		es := make([]telemetry.Event, 10)
		if n := r.Events().Read(0, es); n != 1 {
			t.Fatalf("%d events, want 1", n)
		}
		if e := es[0]; e.Kind != telemetry.QueueExpired || e.Queue != "q" || e.VHost != "/" || e.Since != began || e.Deadline != began.Add(time.Second) || e.Messages != 2 {
			t.Errorf("got %+v", e)
		}
		if s := v.Stats(); s.QueuesExpired != 1 || s.Queues != 0 {
			t.Errorf("got %+v", s)
		}
	})
}

// A dead letter is traced if the message was.
func TestDeadLettersAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := watched(t)
		from, to := declare(t, v, "from", "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "to"), declare(t, v, "to")
		one, other := text("traced"), text("untraced")
		one.Flags = queue.Traced
		publish(from, one, other)
		leave(t, from, queue.Reject)
		synctest.Wait()
		n := 0
		err := to.Do(func(q *queue.Queue, now hook.Instant) {
			for q.Get(now, &queue.Consumer{Queue: to, NoAck: true}, func(d queue.Delivery, _ int) {
				if n++; d.Traced != (string(d.Body) == "traced") {
					t.Errorf("%s: followed %t", d.Body, d.Traced)
				}
			}) {
				continue
			}
		})
		must(t, err)
		if n != 2 {
			t.Errorf("%d messages arrived", n)
		}
	})
}

func TestRefusalsAreCounted(t *testing.T) {
	v, _ := newVHost(t)
	q := declare(t, v, "q")
	v.QueueHost().Refused(q.Config(), 3)
	v.QueueHost().Refused(q.Config(), 1)
	if got := v.Stats().Refused; got != 4 {
		t.Errorf("got %d", got)
	}
}

// Reporting allocates nothing, with or without listeners.
func TestTellingAllocatesNothing(t *testing.T) {
	v, _ := watched(t)
	q := declare(t, v, "q")
	ls := make([]telemetry.Removal, 64)
	for i := range ls {
		ls[i] = telemetry.Removal{Key: []byte("key"), Props: []byte{0, 0}, Reason: hook.ReasonExpired, Deadline: 1, Outcome: telemetry.Outcome(i % 2)}
	}
	if n := testing.AllocsPerRun(100, func() { v.QueueHost().Removed(q.Config(), 5, ls) }); n > 0 {
		t.Errorf("got %v allocations for 64 messages, want none", n)
	}
}

func TestDeadLetterCounts(t *testing.T) {
	v := &VHost{}
	safe := &hook.Target{AtLeastOnce: true}
	removals := []telemetry.Removal{
		{Reason: hook.ReasonExpired},
		{Reason: hook.ReasonExpired, Target: &hook.Target{}, Outcome: telemetry.NoExchange},
		{Reason: hook.ReasonExpired, Target: &hook.Target{}, Outcome: telemetry.Cycle},
		{Reason: hook.ReasonExpired, Target: &hook.Target{}, Outcome: telemetry.DeadLettered},
		{Reason: hook.ReasonMaxLen, Target: &hook.Target{}, Outcome: telemetry.Unroutable},
		{Reason: hook.ReasonMaxLen, Target: safe, Outcome: telemetry.DeadLettered},
		{Reason: hook.ReasonMaxLen, Target: safe, Outcome: telemetry.Unroutable},
	}
	v.host.removals.add(&queue.Config{Profile: &queue.Profile{Kind: queue.Quorum}}, removals)
	v.host.removals.add(&queue.Config{Profile: &queue.Profile{Kind: queue.Classic}}, []telemetry.Removal{removals[0], removals[5]})
	var want DeadLetterCounts
	want[0][DeadLetterDisabled][hook.ReasonExpired] = 1
	want[0][AtLeastOnce][hook.ReasonMaxLen] = 1
	want[1][DeadLetterDisabled][hook.ReasonExpired] = 2
	want[1][AtMostOnce][hook.ReasonExpired] = 2
	want[1][AtMostOnce][hook.ReasonMaxLen] = 1
	want[1][AtLeastOnce][hook.ReasonMaxLen] = 2
	if got, confirmed := v.DeadLetters(); got != want || confirmed != [queue.Types]uint64{queue.QuorumType: 1, queue.ClassicType: 1} {
		t.Errorf("got %v with %d confirmed, want %v with 1 each", got, confirmed, want)
	}
}
