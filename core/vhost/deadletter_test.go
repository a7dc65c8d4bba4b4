package vhost

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// die removes messages from a queue for a reason, and waits until their dead letters have arrived.
func die(v *VHost, from *queue.Mailbox, reason hook.Reason, target *hook.Target, ms ...queue.Message) {
	ds := make([]queue.DeadLetter, len(ms))
	for i, m := range ms {
		ds[i] = queue.DeadLetter{
			Exchange: []byte(m.Routing.Exchange), Key: []byte(m.Routing.Key), BCC: m.Routing.BCC, Props: bytes.Clone(m.Props),
			Body: bytes.Clone(m.Body), Flags: m.Flags, Reason: reason, Target: target,
		}
	}
	now := hook.Instant(time.Now().UnixNano())
	v.QueueHost().DeadLetter(from.Config(), now, ds, queue.Tracking{})
	ls := make([]telemetry.Removal, len(ds))
	for i := range ds {
		ls[i] = telemetry.Removal{Reason: reason, Outcome: ds[i].Outcome, Target: target}
	}
	v.QueueHost().Removed(from.Config(), now, ls)
	for i := range ds { // nothing of them may be kept
		scribble(ds[i].Exchange)
		scribble(ds[i].Key)
		scribble(ds[i].Props)
		scribble(ds[i].Body)
		ds[i] = queue.DeadLetter{}
	}
	synctest.Wait()
}

type outcomes [telemetry.Outcomes]uint64

// dead returns the outcomes of messages that were removed for a reason.
func dead(v *VHost, why hook.Reason) outcomes {
	var sum outcomes
	for _, e := range v.Stats().Removals {
		for outcome, n := range e[why] {
			sum[outcome] += n
		}
	}
	return sum
}

func scribble(b []byte) {
	for i := range b {
		b[i] = '!'
	}
}

func drain(t *testing.T, s *queue.Mailbox) (all []got) {
	t.Helper()
	for {
		m, ok := take(t, s)
		if !ok {
			return all
		}
		all = append(all, m)
	}
}

func bodies(ms []got) string {
	var all []string
	for _, m := range ms {
		all = append(all, m.body)
	}
	return strings.Join(all, " ")
}

func header(m got, name string) any {
	v, _ := m.props.Headers.Lookup(name)
	return v
}

// lastDeath shows the newest entry of x-death without its time.
func lastDeath(m got) string {
	deaths, _ := header(m, "x-death").(amqp.Array)
	if len(deaths) == 0 {
		return "none"
	}
	entry, _ := deaths[0].(amqp.Table)
	var all []string
	for _, f := range entry {
		if f.Key != "time" {
			all = append(all, fmt.Sprintf("%s=%v", f.Key, f.Value))
		}
	}
	return strings.Join(all, " ")
}

func withProps(m queue.Message, p amqp.Properties, set ...amqp.Property) queue.Message {
	p.Set(set...)
	m.Props = p.Append(nil)
	return m
}

func TestDeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newVHost(t)
		from, to := declare(t, v, "from"), declare(t, v, "to")
		bind(t, v, "amq.direct", "to", "new")
		m := withProps(text("body"), amqp.Properties{
			Headers: args("mine", "stays", "x-death", "forged"), DeliveryMode: 2, Priority: 7, Expiration: "100", MessageID: "id", UserID: "user",
		}, amqp.PropHeaders, amqp.PropDeliveryMode, amqp.PropPriority, amqp.PropExpiration, amqp.PropMessageID, amqp.PropUserID)
		m.Flags = queue.Persistent | queue.Redelivered
		die(v, from, hook.ReasonExpired, &hook.Target{Exchange: "amq.direct", Key: "new", HasKey: true}, m)
		all := drain(t, to)
		if len(all) != 1 {
			t.Fatalf("%d messages arrived", len(all))
		}
		d := all[0]
		if d.exchange != "amq.direct" || d.key != "new" || d.body != "body" || d.redelivered {
			t.Errorf("got %+v", d)
		}
		if d.props.Has(amqp.PropExpiration) || d.props.Priority != 7 || d.props.DeliveryMode != 2 || d.props.MessageID != "id" || d.props.UserID != "user" {
			t.Errorf("got properties %+v", d.props)
		}
		want := "original-expiration=100 count=1 reason=expired queue=from exchange=first routing-keys=[key]"
		if got := lastDeath(d); got != want {
			t.Errorf("got x-death\n%s\nwant\n%s", got, want)
		}
		if header(d, "mine") != "stays" || header(d, "x-first-death-queue") != "from" {
			t.Errorf("got headers %v", d.props.Headers)
		}
		if got := dead(v, hook.ReasonExpired); got != (outcomes{telemetry.DeadLettered: 1}) {
			t.Errorf("got %+v", got)
		}
	})
}

// A dead letter keeps its priority and its durability.
func TestDeadLetterFlags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newVHost(t)
		from, to := declare(t, v, "from"), declare(t, v, "to", "x-max-priority", int32(9))
		low, high := text("low"), withProps(text("high"), amqp.Properties{Priority: 9}, amqp.PropPriority)
		die(v, from, hook.ReasonMaxLen, &hook.Target{Key: "to", HasKey: true}, low, high)
		if got := bodies(drain(t, to)); got != "high low" {
			t.Errorf("got %s", got)
		}
	})
}

func TestDeadLettersKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newVHost(t)
		from := declare(t, v, "from")
		targets := []*hook.Target{{Exchange: "amq.fanout", Key: "k", HasKey: true}, {Exchange: "amq.topic"}}
		for i := range 40 {
			name := strconv.Itoa(i)
			declare(t, v, name)
			bind(t, v, "amq.fanout", name, "")
			bind(t, v, "amq.topic", name, "#")
		}
		var ds []queue.DeadLetter
		for i := range 500 {
			ds = append(ds, queue.DeadLetter{
				Exchange: []byte("x"), Key: []byte("key " + strconv.Itoa(i/100)), Props: []byte{0, 0}, Body: fmt.Append(nil, i),
				Reason: hook.ReasonExpired, Target: targets[i/10%2],
			})
		}
		v.QueueHost().DeadLetter(from.Config(), 0, ds, queue.Tracking{})
		synctest.Wait()
		for i := range 40 {
			s, err := v.Queue(strconv.Itoa(i), 0)
			must(t, err)
			all := drain(t, s)
			if len(all) != 500 {
				t.Fatalf("queue %d got %d messages", i, len(all))
			}
			for n, m := range all {
				if m.body != strconv.Itoa(n) || n/10%2 == 1 && m.key != "key "+strconv.Itoa(n/100) {
					t.Fatalf("queue %d: message %d is %+v", i, n, m)
				}
			}
		}
	})
}

func TestDeadLetterKeys(t *testing.T) {
	cc := func(body string, bcc ...string) queue.Message {
		m := withProps(text(body), amqp.Properties{Headers: args("CC", amqp.Array{"cc", int32(1)})}, amqp.PropHeaders)
		m.Routing = &queue.RoutingInfo{Exchange: "first", Key: "key", BCC: bcc}
		return m
	}
	tests := []struct {
		name   string
		m      queue.Message
		target hook.Target
		want   string // queues, in which the message arrives as want shows
		death  string
	}{
		{"own key", text("m"), hook.Target{}, "key", "[key]"},
		{"another key", text("m"), hook.Target{Key: "cc", HasKey: true}, "cc", "[key]"},
		{"CC", cc("m"), hook.Target{}, "cc key", "[key cc]"},
		{"CC and BCC", cc("m", "bcc"), hook.Target{}, "bcc cc key", "[key cc]"},
		{"BCC of the same key", cc("m", "cc"), hook.Target{}, "cc key", "[key cc]"},
		{"another key instead of all", cc("m", "bcc"), hook.Target{Key: "other", HasKey: true}, "other", "[key cc]"},
		{"an empty key", cc("m"), hook.Target{HasKey: true}, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v, _ := newVHost(t)
				from := declare(t, v, "from")
				for _, q := range []string{"key", "cc", "bcc", "other"} {
					declare(t, v, q)
				}
				die(v, from, hook.ReasonRejected, &tt.target, tt.m)
				var arrived []string
				for _, s := range v.Queues() {
					for _, m := range drain(t, s) {
						arrived = append(arrived, s.Config().Name)
						if got := lastDeath(m); !strings.HasSuffix(got, "routing-keys="+tt.death) {
							t.Errorf("got x-death %s, want keys %s", got, tt.death)
						}
						if key := "key"; !tt.target.HasKey && m.key != key {
							t.Errorf("got key %q", m.key)
						}
					}
				}
				if got := strings.Join(arrived, " "); got != tt.want {
					t.Errorf("arrived in %q, want %q", got, tt.want)
				}
			})
		})
	}
}

// CC no longer applies after a message was routed by a dead-letter routing key.
func TestCopiesEndWithAnotherKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newVHost(t)
		declare(t, v, "copy")
		work := declare(t, v, "work", "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "retry")
		retry := declare(t, v, "retry", "x-dead-letter-exchange", "amq.fanout")
		last := declare(t, v, "last", "x-dead-letter-exchange", "")
		bind(t, v, "amq.fanout", "last", "")
		m := withProps(text("m"), amqp.Properties{Headers: args("CC", amqp.Array{"copy"})}, amqp.PropHeaders)
		publish(work, m)
		for _, s := range []*queue.Mailbox{work, retry, last} {
			leave(t, s, queue.Reject)
			synctest.Wait()
		}
		all := drain(t, retry)
		if len(all) != 1 || !strings.HasSuffix(lastDeath(all[0]), "queue=last exchange=amq.fanout routing-keys=[retry]") {
			t.Errorf("got %+v", all)
		}
		if n, err := v.PurgeQueue("copy", 0); n != 0 || err != nil {
			t.Errorf("%d copies, %v", n, err)
		}
	})
}

// CC applies at every death before that.
func TestCopiesGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newVHost(t)
		copies := declare(t, v, "copy")
		key := declare(t, v, "key", "x-dead-letter-exchange", "amq.fanout")
		last := declare(t, v, "last", "x-dead-letter-exchange", "")
		bind(t, v, "amq.fanout", "last", "")
		publish(key, withProps(text("m"), amqp.Properties{Headers: args("CC", amqp.Array{"copy"})}, amqp.PropHeaders))
		leave(t, key, queue.Reject)
		synctest.Wait()
		leave(t, last, queue.Reject)
		synctest.Wait()
		if n := len(drain(t, copies)); n != 1 {
			t.Errorf("%d copies", n)
		}
		if n := len(drain(t, key)); n != 1 {
			t.Errorf("%d messages", n)
		}
	})
}

func TestDeadLetterLeadsNowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newVHost(t)
		from := declare(t, v, "from")
		missing, empty := &hook.Target{Exchange: "none"}, &hook.Target{Exchange: "amq.direct"}
		many := []queue.Message{text("a"), text("b"), text("c")}
		die(v, from, hook.ReasonExpired, missing, many...)
		die(v, from, hook.ReasonMaxLen, empty, many[:2]...)
		die(v, from, hook.ReasonMaxLen, empty, queue.Message{Routing: many[0].Routing, Props: []byte{1}})
		if got := dead(v, hook.ReasonExpired); got != (outcomes{telemetry.NoExchange: 3}) {
			t.Errorf("no exchange: %+v", got)
		}
		if got := dead(v, hook.ReasonMaxLen); got != (outcomes{telemetry.Unroutable: 3}) {
			t.Errorf("no queue: %+v", got)
		}
		exchangeOf(t, v, "none", "fanout")
		to := declare(t, v, "to")
		bind(t, v, "none", "to", "")
		die(v, from, hook.ReasonExpired, missing, many...)
		if got := bodies(drain(t, to)); got != "a b c" {
			t.Errorf("the exchange is back: got %q", got)
		}
	})
}

func TestDeadLetterExchanges(t *testing.T) {
	for name, setUp := range map[string]func(t *testing.T, v *VHost){
		"default": func(*testing.T, *VHost) {},
		"internal": func(t *testing.T, v *VHost) {
			t.Helper()
			must(t, v.DeclareExchange(Exchange{Name: "internal", Type: "direct", Internal: true}, nil))
			bind(t, v, "internal", "key", "key")
		},
		"with alternate": func(t *testing.T, v *VHost) {
			t.Helper()
			exchangeOf(t, v, "with alternate", "direct", "alternate-exchange", "amq.fanout")
			bind(t, v, "amq.fanout", "key", "")
		},
		"headers": func(t *testing.T, v *VHost) {
			t.Helper()
			exchangeOf(t, v, "headers", "headers")
			bind(t, v, "headers", "key", "", "x-match", "all-with-x", "x-first-death-queue", "from", "x-last-death-reason", "expired")
			bind(t, v, "headers", "other", "", "x-match", "all-with-x", "x-first-death-queue", "elsewhere")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v, _ := newVHost(t)
				from, to, other := declare(t, v, "from"), declare(t, v, "key"), declare(t, v, "other")
				setUp(t, v)
				exchange := name
				if name == "default" {
					exchange = ""
				}
				die(v, from, hook.ReasonExpired, &hook.Target{Exchange: exchange}, text("a"), text("b"))
				if got := bodies(drain(t, to)); got != "a b" {
					t.Errorf("got %q", got)
				}
				if n := len(drain(t, other)); n > 0 {
					t.Errorf("%d messages went elsewhere", n)
				}
			})
		})
	}
}

func TestDeadLetterCycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, log := newVHost(t)
		a, b := declare(t, v, "a"), declare(t, v, "b")
		other := declare(t, v, "other")
		bind(t, v, "amq.fanout", "a", "")
		bind(t, v, "amq.fanout", "other", "")
		toB, toAll := &hook.Target{Key: "b", HasKey: true}, &hook.Target{Exchange: "amq.fanout"}
		for range 2 {
			die(v, a, hook.ReasonExpired, toB, text("m"))
			publish(b, again(t, b))
			die(v, b, hook.ReasonMaxLen, toAll, again(t, b)) // a would see it again
			if n := len(drain(t, other)); n != 1 {
				t.Errorf("the other queue got %d", n)
			}
			if n := len(drain(t, a)); n != 0 {
				t.Errorf("%d went round", n)
			}
			die(v, a, hook.ReasonExpired, &hook.Target{Key: "a", HasKey: true}, text("self"))
		}
		if got := dead(v, hook.ReasonExpired); got != (outcomes{telemetry.DeadLettered: 2, telemetry.Cycle: 2}) {
			t.Errorf("expired: %+v", got)
		}
		if got := dead(v, hook.ReasonMaxLen); got != (outcomes{telemetry.DeadLettered: 2}) {
			t.Errorf("maxlen: %+v", got)
		}
		for _, list := range []string{`<<\"a\">>,<<\"b\">>,<<\"a\">>`, `<<\"a\">>,<<\"a\">>`} {
			line := "level=WARN msg=\"Message dropped because the following list of queues (ordered by death recency) contains a dead letter cycle without reason 'rejected'. This list will not be logged again: [" + list + `]"`
			if n := log.Count(line); n != 1 {
				t.Errorf("%s was logged %d times:\n%s", list, n, log.String())
			}
		}
	})
}

// again takes a dead letter from its queue as a message to publish there.
func again(t *testing.T, s *queue.Mailbox) queue.Message {
	t.Helper()
	m, ok := take(t, s)
	if !ok {
		t.Fatalf("queue %s is empty", s.Config().Name)
	}
	p := text(m.body)
	p.Routing = &queue.RoutingInfo{Exchange: m.exchange, Key: m.key}
	p.Props, p.Flags = m.props.Append(nil), queue.HasDeathHistory
	return p
}

// A rejected message may circulate: a consumer decided so, not a timer.
func TestRejectedMayGoRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, log := newVHost(t)
		q := declare(t, v, "q", "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "q")
		publish(q, text("m"))
		for range 3 {
			leave(t, q, queue.Reject)
			synctest.Wait()
		}
		all := drain(t, q)
		if len(all) != 1 || lastDeath(all[0]) != "count=3 reason=rejected queue=q exchange=first routing-keys=[key]" {
			t.Errorf("got %+v", all)
		}
		if log.Count("cycle") > 0 || dead(v, hook.ReasonRejected) != (outcomes{telemetry.DeadLettered: 3}) {
			t.Errorf("got %+v, logged\n%s", v.Stats().Removals, log.String())
		}
	})
}

func TestDeadLetterSizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newVHost(t)
		name := strings.Repeat("n", 255)
		from, to := declare(t, v, name), declare(t, v, "to")
		long := args("long", strings.Repeat("h", 100_000))
		var ms []queue.Message
		for _, size := range []int{0, 1, 3000, 300_000, 5, 2_000_000, 0, 7} {
			m := withProps(text(strings.Repeat("b", size)), amqp.Properties{Headers: long}, amqp.PropHeaders)
			m.Routing = &queue.RoutingInfo{Exchange: name, Key: name}
			ms = append(ms, m)
		}
		die(v, from, hook.ReasonExpired, &hook.Target{Key: "to", HasKey: true}, ms...)
		all := drain(t, to)
		if len(all) != len(ms) {
			t.Fatalf("%d messages arrived, want %d", len(all), len(ms))
		}
		for i, m := range all {
			if m.body != string(ms[i].Body) || header(m, "long") != long[0].Value {
				t.Errorf("message %d: got %d bytes, want %d", i, len(m.body), len(ms[i].Body))
			}
		}
	})
}

// Long names make deaths larger than blocks expect.
func TestDeadLetterOutgrowsItsBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newVHost(t)
		name := strings.Repeat("n", 255)
		from, to := declare(t, v, name), declare(t, v, "to")
		for size := 1500; size < 3500; size += 10 { // blocks have 4096 bytes
			m := text(strings.Repeat("b", size))
			m.Routing = &queue.RoutingInfo{Exchange: name, Key: name}
			die(v, from, hook.ReasonExpired, &hook.Target{Key: "to", HasKey: true}, m)
			got, ok := take(t, to)
			if !ok || got.body != string(m.Body) || header(got, "x-last-death-queue") != name {
				t.Fatalf("%d bytes: got %+v", size, got)
			}
		}
	})
}

// Blocks of dead letters are released once the queues have stored the messages.
func TestDeadLettersHoldNoBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newVHost(t)
		from := declare(t, v, "from")
		for _, name := range []string{"a", "b"} {
			declare(t, v, name)
			bind(t, v, "amq.fanout", name, "")
		}
		r := deadLetterRuns.Get().(*deadLetterRun)
		r.host, r.topology, r.deaths.queue = &v.host, &v.topology, from.Config().Name
		r.routeOne([]queue.DeadLetter{{Props: []byte{0, 0}, Body: []byte("m"), Reason: hook.ReasonExpired, Target: &hook.Target{Exchange: "amq.fanout"}}})
		block := r.block.block
		block.Retain() // ours
		r.out.publish(queue.Tracking{}, nil)
		r.release()
		synctest.Wait()
		if block.Shared() {
			t.Error("somebody holds the block")
		}
		if slices.ContainsFunc(r.out.batches[:cap(r.out.batches)], func(b queueBatch) bool { return b.mailbox != nil }) {
			t.Error("the pool holds queues")
		}
	})
}
