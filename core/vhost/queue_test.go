package vhost

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

func TestExclusive(t *testing.T) {
	v, _ := newVHost(t)
	_, err := v.DeclareQueue(QueueDeclare{Name: "q", Exclusive: true, Owner: 1})
	must(t, err)
	text := v.locked("q").Text
	_, err = v.DeclareQueue(QueueDeclare{Name: "q", Exclusive: true, Owner: 2})
	want(t, err, Locked, text)
	_, err = v.DeclareQueue(QueueDeclare{Name: "q", Owner: 1}) // its own, but not as exclusive
	want(t, err, Locked, text)
	_, err = v.CheckQueue("q", 2, false)
	want(t, err, Locked, text)
	_, err = v.Queue("q", 2)
	want(t, err, Locked, text)
	_, err = v.PurgeQueue("q", 2)
	want(t, err, Locked, text)
	_, err = v.DeleteQueue("q", 2, false, false)
	want(t, err, Locked, text)

	_, err = v.DeclareQueue(QueueDeclare{Name: "q", Durable: true, Exclusive: true, Owner: 1})
	must(t, err)
	_, err = v.CheckQueue("q", 1, false)
	must(t, err)
	_, err = v.PurgeQueue("q", 1)
	must(t, err)

	declare(t, v, "shared")
	_, err = v.DeclareQueue(QueueDeclare{Name: "shared", Durable: true, Exclusive: true, Owner: 1})
	want(t, err, Locked, v.locked("shared").Text)
}

func TestExclusiveQueuesGoWithTheirConnection(t *testing.T) {
	v, _ := newVHost(t)
	for i := range 10 {
		for owner := range Owner(2) {
			name := strconv.Itoa(int(owner)) + "." + strconv.Itoa(i)
			d, err := v.DeclareQueue(QueueDeclare{Name: name, Exclusive: true, Owner: owner + 1})
			must(t, err)
			must(t, v.Bind(Binding{Source: "amq.direct", Destination: name, Key: "k"}, owner+1))
			publish(d.Mailbox, text("lost"))
		}
	}
	declare(t, v, "shared")
	must(t, v.DeclareExchange(Exchange{Name: "x", Type: "direct", AutoDelete: true}, nil))
	must(t, v.Bind(Binding{Source: "x", Destination: "0.1"}, 1))
	_, err := v.DeleteQueue("0.0", 1, false, false)
	must(t, err)
	v.RemoveConnection(1)
	v.RemoveConnection(1)
	v.RemoveConnection(99)
	if n := len(v.Queues()); n != 11 {
		t.Errorf("%d queues are left, want 11", n)
	}
	if n := len(v.Bindings()); n != 10 {
		t.Errorf("%d bindings are left, want 10", n)
	}
	want(t, v.CheckExchange("x"), NotFound, "no exchange 'x' in vhost '/'")
	v.RemoveConnection(2)
	if n := len(v.Queues()); n != 1 || len(v.topology.queues.exclusive) != 0 {
		t.Errorf("%d queues and %d owners are left", n, len(v.topology.queues.exclusive))
	}
}

func TestDeleteQueue(t *testing.T) {
	v, _ := newVHost(t)
	s := declare(t, v, "q")
	publish(s, text("a"), text("b"))
	_, err := v.DeleteQueue("q", 0, false, true)
	want(t, err, Precondition, "queue 'q' in vhost '/' not empty")
	c := &queue.Consumer{Queue: s, Sink: full{}, Prefetch: 1}
	must(t, s.Do(func(q *queue.Queue, now hook.Instant) { _ = q.AddConsumer(now, c) }))
	_, err = v.DeleteQueue("q", 0, true, true)
	want(t, err, Precondition, "queue 'q' in vhost '/' in use")
	n, err := v.DeleteQueue("q\n", 0, false, false)
	if must(t, err); n != 2 {
		t.Errorf("got %d messages, want 2", n)
	}
	if err := s.Do(func(*queue.Queue, hook.Instant) {}); err == nil {
		t.Error("the queue lives on")
	}
	if n, err = v.DeleteQueue("q", 0, true, true); n != 0 || err != nil {
		t.Errorf("deleted again: got %d, %v", n, err)
	}
	_, err = v.Queue("q", 0)
	want(t, err, NotFound, "no queue 'q' in vhost '/'")
}

func TestPurgeQueue(t *testing.T) {
	v, _ := newVHost(t)
	publish(declare(t, v, "q"), text("a"), text("b"))
	for _, want := range []int{2, 0} {
		if n, err := v.PurgeQueue("q", 0); n != want || err != nil {
			t.Errorf("got %d, %v, want %d", n, err, want)
		}
	}
	_, err := v.PurgeQueue("none", 0)
	want(t, err, NotFound, "no queue 'none' in vhost '/'")
}

func TestAutoDeleteQueue(t *testing.T) {
	v, log := newVHost(t)
	d, err := v.DeclareQueue(QueueDeclare{Name: "q", AutoDelete: true})
	must(t, err)
	bind(t, v, "amq.fanout", "q", "")
	c := &queue.Consumer{Queue: d.Mailbox, Sink: full{}}
	must(t, d.Mailbox.Do(func(q *queue.Queue, now hook.Instant) {
		_ = q.AddConsumer(now, c)
		q.RemoveConsumers(now, nil, c)
	}))
	_, err = v.CheckQueue("q", 0, false)
	want(t, err, NotFound, "no queue 'q' in vhost '/'")
	if n := len(v.Bindings()); n != 0 {
		t.Errorf("%d bindings are left", n)
	}
	if log.Count("queue expired") > 0 {
		t.Error("it did not expire")
	}
}

func TestQueueExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, log := newVHost(t)
		publish(declare(t, v, "q", "x-expires", int32(1000)), text("a"), text("b"))
		use := func(what string, renews bool, fn func() error) {
			t.Helper()
			must(t, fn())
			time.Sleep(600 * time.Millisecond)
			if _, ok := v.topology.lookup("q"); ok != renews {
				t.Fatalf("%s: the queue is there: %v, want %v", what, ok, renews)
			}
		}
		time.Sleep(600 * time.Millisecond)
		use("declare", true, func() error { declare(t, v, "q", "x-expires", int32(1000)); return nil })
		use("check", true, func() error { _, err := v.CheckQueue("q", 0, false); return err })
		use("no-wait", false, func() error {
			_, err := v.DeclareQueue(QueueDeclare{Name: "q", Durable: true, Args: args("x-expires", int32(1000)), NoWait: true})
			return err
		})
		_, err := v.CheckQueue("q", 0, false)
		want(t, err, NotFound, "no queue 'q' in vhost '/'")
		if log.Count(`level=INFO msg="queue expired" vhost=/ queue=q reason=queue_expired idle=1s messages_dropped=2`) != 1 {
			t.Errorf("logged:\n%s", log.String())
		}
	})
}

// A refused redeclaration is no use of the queue.
func TestRefusedDeclarationsRenewNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newVHost(t)
		declare(t, v, "q", "x-expires", int32(1000))
		time.Sleep(600 * time.Millisecond)
		if _, err := v.DeclareQueue(QueueDeclare{Name: "q"}); err == nil {
			t.Fatal("not refused")
		}
		time.Sleep(600 * time.Millisecond)
		if _, ok := v.topology.lookup("q"); ok {
			t.Fatal("the queue is there")
		}
	})
}

func TestQuorumLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newVHost(t)
		for range 2 {
			declare(t, v, "q", "x-queue-type", "quorum", "x-expires", int32(1000))
			time.Sleep(600 * time.Millisecond)
		}
		if _, ok := v.topology.lookup("q"); ok {
			t.Fatal("declaring it renewed the lease")
		}
	})
}

func TestExpiryStormIsSummedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, log := newVHost(t)
		for i := range 1_100 {
			declare(t, v, "q"+strconv.Itoa(i), "x-expires", int32(1000))
		}
		time.Sleep(2 * time.Second)
		declare(t, v, "straggler", "x-expires", int32(1000))
		time.Sleep(2 * time.Second)
		if n := len(v.Queues()); n != 0 {
			t.Fatalf("%d queues are left", n)
		}
		if n := log.Count("queue expired"); n < expiryBurst || n > expiryBurst+5 {
			t.Errorf("%d queues were logged", n)
		}
		if log.Count(`msg="many queues expire" vhost=/ reason=queue_expired expired_unlogged=1000`) != 1 || log.Count("queue=straggler") != 1 {
			t.Errorf("logged:\n%s", log.String())
		}
	})
}

// A deleted queue is in the table until its own turn reports the deletion.
func TestGoneButInTheTable(t *testing.T) {
	v, _ := newVHost(t)
	end := func() *queue.Mailbox {
		s := declare(t, v, "q")
		must(t, s.Do(func(q *queue.Queue, _ hook.Instant) { _, _ = q.Delete(false, false) }))
		return s
	}
	gone := end()
	if s := declare(t, v, "q"); s == gone {
		t.Error("declare returned it")
	}
	must(t, func() error { _, err := v.DeleteQueue("q", 0, false, false); return err }())
	end()
	_, err := v.DeclareQueue(QueueDeclare{Name: "q"}) // it is not the same, and need not be
	must(t, err)
	_, err = v.DeleteQueue("q", 0, false, false)
	must(t, err)
	end()
	_, err = v.CheckQueue("q", 0, false)
	want(t, err, NotFound, "no queue 'q' in vhost '/'")
	end()
	_, err = v.PurgeQueue("q", 0)
	want(t, err, NotFound, "no queue 'q' in vhost '/'")
	end()
	n, err := v.DeleteQueue("q", 0, true, true)
	if must(t, err); n != 0 || len(v.Queues()) != 0 {
		t.Errorf("deleted %d messages, %d queues are left", n, len(v.Queues()))
	}
	s := declare(t, v, "q")
	v.QueueHost().Deleted(gone, queue.Deletion{}) // late: there is another one by now
	if got, err := v.Queue("q", 0); got != s || err != nil {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestTableShrinks(t *testing.T) {
	v, _ := newVHost(t)
	for i := range 5000 {
		declare(t, v, strconv.Itoa(i))
	}
	for i := range 4990 {
		_, err := v.DeleteQueue(strconv.Itoa(i), 0, false, false)
		must(t, err)
	}
	if v.topology.queues.peak > 1024 || v.topology.queues.count() != 10 {
		t.Fatalf("the table was made for %d and holds %d", v.topology.queues.peak, v.topology.queues.count())
	}
	for i := range 10 {
		if _, err := v.Queue(strconv.Itoa(4990+i), 0); err != nil {
			t.Error(err)
		}
	}
}

func TestStats(t *testing.T) {
	v, _ := newVHost(t)
	declare(t, v, "q")
	if s := v.Stats(); s.Exchanges != len(predeclared) || s.Queues != 1 {
		t.Errorf("got %+v", s)
	}
	if v.Name() != "/" {
		t.Errorf("got name %q", v.Name())
	}
}
