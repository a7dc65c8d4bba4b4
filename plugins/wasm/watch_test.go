package wasm

import (
	"slices"
	"strings"
	"testing"
	"time"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// witness is a source that records decisions, by message.
type witness struct {
	hooktest.Source
	told map[int][]guest.Decision
}

var _ guest.Witness = (*witness)(nil)

func (w *witness) Decided(i int, d *guest.Decision) { w.told[i] = append(w.told[i], *d) }

// traced returns three messages, of which the second is traced.
func traced() ([]hook.Message, []hook.Verdict, *witness) {
	w := &witness{Source: make(hooktest.Source, 3), told: map[int][]guest.Decision{}}
	ms := make([]hook.Message, 3)
	for i := range ms {
		ms[i] = hook.Message{Enqueued: now, Priority: uint8(i), Traced: i == 1}
		ms[i].Bind(w, i)
	}
	return ms, make([]hook.Verdict, 3), w
}

// ticking is a clock that advances by a millisecond whenever it is read.
func ticking() (clock func() hook.Instant, asked *int) {
	asked = new(int)
	return func() hook.Instant {
		*asked++
		return now.AddMillis(int64(*asked))
	}, asked
}

func TestDecisionsAreTold(t *testing.T) {
	attribute := func(b *wt.Builder) {
		trace := b.Host("trace_attr")
		b.Batch(8)
		b.Each(abi.OnEnqueue, wt.LocalGet(wt.Index), b.Text(16, "key"), b.Text(32, "value"), wt.Call(trace),
			wt.Keep(wt.I64(nowMillis+1)))
	}
	for _, tc := range []struct {
		name    string
		module  []byte
		want    guest.Decision
		failure string // part of it
	}{
		{
			name: "batch", module: assemble(attribute),
			want: guest.Decision{Hook: "on_enqueue", Batch: 3, Verdict: hook.Verdict{Deadline: now.AddMillis(1)}, Attributes: []string{"key", "value"}},
		},
		{
			name: "single", module: singleTTL(7),
			want: guest.Decision{Hook: "deadline", Batch: 1, Verdict: hook.Verdict{Deadline: now.AddMillis(7)}},
		},
		{
			name: "no opinion", module: says(answers{action: abi.NoOpinion}, true),
			want: guest.Decision{Hook: "on_enqueue", Batch: 3},
		},
		{
			name: "nonsense", module: says(answers{action: 9}, true), failure: "there is no action 9",
			want: guest.Decision{Hook: "on_enqueue", Batch: 3, Verdict: hook.Verdict{Again: true}},
		},
		{
			name: "trap", module: assemble(func(b *wt.Builder) { b.Batch(8); b.Each(abi.OnEnqueue, wt.Unreachable) }),
			failure: "trap: unreachable", want: guest.Decision{Hook: "on_enqueue", Batch: 3, Verdict: hook.Verdict{Again: true}},
		},
		{
			name: "single trap", module: assemble(func(b *wt.Builder) { b.Single(); b.Has(abi.Deadline.String(), wt.Unreachable) }),
			failure: "trap: unreachable", want: guest.Decision{Hook: "deadline", Batch: 3, Verdict: hook.Verdict{Again: true}},
		},
		{
			name: "endless", module: assemble(func(b *wt.Builder) { b.Batch(8); b.Each(abi.OnEnqueue, wt.Loop(wt.Br(0))) }),
			failure: "fuel: it used up its fuel", want: guest.Decision{Hook: "on_enqueue", Batch: 3, Verdict: hook.Verdict{Again: true}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clock, asked := ticking()
			h := open(t, 1, Env{Clock: clock})
			i := load(t, h, "x", tc.module, Options{Grants: []string{"trace"}})
			tc.want.Policy, tc.want.Digest = "x", "sha256:"+i.Digest
			if tc.want.Verdict.Deadline != 0 {
				guest.SetDigest(&tc.want.Verdict, short(i))
			}
			ms, vs, w := traced()
			h.Attach(queue("x", nil)).OnEnqueue(now, ms, vs)
			if len(w.told) != 1 || len(w.told[1]) != 1 {
				t.Fatalf("told %+v, want one decision about message 1", w.told)
			}
			got := w.told[1][0]
			if !strings.Contains(got.Failure, tc.failure) || (got.Failure == "") != (tc.failure == "") {
				t.Errorf("got the failure %q, want %q", got.Failure, tc.failure)
			}
			if got.Fuel <= 0 || got.Took <= 0 || got.Took > time.Duration(*asked)*time.Millisecond {
				t.Errorf("it took %v and %d of fuel", got.Took, got.Fuel)
			}
			if !slices.Equal(got.Attributes, tc.want.Attributes) {
				t.Errorf("got the attributes %q, want %q", got.Attributes, tc.want.Attributes)
			}
			got.Failure, got.Fuel, got.Took, got.Attributes, tc.want.Attributes = "", 0, 0, nil, nil
			if got.Policy != tc.want.Policy || got.Digest != tc.want.Digest || got.Hook != tc.want.Hook || got.Batch != tc.want.Batch || got.Verdict != tc.want.Verdict {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

// A policy that is not called because it fails too often, or is not loaded, is traced as that.
func TestFailuresToAnswerAreTold(t *testing.T) {
	h := open(t, 1, Env{})
	load(t, h, "x", assemble(func(b *wt.Builder) { b.Batch(8); b.Each(abi.OnEnqueue, wt.Unreachable) }), Options{})
	hs := h.Attach(queue("x", nil))
	ms, vs, w := traced()
	for range tolerated + 1 {
		clear(vs)
		hs.OnEnqueue(now, ms, vs)
	}
	told := w.told[1]
	if len(told) != tolerated+1 || told[tolerated].Hook != "on_enqueue" || !strings.Contains(told[tolerated].Failure, "not asked") {
		t.Errorf("told %+v", told)
	}
	h.add(&policy{name: "gone", origin: Configured})
	ms, vs, w = traced()
	h.Attach(queue("gone", nil)).OnEnqueue(now, ms, vs)
	if told := w.told[1]; len(told) != 1 || told[0].Policy != "gone" || told[0].Digest != "" || told[0].Failure != "it is not loaded" {
		t.Errorf("told %+v", told)
	}
}

// The clock is not read for untraced messages, and a shadow's decisions are not traced.
func TestOthersAreNotFollowed(t *testing.T) {
	clock, asked := ticking()
	h := open(t, 1, Env{Clock: clock})
	load(t, h, "x", ttl(1), Options{})
	if _, err := h.Shadow("y", ttl(2), Options{}, "deadline"); err != nil {
		t.Fatal(err)
	}
	ms, vs, w := traced()
	ms[1].Traced = false
	h.Attach(queue("x", nil)).OnEnqueue(now, ms, vs)
	ms[1].Traced = true
	h.Attach(hooktest.NewQueue(hooktest.Spec{Strategy: "deadline"})).OnEnqueue(now, ms, vs)
	if *asked > 0 || len(w.told) > 0 {
		t.Errorf("asked %d times for the time, told %+v", *asked, w.told)
	}
	if i, _ := h.Info("y"); i.Messages != 3 {
		t.Errorf("the shadow was asked about %d messages", i.Messages)
	}
}
