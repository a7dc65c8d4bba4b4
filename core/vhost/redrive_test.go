package vhost

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

const never = hook.Instant(math.MaxInt64)

func anyone(string, string) error { return nil }

// redrive plans and starts a redrive, and waits until it has ended.
func redrive(t *testing.T, v *VHost, r RedriveRequest) (queue.RedriveStatus, []RedriveTarget) {
	t.Helper()
	j := startRedrive(t, v, r)
	synctest.Wait()
	time.Sleep(time.Hour / 2)
	s, targets := j.Status()
	if s.State == queue.RedriveRunning {
		t.Fatalf("it still runs: %+v", s)
	}
	return s, targets
}

func startRedrive(t *testing.T, v *VHost, r RedriveRequest) *RedriveJob {
	t.Helper()
	if r.MayPublish == nil {
		r.MayPublish = anyone
	}
	p, err := v.Redrives().Plan(&r, never)
	must(t, err)
	j, err := v.Redrives().Start(&r, &p)
	must(t, err)
	return j
}

// bury makes messages die in a queue, from which they get to the queue "dead".
func bury(v *VHost, from *queue.Mailbox, reason hook.Reason, ms ...queue.Message) {
	die(v, from, reason, &hook.Target{Key: "dead", HasKey: true}, ms...)
}

func numbered(from, n int) (all []queue.Message) {
	for i := range n {
		all = append(all, text(strconv.Itoa(from+i)))
	}
	return all
}

// Messages that are redriven to their source are as they were when they died, in order.
func TestRedriveToSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, log := newVHost(t)
		a, b, dead := declare(t, v, "a"), declare(t, v, "b"), declare(t, v, "dead")
		m := withProps(text("first"), amqp.Properties{Headers: args("mine", "stays"), MessageID: "id", Priority: 3},
			amqp.PropHeaders, amqp.PropMessageID, amqp.PropPriority)
		m.Routing = &queue.RoutingInfo{Exchange: "orders", Key: "order.new"}
		bury(v, a, hook.ReasonExpired, m)
		bury(v, b, hook.ReasonRejected, numbered(1, 700)...)
		bury(v, a, hook.ReasonExpired, text("last"))
		s, targets := redrive(t, v, RedriveRequest{From: "dead"})
		if s.State != queue.RedriveDone || s.Moved != 702 || s.Looked != 702 || s.Total != 702 || s.Failed != [queue.RedriveFailures]int{} {
			t.Errorf("%+v", s)
		}
		if got := fmt.Sprint(targets); got != "[{a  false 2 0} {b  false 700 0}]" {
			t.Error(got)
		}
		all := drain(t, a)
		if bodies(all) != "first last" || len(drain(t, dead)) != 0 {
			t.Fatal(bodies(all))
		}
		first := all[0]
		if first.exchange != "orders" || first.key != "order.new" || header(first, "mine") != "stays" || first.props.MessageID != "id" {
			t.Errorf("%+v", first)
		}
		if got := lastDeath(first); !strings.Contains(got, "count=1 reason=expired queue=a exchange=orders") {
			t.Error(got)
		}
		if got := fmt.Sprint(header(first, "x-redriven")); !strings.HasPrefix(got, "[{count 1} {time 946684") {
			t.Error(got)
		}
		all = drain(t, b)
		for i, m := range all {
			if m.body != strconv.Itoa(i+1) {
				t.Fatalf("message %d is %s", i, m.body)
			}
		}
		if n := log.Count("redrive finished"); len(all) != 700 || n != 1 {
			t.Errorf("%d messages, %d lines", len(all), n)
		}
		if st := statsOf(t, dead); st.DeadLettered[hook.ReasonRedriven] != 702 || st.Unacked+st.Discarded+st.Ready != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func statsOf(t *testing.T, m *queue.Mailbox) (s queue.Stats) {
	t.Helper()
	must(t, m.Do(func(q *queue.Queue, _ hook.Instant) { s = q.Stats() }))
	return s
}

// A message that is redriven again counts it, dies as before, and closes no cycle.
func TestRedriveAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newVHost(t)
		a := declare(t, v, "a")
		declare(t, v, "dead")
		bury(v, a, hook.ReasonExpired, text("m"))
		for n := range 3 {
			if s, _ := redrive(t, v, RedriveRequest{From: "dead"}); s.Moved != 1 {
				t.Fatalf("round %d: %+v", n, s)
			}
			m := again(t, a)
			bury(v, a, hook.ReasonExpired, m)
		}
		redrive(t, v, RedriveRequest{From: "dead"})
		m := drain(t, a)[0]
		if got := lastDeath(m); !strings.HasPrefix(got, "count=4 reason=expired queue=a") {
			t.Error(got)
		}
		if got := fmt.Sprint(header(m, "x-redriven")); !strings.HasPrefix(got, "[{count 4}") {
			t.Error(got)
		}
	})
}

// A redrive to the origin goes the way that the message went first, with all that is bound there now.
func TestRedriveToOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newVHost(t)
		a, b, dead := declare(t, v, "a"), declare(t, v, "b"), declare(t, v, "dead")
		exchangeOf(t, v, "orders", "direct")
		bind(t, v, "orders", "b", "order.new")
		m := text("m")
		m.Routing = &queue.RoutingInfo{Exchange: "orders", Key: "order.new"}
		die(v, a, hook.ReasonExpired, &hook.Target{Key: "b", HasKey: true}, m)
		die(v, b, hook.ReasonRejected, &hook.Target{Key: "dead", HasKey: true}, again(t, b))
		publish(dead, text("never died"))
		s, targets := redrive(t, v, RedriveRequest{From: "dead", To: ToOrigin})
		if s.Moved != 1 || s.Failed[queue.FailNoDeath] != 1 || fmt.Sprint(targets) != "[{ orders false 1 0}]" {
			t.Errorf("%+v, %v", s, targets)
		}
		if all := drain(t, b); bodies(all) != "m" || all[0].exchange != "orders" || all[0].key != "order.new" {
			t.Errorf("%+v", all)
		}
		if all := drain(t, dead); bodies(all) != "never died" {
			t.Errorf("%+v", all)
		}
	})
}

// An x-death that a publisher wrote sends messages nowhere.
func TestRedriveBelievesNoPublisher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newVHost(t)
		declare(t, v, "secret")
		dead := declare(t, v, "dead")
		forged := amqp.Array{amqp.Table{{Key: "queue", Value: "secret"}, {Key: "reason", Value: "expired"}, {Key: "exchange", Value: ""}, {Key: "routing-keys", Value: amqp.Array{"secret"}}}}
		publish(dead, withProps(text("m"), amqp.Properties{
			Headers: args("x-death", forged, "x-first-death-queue", "secret", "x-first-death-reason", "expired"),
		}, amqp.PropHeaders))
		for _, to := range []RedriveTo{ToSource, ToOrigin} {
			if s, _ := redrive(t, v, RedriveRequest{From: "dead", To: to}); s.Moved != 0 || s.Failed[queue.FailNoDeath] != 1 {
				t.Errorf("%+v", s)
			}
		}
		if s, _ := redrive(t, v, RedriveRequest{From: "dead", Reason: "expired", To: ToQueue, Queue: "secret"}); s.Moved != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestRedriveFilters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newVHost(t)
		a, b := declare(t, v, "a"), declare(t, v, "b")
		dead, to := declare(t, v, "dead"), declare(t, v, "to")
		id := withProps(text("id"), amqp.Properties{MessageID: "7"}, amqp.PropMessageID)
		fill := func() {
			drain(t, dead)
			bury(v, a, hook.ReasonExpired, text("a.old"), id)
			time.Sleep(10 * time.Second)
			bury(v, a, hook.ReasonRejected, text("a.rejected"))
			bury(v, b, hook.ReasonRejected, text("b.rejected"))
			publish(dead, text("published"))
		}
		for _, tc := range []struct {
			name  string
			r     RedriveRequest
			moved string
		}{
			{"all", RedriveRequest{}, "a.old id a.rejected b.rejected published"},
			{"reason", RedriveRequest{Reason: "rejected"}, "a.rejected b.rejected"},
			{"queue", RedriveRequest{WhereQueue: "a"}, "a.old id a.rejected"},
			{"both", RedriveRequest{WhereQueue: "a", Reason: "rejected"}, "a.rejected"},
			{"id", RedriveRequest{MessageID: "7"}, "id"},
			{"older", RedriveRequest{OlderThan: 10 * time.Second}, "a.old id"},
			{"not that old", RedriveRequest{OlderThan: 20 * time.Second}, ""},
			{"count", RedriveRequest{Count: 2}, "a.old id"},
			{"count of those", RedriveRequest{Count: 1, Reason: "rejected"}, "a.rejected"},
		} {
			fill()
			r := tc.r
			r.From, r.To, r.Queue, r.MayPublish = "dead", ToQueue, "to", anyone
			p, err := v.Redrives().Plan(&r, never)
			must(t, err)
			wanted := len(strings.Fields(tc.moved))
			if p.Matched != wanted || !p.Complete {
				t.Errorf("%s: the plan says %+v", tc.name, p)
			}
			s, _ := redrive(t, v, r)
			if got := bodies(drain(t, to)); got != tc.moved || s.Moved != wanted || s.Total != wanted || s.State != queue.RedriveDone {
				t.Errorf("%s: moved %q, want %q; %+v", tc.name, got, tc.moved, s)
			}
		}
	})
}

// A redrive does not move messages that enter while it runs: a redrive of a queue to itself ends.
func TestRedriveOntoItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newVHost(t)
		q := declare(t, v, "q", "x-max-priority", int64(3))
		publish(q, numbered(0, 3000)...)
		s, _ := redrive(t, v, RedriveRequest{From: "q", To: ToQueue, Queue: "q"})
		if s.Moved != 3000 || s.State != queue.RedriveDone {
			t.Errorf("%+v", s)
		}
		all := drain(t, q)
		for i, m := range all {
			if m.body != strconv.Itoa(i) || fmt.Sprint(header(m, "x-redriven"))[:10] != "[{count 1}" {
				t.Fatalf("message %d is %+v", i, m)
			}
		}
		if len(all) != 3000 {
			t.Errorf("%d messages", len(all))
		}
	})
}

// A full target takes as many messages as it can; the rest stays in its queue, in order, and is not marked as redelivered.
func TestRedriveToAFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newVHost(t)
		from, to := declare(t, v, "from"), declare(t, v, "full", "x-refuse-above", int64(5))
		publish(from, numbered(0, 2000)...)
		s, targets := redrive(t, v, RedriveRequest{From: "from", To: ToQueue, Queue: "full"})
		if s.Moved != 5 || s.Failed[queue.FailRefused] != 1995 || s.State != queue.RedriveDone || fmt.Sprint(targets) != "[{full  false 5 1995}]" {
			t.Errorf("%+v, %v", s, targets)
		}
		if st := statsOf(t, from); st.Ready != 1995 || st.Unacked+st.Discarded != 0 || st.Requeued+st.Redelivered != 0 {
			t.Errorf("%+v", st)
		}
		if got := bodies(drain(t, to)); got != "0 1 2 3 4" {
			t.Error(got)
		}
		for i, m := range drain(t, from) {
			if m.body != strconv.Itoa(i+5) || m.redelivered {
				t.Fatalf("message %d is %+v", i, m)
			}
		}
	})
}

func TestRedriveErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newVHost(t)
		a, dead := declare(t, v, "a"), declare(t, v, "dead")
		bury(v, a, hook.ReasonExpired, text("m"))
		_, err := v.DeleteQueue("a", 0, false, false)
		must(t, err)
		no := errors.New("no")
		for _, tc := range []struct {
			name string
			r    RedriveRequest
			kind Kind
			text string
		}{
			{"no such queue", RedriveRequest{From: "x"}, NotFound, "no queue 'x' in vhost '/'"},
			{"no target queue", RedriveRequest{From: "dead", To: ToQueue, Queue: "x"}, Precondition, "no queue 'x' in vhost '/'"},
			{"no target exchange", RedriveRequest{From: "dead", To: ToExchange, Exchange: "x"}, Precondition, "no exchange 'x' in vhost '/'"},
			{"internal exchange", RedriveRequest{From: "dead", To: ToExchange, Exchange: TraceExchange}, AccessRefused, "cannot publish to internal exchange 'amq.rabbitmq.trace' in vhost '/'"},
			{"source is gone", RedriveRequest{From: "dead"}, Precondition, "no queue 'a' in vhost '/'"},
		} {
			tc.r.MayPublish = anyone
			_, err := v.Redrives().Plan(&tc.r, never)
			want(t, err, tc.kind, tc.text)
		}
		for _, to := range []RedriveTo{ToSource, ToQueue, ToExchange} {
			r := RedriveRequest{From: "dead", To: to, Queue: "dead", MayPublish: func(string, string) error { return no }}
			if _, err := v.Redrives().Plan(&r, never); !errors.Is(err, no) {
				t.Error(err)
			}
		}
		if n := statsOf(t, dead).Ready; n != 1 {
			t.Errorf("%d messages are left", n)
		}
	})
}

// newSlowRedrive returns a vhost where 100 of 1000 messages were moved from the queue "from" to the queue "to", in a second.
func newSlowRedrive(t *testing.T) (*VHost, *queue.Mailbox, *RedriveJob) {
	t.Helper()
	v, _ := newVHost(t)
	from := declare(t, v, "from")
	declare(t, v, "to")
	publish(from, numbered(0, 1000)...)
	j := startRedrive(t, v, RedriveRequest{From: "from", To: ToQueue, Queue: "to", PerSecond: 100})
	time.Sleep(time.Second)
	return v, from, j
}

// The target disappears while messages are under way: none is lost, and the redrive ends.
func TestRedriveWhoseTargetIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, from, j := newSlowRedrive(t)
		moved, _ := j.Status()
		_, err := v.DeleteQueue("to", 0, false, false)
		must(t, err)
		time.Sleep(time.Second)
		s, _ := j.Status()
		if s.State != queue.RedriveFailed || s.Reason != "no queue 'to' in vhost '/'" || s.Ended == 0 {
			t.Errorf("%+v", s)
		}
		if n := statsOf(t, from).Ready; moved.Moved < 95 || moved.Moved > 105 || n+s.Moved != 1000 {
			t.Errorf("%d are left, %d had been moved: %+v", n, moved.Moved, s)
		}
	})
}

// A redrive with a pace keeps it at any rate, and reports that rate.
func TestRedrivePace(t *testing.T) {
	for _, pace := range []int{1, 7, 1000, 33333} {
		t.Run(strconv.Itoa(pace), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v, _ := newVHost(t)
				from, to := declare(t, v, "from"), declare(t, v, "to")
				publish(from, numbered(0, 5*pace)...)
				j := startRedrive(t, v, RedriveRequest{From: "from", To: ToQueue, Queue: "to", PerSecond: pace})
				for second := 1; second <= 4; second++ {
					time.Sleep(time.Second)
					synctest.Wait()
					n, slack := statsOf(t, to).Ready, 1+pace/100
					if n < second*pace-slack || n > second*pace+slack {
						t.Errorf("%d after %d s", n, second)
					}
				}
				if s, _ := j.Status(); s.Rate < 0.9*float64(pace)-1 || s.Rate > 1.1*float64(pace)+1 {
					t.Errorf("%f per second", s.Rate)
				}
				time.Sleep(2 * time.Second)
				if s, _ := j.Status(); s.State != queue.RedriveDone || s.Moved != 5*pace {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

func TestCancelRedrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newVHost(t)
		from, to := declare(t, v, "from"), declare(t, v, "to")
		publish(from, numbered(0, 1000)...)
		r := RedriveRequest{From: "from", To: ToQueue, Queue: "to", PerSecond: 100}
		j := startRedrive(t, v, r)
		time.Sleep(time.Second)
		r.MayPublish = anyone
		_, err := v.Redrives().Start(&r, &RedrivePlan{})
		want(t, err, Conflict, "queue 'from' in vhost '/' is being redriven: one redrive of a queue is allowed at a time")
		v.Redrives().Cancel(j)
		synctest.Wait()
		s, _ := j.Status()
		time.Sleep(time.Minute)
		if later, _ := j.Status(); s.State != queue.RedriveCancelled || s.Moved != later.Moved || s.Ended == 0 {
			t.Errorf("%+v, then %+v", s, later)
		}
		if a, b := statsOf(t, from).Ready, statsOf(t, to).Ready; a+b != 1000 || b != s.Moved {
			t.Errorf("%d and %d: %+v", a, b, s)
		}
		if n := len(v.Redrives().List()); n != 1 {
			t.Errorf("%d are remembered", n)
		}
		v.Redrives().Cancel(j)
		if n := len(v.Redrives().List()); n != 0 {
			t.Errorf("%d are remembered", n)
		}
	})
}

// The queue disappears: its redrive fails, and says why.
func TestRedriveOfADeletedQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _, j := newSlowRedrive(t)
		_, err := v.DeleteQueue("from", 0, false, false)
		must(t, err)
		synctest.Wait()
		s, _ := j.Status()
		if s.State != queue.RedriveFailed || s.Reason != "no queue 'from' in vhost '/': it was deleted" {
			t.Errorf("%+v", s)
		}
		v.Redrives().Cancel(j) // which forgets it
	})
}

func TestRedrivesAreLimitedAndForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newVHost(t)
		declare(t, v, "to")
		var jobs []*RedriveJob
		for i := range maxRedrives + 1 {
			name := "q" + strconv.Itoa(i)
			publish(declare(t, v, name), numbered(0, 2)...)
			r := RedriveRequest{From: name, To: ToQueue, Queue: "to", PerSecond: 1, MayPublish: anyone}
			if i < maxRedrives {
				jobs = append(jobs, startRedrive(t, v, r))
				continue
			}
			_, err := v.Redrives().Start(&r, &RedrivePlan{})
			want(t, err, Conflict, "16 redrives are running in vhost '/': no more are allowed at a time")
		}
		for _, j := range jobs {
			v.Redrives().Cancel(j)
		}
		declare(t, v, "empty")
		for range 2 * maxRedriven {
			redriveAtOnce(t, v, RedriveRequest{From: "empty", To: ToQueue, Queue: "to"})
		}
		if n := len(v.Redrives().List()); n != maxRedriven {
			t.Errorf("%d are remembered", n)
		}
		time.Sleep(redriveMemory)
		if n := len(v.Redrives().List()); n != 0 {
			t.Errorf("%d are remembered after an hour", n)
		}
	})
}

func redriveAtOnce(t *testing.T, v *VHost, r RedriveRequest) {
	t.Helper()
	j := startRedrive(t, v, r)
	time.Sleep(time.Millisecond)
	if s, _ := j.Status(); s.State != queue.RedriveDone {
		t.Fatalf("%+v", s)
	}
}

// Messages that a full queue with reject-publish-dlx refused stayed, and were dead-lettered as well: each redrive doubled them.
func TestRedriveToAFullQueueThatDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newVHost(t)
		grave := declare(t, v, "grave")
		full := declare(t, v, "full", "x-refuse-above", int64(1), "x-overflow", "reject-publish-dlx", "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "grave")
		publish(full, numbered(0, 11)...) // the first one stays, the others are refused and dead-lettered
		synctest.Wait()
		for range 3 {
			s, _ := redrive(t, v, RedriveRequest{From: "grave"})
			if s.Moved != 0 || s.Failed[queue.FailRefused] != 10 || statsOf(t, grave).Ready != 10 || statsOf(t, full).Ready != 1 {
				t.Fatalf("%+v: %d in the grave, %d in the target", s, statsOf(t, grave).Ready, statsOf(t, full).Ready)
			}
		}
		if got := bodies(drain(t, grave)); got != "1 2 3 4 5 6 7 8 9 10" {
			t.Error(got)
		}
	})
}

// A queue expired while messages left it on request, or between two that came.
func TestARedriveUsesItsQueues(t *testing.T) {
	for name, request := range map[string]RedriveRequest{
		"to a queue": {To: ToQueue, Queue: "to"}, "to the source": {To: ToSource},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v, _ := newVHost(t)
				from, to := declare(t, v, "from", "x-expires", int64(500)), declare(t, v, "to", "x-expires", int64(300))
				die(v, to, hook.ReasonRejected, &hook.Target{Key: "from", HasKey: true}, numbered(0, 10)...)
				synctest.Wait()
				request.From, request.PerSecond = "from", 1
				j := startRedrive(t, v, request)
				time.Sleep(9100 * time.Millisecond)
				if s, _ := j.Status(); s.Moved != 10 || s.State != queue.RedriveDone || statsOf(t, to).Ready != 10 {
					t.Errorf("%+v", s)
				}
				time.Sleep(time.Second) // the queues are in use no more
				if v.Mailbox(from.Config().Name) != nil || v.Mailbox("to") != nil {
					t.Error("the queues have not expired")
				}
			})
		})
	}
}

// A message for several queues, one of which refuses it, stays, and goes to the others once.
func TestRedriveToSeveralQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newVHost(t)
		from, a := declare(t, v, "from"), declare(t, v, "a")
		b := declare(t, v, "b", "x-refuse-above", int64(1))
		exchangeOf(t, v, "all", "fanout")
		bind(t, v, "all", "a", "")
		bind(t, v, "all", "b", "")
		publish(from, numbered(0, 3)...)
		for moved := range 3 {
			s, _ := redrive(t, v, RedriveRequest{From: "from", To: ToExchange, Exchange: "all"})
			if left := statsOf(t, from).Ready; s.Moved != 1 || s.Failed[queue.FailRefused] != 2-moved || left != 2-moved {
				t.Errorf("%+v, %d are left", s, left)
			}
			if got := bodies(drain(t, b)); got != strconv.Itoa(moved) {
				t.Errorf("b has %s", got)
			}
		}
		if got := bodies(drain(t, a)); got != "0 1 2" {
			t.Errorf("a has %s", got)
		}
	})
}

// An expiration that the message still has counts again in its new queue.
func TestRedrivenExpirations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newVHost(t)
		from, to := declare(t, v, "from"), declare(t, v, "to")
		publish(from, withProps(text("m"), amqp.Properties{Expiration: "5000"}, amqp.PropExpiration))
		redrive(t, v, RedriveRequest{From: "from", To: ToQueue, Queue: "to"})
		if all := drain(t, to); len(all) != 1 || all[0].props.Expiration != "5000" {
			t.Errorf("%+v", all)
		}
	})
}

// One message whose key names no queue does not end a redrive to the default exchange, by which other messages find their queues.
func TestRedriveByTheirOwnKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newVHost(t)
		from, a := declare(t, v, "from"), declare(t, v, "a")
		astray, m := text("astray"), text("m")
		astray.Routing, m.Routing = &queue.RoutingInfo{Key: "nowhere"}, &queue.RoutingInfo{Key: "a"}
		publish(from, astray, m)
		r := RedriveRequest{From: "from", To: ToExchange, MayPublish: anyone}
		j, err := v.Redrives().Start(&r, &RedrivePlan{})
		must(t, err)
		time.Sleep(time.Second)
		s, _ := j.Status()
		if s.State != queue.RedriveDone || s.Moved != 1 || s.Failed[queue.FailNoQueue] != 1 || bodies(drain(t, a)) != "m" || bodies(drain(t, from)) != "astray" {
			t.Errorf("%+v", s)
		}
	})
}

// An exchange that holds messages, and has no bindings, took messages that were redriven or dead-lettered at least once, and dropped them
// when it released them.
func TestWhatLeadsNowhereIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newHoldingVHost(t, &holder{}, nil)
		from := declare(t, v, "from")
		exchangeOf(t, v, "x", "x-held", "x-inner", "direct", "x-wait", int32(1000))
		publish(from, numbered(0, 3)...)
		r := RedriveRequest{From: "from", To: ToExchange, Exchange: "x", Key: "k", HasKey: true}
		if s, _ := redrive(t, v, r); s.Moved != 0 || s.Failed[queue.FailUnroutable] != 3 || statsOf(t, from).Ready != 3 {
			t.Errorf("%+v, %+v", s, statsOf(t, from))
		}
		die(v, from, hook.ReasonRejected, &hook.Target{Exchange: "x", Key: "k", HasKey: true, AtLeastOnce: true}, text("dead"))
		bind(t, v, "x", "from", "k")
		if s, _ := redrive(t, v, r); s.Moved != 3 || bodies(drain(t, from)) != "0 1 2" {
			t.Errorf("bound: %+v", s)
		}
	})
}
