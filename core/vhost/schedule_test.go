package vhost

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/policies"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Messages come in the order of their times, and of arrival among equals; none is early. A message without a wait goes at once.
func TestScheduleReleasesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newHoldingVHost(t, &holder{}, nil)
		q := declare(t, v, "q")
		exchangeOf(t, v, "x", "x-held", "x-inner", "topic")
		bind(t, v, "x", "q", "a.*")
		for i, wait := range []int32{500, 100, 300, 200, 100, 400} {
			sent{exchange: "x", key: "a.b", body: strconv.Itoa(i), props: headersOf("wait", wait)}.send(t, v)
		}
		sent{exchange: "x", key: "a.b", body: "now"}.send(t, v)
		sent{exchange: "x", key: "a.b", body: "negative", props: headersOf("wait", int32(-5))}.send(t, v)
		if got := arrived(t, q); got != "now negative(-5)" {
			t.Errorf("at once: %s", got)
		}
		time.Sleep(100*time.Millisecond - 1)
		if got := arrived(t, q); got != "" {
			t.Errorf("early: %s", got)
		}
		if n := held(t, v, "x"); n != 6 {
			t.Errorf("holds %d", n)
		}
		time.Sleep(450 * time.Millisecond)
		if got, want := arrived(t, q), "1(-100) 4(-100) 3(-200) 2(-300) 5(-400) 0(-500)"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// The number of the header is negated: in its own type if that is signed, else as one of 64 bits.
func TestScheduleNegates(t *testing.T) {
	for _, tt := range []struct{ value, want any }{
		{int8(100), int8(-100)},
		{int16(1000), int16(-1000)},
		{int32(1000), int32(-1000)},
		{int64(1000), int64(-1000)},
		{uint8(200), int64(-200)},
		{uint16(1000), int64(-1000)},
		{uint32(1000), int64(-1000)},
		{"300", int64(-300)},
		{300.9, int64(-300)},
		{float32(300.5), int64(-300)},
		{true, true},
		{"text", "text"},
		{int32(-5), int32(-5)},
		{int64(0), int64(0)},
		{amqp.Table{{Key: "wait", Value: int32(1)}}, amqp.Table{{Key: "wait", Value: int32(1)}}},
	} {
		p := amqp.Properties{Headers: args("before", "a", "wait", tt.value, "after", int32(7)), AppID: "app", ContentType: "text"}
		p.Set(amqp.PropHeaders, amqp.PropAppID, amqp.PropContentType)
		raw := p.Append(nil)
		index, err := amqp.IndexProps(raw)
		must(t, err)
		got, err := amqp.ParseProperties(appendReleased(nil, raw, &index, "wait"))
		must(t, err)
		p.Headers[1].Value = tt.want
		if fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", p) {
			t.Errorf("%T %v:\n got %#v\nwant %#v", tt.value, tt.value, got, p)
		}
	}
}

// Whether a message leads anywhere is decided when it is released, but for mandatory ones.
func TestScheduleRoutesAtRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newHoldingVHost(t, &holder{}, nil)
		q, other := declare(t, v, "q"), declare(t, v, "other")
		exchangeOf(t, v, "alternate", "fanout")
		bind(t, v, "alternate", "other", "")
		exchangeOf(t, v, "x", "x-held", "x-inner", "direct", "alternate-exchange", "alternate")
		exchangeOf(t, v, "bare", "x-held", "x-inner", "direct")
		wait := headersOf("wait", int32(100))
		sent{exchange: "x", key: "late", body: "bound later", props: wait}.send(t, v)
		sent{exchange: "x", key: "never", body: "never bound", props: wait}.send(t, v)
		bind(t, v, "x", "q", "late")
		sent{exchange: "bare", key: "k", body: "nowhere", props: wait}.send(t, v)
		if n, _ := (sent{exchange: "bare", key: "k", mandatory: true, props: wait}).send(t, v); n != 0 || held(t, v, "bare") != 1 {
			t.Errorf("a mandatory message without a route went to %d, held are %d", n, held(t, v, "bare"))
		}
		if n, _ := (sent{exchange: "x", key: "never", mandatory: true, body: "alternate", props: wait}).send(t, v); n != 1 {
			t.Errorf("a mandatory message with an alternate exchange went to %d", n)
		}
		if got := arrived(t, other); got != "" {
			t.Errorf("the alternate exchange got %s before its time", got)
		}
		time.Sleep(time.Second)
		if got := arrived(t, q) + ", " + arrived(t, other); got != "bound later(-100), never bound(-100) alternate(-100)" {
			t.Errorf("got %s", got)
		}
		counts := v.Stats().Removals[""][hook.ReasonReleased]
		if counts[telemetry.Unroutable] != 1 || counts[telemetry.Routed] != 3 {
			t.Errorf("counted %v", counts)
		}
	})
}

// A probe of a mandatory message does not count for a plugin that remembers messages, and filters see a message once.
func TestScheduleProbesWithoutEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		filtered := 0
		v, _ := newHoldingVHost(t, &holder{filter: func(*hook.Publishing) bool { filtered++; return filtered == 1 }}, nil)
		q := declare(t, v, "q")
		exchangeOf(t, v, "x", "x-held", "x-inner", "x-any")
		bind(t, v, "x", "q", "")
		if n, _ := (sent{exchange: "x", body: "a", mandatory: true, props: headersOf("wait", int32(10))}).send(t, v); n != 1 {
			t.Fatalf("went to %d", n)
		}
		time.Sleep(time.Second)
		if got := arrived(t, q); got != "a(-10)" || filtered != 1 {
			t.Errorf("got %q, filtered %d times", got, filtered)
		}
	})
}

// An ID replaces the waiting message with that ID, also if the new one goes at once, and cancels it. A mandatory cancellation says whether
// it found anything.
func TestScheduleIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, q := newSchedule(t)
		schedule := func(body, id string, wait int32) {
			sent{exchange: "x", body: body, props: headersOf("wait", wait, "id", id)}.send(t, v)
		}
		cancel := func(id string, want answers) {
			t.Helper()
			if n, got := (sent{exchange: "x", mandatory: true, props: headersOf("id", id, "cancel", true)}).send(t, v); n != 1 || *got != want {
				t.Errorf("cancelling %s: %+v, want %+v", id, *got, want)
			}
		}
		schedule("first", "1", 100)
		schedule("moved", "1", 300)
		schedule("dropped", "2", 100)
		schedule("kept", "3", 100)
		schedule("hurried", "4", 500)
		schedule("now", "4", 0)
		cancel("2", answers{confirmed: 1})
		cancel("2", answers{lost: 1})
		cancel("none", answers{lost: 1})
		time.Sleep(200 * time.Millisecond)
		if got := arrived(t, q); got != "now(0) kept(-100)" {
			t.Errorf("got %s", got)
		}
		cancel("3", answers{lost: 1}) // it has been released
		schedule("again", "3", 100)
		time.Sleep(time.Second)
		if got := arrived(t, q); got != "moved(-300) again(-100)" {
			t.Errorf("got %s", got)
		}
		if n := v.Stats().Removals[""][hook.ReasonCancelled][telemetry.Dropped]; n != 3 {
			t.Errorf("%d are counted as cancelled", n)
		}
		wantHeld(t, v, "x", 0)
	})
}

// At its limit an exchange refuses to hold more messages, but not messages that go at once, replace or cancel.
func TestScheduleLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, q := newSchedule(t, "x-most", int32(2))
		for i, want := range []answers{{confirmed: 1}, {confirmed: 1}, {refused: 1}} {
			if _, got := (sent{exchange: "x", body: strconv.Itoa(i), props: headersOf("wait", int32(100), "id", strconv.Itoa(i))}).send(t, v); *got != want {
				t.Errorf("message %d: %+v", i, *got)
			}
		}
		for _, props := range [][]byte{headersOf("id", "new"), headersOf("wait", int32(50), "id", "1"), headersOf("id", "0", "cancel", true)} {
			if n, got := (sent{exchange: "x", body: "more", props: props}).send(t, v); *got != (answers{confirmed: n}) {
				t.Errorf("%q: %+v", props, *got)
			}
		}
		time.Sleep(time.Second)
		if got := arrived(t, q); got != "more more(-50)" {
			t.Errorf("got %s", got)
		}
		if n := v.Stats().Refused; n != 1 {
			t.Errorf("%d are counted as refused", n)
		}
	})
}

// A plugin can release copies of a message, one for each point in time, and pass some over.
func TestScheduleRecurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, q := newSchedule(t)
		sent{exchange: "x", body: "a", props: headersOf("wait", int32(100), "times", int32(3))}.send(t, v)
		sent{exchange: "x", body: "b", props: headersOf("wait", int32(100), "times", int32(3), "skip", true)}.send(t, v)
		for _, want := range []string{"a(-100) b(-100)", "a(-100)", "a(-100) b(-100)", ""} {
			time.Sleep(100*time.Millisecond + time.Millisecond)
			if got := arrived(t, q); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		wantHeld(t, v, "x", 0)
	})
}

// If a plugin refuses a message, its publisher learns it. A dead letter that the plugin refuses, or on which it fails, goes at once.
func TestScheduleRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, q := newSchedule(t)
		_, _, err := v.Route("x", &parts.Message{Props: headersOf("wait", "bad")}, nil)
		want(t, err, Precondition, "invalid header 'wait'")
		_, _, err = v.Route("x", &parts.Message{Key: "panic"}, nil)
		want(t, err, Precondition, "the plugin 'holder' failed to route a message through exchange 'x' in vhost '/'")
		dying := declare(t, v, "dying", "x-dead-letter-exchange", "x")
		bad, panics := text("bad"), text("panics")
		bad.Props, bad.Flags = headersOf("wait", "bad"), queue.HasHeaders
		panics.Routing = &queue.RoutingInfo{Key: "panic"}
		late := text("late")
		late.Props, late.Flags = headersOf("wait", int32(100)), queue.HasHeaders
		publish(dying, bad, panics, late)
		leave(t, dying, queue.Reject)
		synctest.Wait()
		if got := arrived(t, q); got != "bad(bad) panics" {
			t.Errorf("at once: %s", got)
		}
		time.Sleep(time.Second)
		m, _ := take(t, q)
		if _, has := m.props.Headers.Lookup("x-death"); m.body != "late" || !has {
			t.Errorf("then: %+v", m)
		}
	})
}

// Released messages are as they were published: by an exchange that leads to the one that holds them, with further keys, a priority and
// an expiration that counts from then.
func TestScheduleKeepsMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newHoldingVHost(t, &holder{}, nil)
		q := declare(t, v, "q")
		exchangeOf(t, v, "first", "fanout")
		exchangeOf(t, v, "x", "x-held", "x-inner", "direct")
		exchangeOf(t, v, "next", "x-held", "x-inner", "direct")
		bindExchange(t, v, "first", "x", "")
		bindExchange(t, v, "x", "next", "copy")
		bind(t, v, "next", "q", "copy")
		p := amqp.Properties{Headers: args("CC", amqp.Array{"copy"}, "wait", int32(100)), Priority: 7, Expiration: "50"}
		p.Set(amqp.PropHeaders, amqp.PropPriority, amqp.PropExpiration)
		sent{exchange: "first", key: "k", body: "b", props: p.Append(nil)}.send(t, v)
		time.Sleep(time.Second)
		m, ok := take(t, q)
		if !ok || m.exchange != "first" || m.key != "k" || m.props.Priority != 7 || m.props.Expiration != "50" {
			t.Errorf("got %+v", m)
		}
	})
}

// A retry loop through an exchange with the name of its queue ended in its first round, as if the message had returned to that queue.
func TestScheduleIsNoQueueOfItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newHoldingVHost(t, &holder{}, nil)
		q := declare(t, v, "work")
		exchangeOf(t, v, "work", "x-held", "x-inner", "fanout", "x-wait", int32(1000))
		bind(t, v, "work", "work", "")
		dead := []queue.DeadLetter{{Props: []byte{0, 0}, Body: []byte("a"), Reason: hook.ReasonExpired, Target: &hook.Target{Exchange: "work"}}}
		v.QueueHost().DeadLetter(q.Config(), v.clock(), dead, queue.Tracking{})
		synctest.Wait()
		if n := held(t, v, "work"); n != 1 || dead[0].Outcome != telemetry.DeadLettered {
			t.Errorf("%d are held, outcome %v", n, dead[0].Outcome)
		}
		time.Sleep(2 * time.Second)
		if got := arrived(t, q); got != "a" {
			t.Errorf("got %q", got)
		}
	})
}

// Held messages are a use of their exchange, and go with it. Another one of its name gets none of them.
func TestScheduleGoesWithItsExchange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, log := newHoldingVHost(t, &holder{}, nil)
		q := declare(t, v, "q")
		wait := headersOf("wait", int32(100))
		exchangeOf(t, v, "x", "x-held", "x-inner", "fanout")
		sent{exchange: "x", body: "a", props: wait}.send(t, v)
		want(t, v.DeleteExchange("x", true), Precondition, "exchange 'x' in vhost '/' in use")
		must(t, v.DeleteExchange("x", false))
		exchangeOf(t, v, "x", "x-held", "x-inner", "fanout")
		bind(t, v, "x", "q", "")
		time.Sleep(time.Second)
		if got := arrived(t, q); got != "" {
			t.Errorf("got %s", got)
		}
		if n := log.Count("an exchange was deleted with the messages that it held"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		if _, err := v.Schedule("amq.direct"); err == nil {
			t.Error("a direct exchange has a schedule")
		}
		if _, err := v.Schedule("none"); err == nil {
			t.Error("an exchange that does not exist has a schedule")
		}
	})
}

// An auto-delete exchange stays until it has released everything.
func TestScheduleAutoDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, _ := newHoldingVHost(t, &holder{}, nil)
		other := declare(t, v, "other")
		exchangeOf(t, v, "alternate", "fanout")
		bind(t, v, "alternate", "other", "")
		must(t, v.DeclareExchange(Exchange{
			Name: "x", Type: "x-held", AutoDelete: true, Args: args("x-inner", "fanout", "alternate-exchange", "alternate"),
		}, nil))
		declare(t, v, "q")
		bind(t, v, "x", "q", "")
		sent{exchange: "x", body: "a", props: headersOf("wait", int32(100))}.send(t, v)
		must(t, v.Unbind(Binding{Source: "x", Destination: "q"}, 0))
		if _, ok := v.Exchange("x"); !ok {
			t.Fatal("the exchange is gone, with a message that it held")
		}
		time.Sleep(time.Second)
		if _, ok := v.Exchange("x"); ok {
			t.Error("the exchange is still there")
		}
		if got := arrived(t, other); got != "a(-100)" {
			t.Errorf("got %q", got)
		}
	})
}

// Policies change how long an exchange holds the messages that come afterwards.
func TestSchedulePolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &holder{}
		v, _ := newHoldingVHost(t, p, nil)
		q := declare(t, v, "q")
		exchangeOf(t, v, "x", "x-held", "x-inner", "fanout")
		bind(t, v, "x", "q", "")
		rules := policies.NewRules(v.chain.ExchangeKeys(), nil)
		policy, err := rules.Parse(policies.User, "p", []byte(`{"pattern": "x", "definition": {"wait": 100}}`))
		must(t, err)
		_, err = v.SetPolicy(policies.User, policy)
		must(t, err)
		sent{exchange: "x", body: "a"}.send(t, v)
		before := p.created
		_, err = v.ClearPolicy(policies.User, "p")
		must(t, err)
		if p.created != before+1 {
			t.Errorf("the plugin was asked %d times", p.created-before)
		}
		sent{exchange: "x", body: "b"}.send(t, v)
		if got := arrived(t, q); got != "b" {
			t.Errorf("at once: %s", got)
		}
		time.Sleep(time.Second)
		if got := arrived(t, q); got != "a" {
			t.Errorf("then: %s", got)
		}
	})
}

// Declarations are checked and compared.
func TestScheduleDeclarations(t *testing.T) {
	v, _ := newHoldingVHost(t, &holder{}, nil)
	want(t, v.DeclareExchange(Exchange{Name: "x", Type: "x-held", Args: args("x-inner", "none")}, nil), Precondition,
		"the plugin 'holder' routes messages of the exchange by the type 'none', expected one of direct, fanout, topic, headers, x-any")
	exchangeOf(t, v, "x", "x-held", "x-inner", "headers")
	exchangeOf(t, v, "x", "x-held", "x-inner", "headers")
	want(t, v.DeclareExchange(Exchange{Name: "x", Type: "x-held", Args: args("x-inner", "topic")}, nil), Precondition,
		"inequivalent arg 'x-inner' for exchange 'x' in vhost '/': received 'topic' but current is 'headers'")
	declare(t, v, "q")
	if err := v.Bind(Binding{Source: "x", Destination: "q", Args: args("x-match", "nonsense")}, 0); err == nil {
		t.Error("a binding is not checked by the type that routes")
	}
}

// Exchanges that hold every message, and that lead to each other, held a message forever, and twice as many copies of it in each round.
func TestAMessageIsHeldOnce(t *testing.T) {
	for _, tt := range []struct {
		name     string
		bindings [][2]string // from x, y, z, a or b, each of which holds every message for 100 ms; a and b are each other's alternate exchange
		from     string      // the exchange that leads to the queue
		props    []byte
		want     string
	}{
		{"cycle", [][2]string{{"x", "y"}, {"y", "x"}}, "y", nil, "m"},
		{"two cycles", [][2]string{{"x", "y"}, {"y", "x"}, {"x", "z"}, {"z", "x"}}, "x", nil, "m"},
		{"alternate exchanges", [][2]string{{"x", "a"}}, "x", nil, "m"},
		{"chain", [][2]string{{"x", "y"}, {"y", "z"}}, "z", headersOf("wait", int32(100), "times", int32(2), "id", "i"), "m(-100) m(-100)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v, _ := newHoldingVHost(t, &holder{}, nil)
				q := declare(t, v, "q")
				for _, name := range []string{"x", "y", "z"} {
					exchangeOf(t, v, name, "x-held", "x-inner", "fanout", "x-wait", int32(100))
				}
				exchangeOf(t, v, "a", "x-held", "x-inner", "direct", "x-wait", int32(100), "alternate-exchange", "b")
				exchangeOf(t, v, "b", "x-held", "x-inner", "direct", "x-wait", int32(100), "alternate-exchange", "a")
				for _, b := range tt.bindings {
					bindExchange(t, v, b[0], b[1], "")
				}
				bind(t, v, tt.from, "q", "")
				sent{exchange: "x", body: "m", props: tt.props}.send(t, v)
				time.Sleep(100*time.Millisecond - 1)
				if got := arrived(t, q); got != "" {
					t.Errorf("early: %q", got)
				}
				time.Sleep(time.Second)
				if got := arrived(t, q); got != tt.want {
					t.Errorf("got %q, want %q", got, tt.want)
				}
				for _, m := range v.Schedules() {
					if name := m.Config().Name; held(t, v, name) > 0 {
						t.Errorf("%s still holds a message", name)
					}
				}
			})
		})
	}
}
