package simulation

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const begin = hook.Instant(1_700_000_000_000_000_000)

// acting is a strategy made of functions.
type acting struct{ hooks hook.Hooks }

var (
	_ hook.Strategist        = acting{}
	_ hook.ExpirationChecker = acting{}
	_ hook.HoldReader        = acting{}
)

func (acting) Arguments() []hook.Argument     { return nil }
func (acting) Strategies() []string           { return []string{"acting"} }
func (acting) DefaultStrategy() string        { return "acting" }
func (p acting) Attach(hook.Queue) hook.Hooks { return p.hooks }
func (acting) HoldHeaders() []string          { return []string{"wait"} }

// ReadHold reads milliseconds.
func (acting) ReadHold(_ hook.Instant, values []any) (hook.Wait, error) {
	n, ok := values[0].(int64)
	if !ok {
		return hook.Wait{}, errors.New("wait is no number")
	}
	return hook.Wait{After: n}, nil
}

// CheckExpiration reads milliseconds.
func (acting) CheckExpiration(raw []byte) (hook.Limit, error) {
	n, ok := hook.WholeText(raw)
	if !ok {
		return 0, errors.New("no_integer")
	}
	return hook.LimitOf(n), nil
}

type batch = func(hook.Instant, []hook.Message, []hook.Verdict)

// each makes a hook from a function for one message.
func each(f func(now hook.Instant, m *hook.Message, v *hook.Verdict)) batch {
	return func(now hook.Instant, ms []hook.Message, vs []hook.Verdict) {
		for i := range ms {
			f(now, &ms[i], &vs[i])
		}
	}
}

// expiring are hooks that expire messages after a time.
func expiring(after time.Duration) hook.Hooks {
	return hook.Hooks{
		Strategy: true,
		OnEnqueue: each(func(now hook.Instant, m *hook.Message, v *hook.Verdict) {
			v.Deadline = now.Add(after)
			if m.Expiration.Set() {
				v.Deadline = min(v.Deadline, now.AddMillis(m.Expiration.N()))
			}
		}),
		OnHead: each(func(now hook.Instant, m *hook.Message, v *hook.Verdict) {
			if m.Why == hook.WhyDue {
				v.Action, v.Reason = hook.Drop, hook.ReasonExpired
			}
		}),
	}
}

func with(hs hook.Hooks, change func(*hook.Hooks)) hook.Hooks {
	change(&hs)
	return hs
}

func play(t *testing.T, hs hook.Hooks, change func(*Play)) (Result, string) {
	t.Helper()
	c, err := chain.New([]chain.Named{{Name: "acting", Plugin: acting{hs}}}, chain.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := &Play{
		Queue: &queue.Profile{
			VHost: "/", Kind: queue.Classic, DeliveryLimit: -1, Strategy: "acting", Settings: func(string) (any, bool) { return nil, false },
		},
		Name: "q", At: begin, For: time.Hour, Message: Message{Key: "q", Size: 10},
	}
	if change != nil {
		change(p)
	}
	r := Run(&Stage{Chain: c.Rehearse(chain.Rehearsal{})}, p)
	var b strings.Builder
	for i := range r.Events {
		e := &r.Events[i]
		fmt.Fprintf(&b, "%s %s: %s\n", e.At.Sub(begin), e.Hook, e.Text)
	}
	return r, b.String()
}

func steps(all ...Step) func(*Play) { return func(p *Play) { p.Steps = all } }

func TestRun(t *testing.T) {
	const ms = time.Millisecond
	askHead := func(h *hook.Hooks) {
		h.OnEnqueue = each(func(_ hook.Instant, _ *hook.Message, v *hook.Verdict) { v.AskHead = true })
		h.OnHead = each(func(now hook.Instant, m *hook.Message, v *hook.Verdict) {
			if m.Why == hook.WhyHead && m.Deliveries == 0 && now < begin.Add(time.Second) {
				v.Hold = now.Add(5 * time.Second)
			}
		})
	}
	for _, tc := range []struct {
		name   string
		hooks  hook.Hooks
		change func(*Play)
		want   string
		end    End
	}{
		{"it expires", expiring(2 * time.Second), nil, "0s on_enqueue: keep until +2s\n2s on_deadline: drop (expired)\n", Expired},
		{"an expiration that is lower", expiring(2 * time.Second), func(p *Play) { p.Message.Expiration = []byte("500") }, "0s on_enqueue: keep until +500ms\n500ms on_deadline: drop (expired)\n", Expired},
		{
			"an expiration that is none", expiring(time.Second), func(p *Play) { p.Message.Expiration = []byte("x") },
			"0s : its publisher's channel is closed: PRECONDITION_FAILED - invalid expiration 'x': no_integer\n", Closed,
		},
		{"no plugin", hook.Hooks{}, nil, "0s : enters the queue\n", Ready},
		{
			"held, and its deadline moves", with(expiring(time.Second), func(h *hook.Hooks) { h.DeadlineFromReady = true }),
			func(p *Play) { p.Message.Hold = []any{int64(300)} },
			"0s on_enqueue: keep until +1s, held until +300ms\n0s : the time that it is held does not count: its deadline is at +1.3s\n" +
				"300ms : its hold ends: it is ready\n1.3s on_deadline: drop (expired)\n", Expired,
		},
		{
			"held beyond its deadline", expiring(time.Second), func(p *Play) { p.Message.Hold = []any{int64(3000)} },
			"0s on_enqueue: keep until +1s, held until +3s\n1s on_deadline: drop (expired)\n", Expired,
		},
		{
			"delivered before a deadline of now", expiring(0), steps(Step{0, Deliver}, Step{10 * ms, Ack}),
			"0s on_enqueue: keep until +0s\n0s : delivered\n10ms : acknowledged\n", Acked,
		},
		{
			"a deadline that passes while a consumer has it", expiring(time.Second), steps(Step{500 * ms, Deliver}, Step{2 * time.Second, Fail}),
			"0s on_enqueue: keep until +1s\n500ms : delivered\n2s : its delivery failed\n2s on_deadline: drop (expired)\n", Expired,
		},
		{
			"rejected", expiring(time.Minute), steps(Step{1 * ms, Deliver}, Step{2 * ms, Reject}),
			"0s on_enqueue: keep until +1m0s\n1ms : delivered\n2ms : rejected\n2ms on_head: drop (rejected)\n", Dropped,
		},
		{
			"held at the head", with(hook.Hooks{Strategy: true}, askHead), steps(Step{1 * ms, Deliver}, Step{6 * time.Second, Deliver}),
			"0s on_enqueue: keep, ask again at the head\n1ms on_head: keep, held until +5.001s\n1ms : not delivered: it is held until at +5.001s\n" +
				"5.001s : its hold ends: it is ready\n6s on_head: keep\n6s : delivered\n", Unacked,
		},
		{
			"lazy", with(expiring(time.Second), func(h *hook.Hooks) { h.Scan = hook.ScanLazy }), steps(Step{3 * time.Second, Deliver}),
			"0s on_enqueue: keep until +1s\n3s on_deadline: drop (expired)\n", Expired,
		},
		{
			"refused",
			hook.Hooks{OnEnqueue: each(func(_ hook.Instant, _ *hook.Message, v *hook.Verdict) { v.Action = hook.Refuse })},
			nil,
			"0s on_enqueue: refuse: the publisher gets basic.nack\n", Refused,
		},
		{
			"retries, with a delivery limit",
			hook.Hooks{OnReturn: each(func(now hook.Instant, m *hook.Message, v *hook.Verdict) {
				v.Hold = now.AddMillis(int64(m.Returns) * 100)
			})},
			func(p *Play) {
				p.Queue.Kind, p.Queue.DeliveryLimit = queue.Quorum, 1
				p.Steps = []Step{{0, Deliver}, {1 * ms, Fail}, {200 * ms, Deliver}, {201 * ms, Fail}}
			},
			"0s : enters the queue\n0s : delivered\n1ms : its delivery failed\n1ms on_return: keep, held until +101ms\n101ms : its hold ends: it is ready\n" +
				"200ms : delivered\n201ms : its delivery failed, once more than the delivery limit allows\n201ms on_head: drop (delivery_limit)\n", Dropped,
		},
		{
			"the lease of its delivery",
			hook.Hooks{},
			func(p *Play) { p.Queue.DeliveryLease, p.Steps = time.Second, []Step{{0, Deliver}} },
			"0s : enters the queue\n0s : delivered\n1s : the lease of its delivery ends\n", Ready,
		},
		{
			"a step without a consumer",
			hook.Hooks{},
			steps(Step{0, Ack}),
			"0s : enters the queue\n0s : ack: no consumer has it\n", Ready,
		},
		{
			"a queue that is full",
			hook.Hooks{Length: hook.LimitOf(2)},
			func(p *Play) { p.Counts.Ready = 2 },
			"0s : enters the queue\n0s : the queue is full: its oldest message leaves\n", Ready,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, got := play(t, tc.hooks, tc.change)
			if got != tc.want || r.End != tc.end || !r.Complete {
				t.Errorf("got %s, complete %t\n%s\nwant %s\n%s", r.End, r.Complete, got, tc.end, tc.want)
			}
		})
	}
}

// A plugin that keeps a due message for ever is asked a bounded number of times, at ever longer intervals.
func TestRunEnds(t *testing.T) {
	stubborn := with(expiring(time.Second), func(h *hook.Hooks) { h.OnHead = each(func(hook.Instant, *hook.Message, *hook.Verdict) {}) })
	r, got := play(t, stubborn, nil)
	if r.Complete || len(r.Events) > MaxEvents || !strings.Contains(got, "it is kept although it is due: the queue asks again at +2s") {
		t.Errorf("got %d events, complete %t", len(r.Events), r.Complete)
	}
	r, _ = play(t, expiring(2*time.Hour), nil)
	if r.Complete || r.End != Ready || r.Deadline != begin.Add(2*time.Hour) {
		t.Errorf("a deadline behind the horizon: got %+v", r)
	}
	r, _ = play(t, expiring(time.Second), func(p *Play) { p.Expired = func() bool { return true } })
	if r.Complete || r.End != Ready {
		t.Errorf("no time left: got %+v", r)
	}
}

func TestOpinionsAndNotes(t *testing.T) {
	c, err := chain.New([]chain.Named{{Name: "acting", Plugin: acting{expiring(time.Second)}}, {Name: "bad", Plugin: panics{}}}, chain.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var notes, deciders []string
	s := &Stage{
		Chain: c.Rehearse(chain.Rehearsal{
			Observe: func(plugin string, before, after []hook.Verdict) {
				if before[0] != after[0] {
					deciders = append(deciders, plugin)
				}
			},
			OnPanic: func(plugin, point string, v any, _ []byte) { notes = append(notes, fmt.Sprint(plugin, point, v)) },
		}),
		Notes:    func() []string { n := notes; notes = nil; return n },
		Deciders: func() []string { d := deciders; deciders = nil; return d },
		Opinions: func() []Opinion { return []Opinion{{Policy: "shade"}} },
	}
	r := Run(s, &Play{Queue: &queue.Profile{Strategy: "acting", Settings: func(string) (any, bool) { return nil, false }}, At: begin, For: time.Hour})
	e := r.Events[0]
	if len(e.Notes) != 1 || e.Notes[0] != "badOnEnqueueoops" || len(e.By) != 1 || e.By[0] != "acting" || e.Opinions[0].Policy != "shade" {
		t.Errorf("got %+v", e)
	}
	if r.End != Expired {
		t.Errorf("got %s", r.End)
	}
	if f := c.Faults(); len(f) > 0 {
		t.Errorf("a fault of a simulation is counted for the broker's plugins: %+v", f)
	}
}

// panics is a plugin that fails on each message that enters.
type panics struct{}

func (panics) Arguments() []hook.Argument { return nil }
func (panics) Attach(hook.Queue) hook.Hooks {
	return hook.Hooks{OnEnqueue: func(hook.Instant, []hook.Message, []hook.Verdict) { panic("oops") }}
}
