package wasm

import (
	"slices"
	"strings"
	"sync"
	"testing"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// stated is code for Each that stores an i64 of the record as the message's state.
func stated(h abi.Hook, load ...[]byte) []byte {
	return assemble(func(b *wt.Builder) {
		b.Batch(8)
		b.Each(h, result(wt.LocalGet(wt.Record), slices.Concat(load...)))
	})
}

func small(load []byte) []byte { return slices.Concat(load, wt.I64Extend) }

// Guests see all properties of a message.
func TestRecords(t *testing.T) {
	fresh := hook.Message{
		Enqueued: now, Expiration: hook.LimitOf(400), Size: 123, Deliveries: 4, Priority: 9, Redelivered: true, Persistent: true,
	}
	there := fresh
	there.Expiration, there.Deadline, there.State, there.Why = 0, now.AddMillis(-5), 77, hook.WhyDue
	h := open(t, 1, Env{})
	q := queue("x", map[string]any{"message-ttl": int32(2000), "dead-letter-exchange": "dlx"})
	content := hooktest.Content{Deaths: 3, Parts: map[hook.Part][]byte{hook.PartExpiration: []byte("400")}}
	for _, tc := range []struct {
		name       string
		load       []byte
		enter, due int64
	}{
		{"enqueued", wt.I64Load(abi.RecordEnqueued), nowMillis, nowMillis},
		{"expiration", wt.I64Load(abi.RecordExpiration), 400, 400},
		{"queue ttl", wt.I64Load(abi.RecordQueueTTL), 2000, 2000},
		{"deadline", wt.I64Load(abi.RecordDeadline), -1, nowMillis - 5},
		{"state", wt.I64Load(abi.RecordState), 0, 77},
		{"size", small(wt.I32Load(abi.RecordSizeOf)), 123, 123},
		{"deliveries", small(wt.I32Load(abi.RecordDeliveries)), 4, 4},
		{"deaths", small(wt.I32Load(abi.RecordDeaths)), 3, 3},
		{"queue", small(wt.I32Load(abi.RecordQueue)), 0, 0},
		{"priority", small(wt.I32Load8U(abi.RecordPriority)), 9, 9},
		{"flags", small(wt.I32Load8U(abi.RecordFlags)), 7, 7},
		{"why", small(wt.I32Load8U(abi.RecordWhy)), abi.WhyEnqueue, abi.WhyDeadline},
	} {
		for at, want := range map[abi.Hook]int64{abi.OnEnqueue: tc.enter, abi.OnDeadline: tc.due} {
			load(t, h, "x", stated(at, tc.load), Options{})
			hs, vs := h.Attach(q), make([]hook.Verdict, 1)
			if at == abi.OnEnqueue {
				ms := []hook.Message{fresh}
				hooktest.Bind(ms, content)
				hs.OnEnqueue(now, ms, vs)
			} else {
				ms := []hook.Message{there}
				hooktest.Bind(ms, content)
				hs.OnHead(now, ms, vs)
			}
			if vs[0].State != want {
				t.Errorf("%s in %s: got %d, want %d", tc.name, at, vs[0].State, want)
			}
		}
	}
}

// A hook that is called for one message at a time fails for the rest of the batch.
func TestSingleFails(t *testing.T) {
	h := open(t, 1, Env{})
	whose := short(load(t, h, "x", assemble(func(b *wt.Builder) { // traps for priority 5
		b.Single()
		b.Has(abi.Deadline.String(), wt.LocalGet(3), wt.I32(5), wt.I32Eq, wt.If(wt.Unreachable),
			wt.LocalGet(1), wt.LocalGet(2), wt.I64Add, wt.LocalGet(0), wt.I64Add, wt.LocalGet(4), wt.I64Extend, wt.I64Add, wt.LocalGet(5), wt.I64Extend, wt.I64Add)
	}), Options{}))
	ms, vs := make([]hook.Message, 3), make([]hook.Verdict, 3)
	for i := range ms {
		ms[i] = hook.Message{Enqueued: now, Expiration: hook.LimitOf(10), Priority: uint8(4 + i), Deliveries: 1000, Size: 100_000}
	}
	hooktest.Bind(ms)
	h.Attach(queue("x", map[string]any{"message-ttl": int32(20)})).OnEnqueue(now, ms, vs)
	want := []hook.Verdict{guest.Signed(hook.Verdict{Deadline: now.AddMillis(101_030)}, whose), {Again: true, Deadline: now.AddMillis(10)}, {Again: true, Deadline: now.AddMillis(10)}}
	if !slices.Equal(vs, want) {
		t.Errorf("got %+v, want %+v", vs, want)
	}
	if i, _ := h.Info("x"); i.Errors["trap"] != 1 || i.Calls != 1 {
		t.Errorf("got %+v", i)
	}
}

// A module that takes few messages at once gets no more fuel for many messages than another.
func TestRation(t *testing.T) {
	burn := func(capacity int) []byte { // some 30000 units for each message
		return assemble(func(b *wt.Builder) {
			b.Batch(capacity)
			b.Each(abi.OnEnqueue, wt.I64(3000), wt.LocalSet(wt.Temp),
				wt.Loop(wt.LocalGet(wt.Temp), wt.I64(1), wt.I64Sub, wt.LocalTee(wt.Temp), wt.I64Eqz, wt.I32Eqz, wt.BrIf(0)))
		})
	}
	for _, capacity := range []int{1, 64} {
		h := open(t, 1, Env{})
		load(t, h, "x", burn(capacity), Options{})
		ms, vs := crowd(64)
		h.Attach(queue("x", nil)).OnEnqueue(now, ms, vs)
		if i, _ := h.Info("x"); i.Errors["fuel"] != 1 || i.FuelUsed > uint64(i.MaxFuel) {
			t.Errorf("%d at once: got %v, %d fuel of %d", capacity, i.Errors, i.FuelUsed, i.MaxFuel)
		}
	}
}

// An instance that takes long to prepare is made on another goroutine. If there is no other instance, queues do without one in the meantime.
func TestSlowStart(t *testing.T) {
	slow := assemble(func(b *wt.Builder) {
		b.Batch(8)
		b.Each(abi.OnEnqueue, wt.LocalGet(wt.Record), wt.I32Load8U(abi.RecordPriority), wt.I32(9), wt.I32Eq, wt.If(wt.Unreachable), wt.Keep(wt.I64(nowMillis)))
		b.HasLocals(abi.ExportConfigure, []abi.Value{abi.I64}, wt.I64(1_000_000), wt.LocalSet(1),
			wt.Loop(wt.LocalGet(1), wt.I64(1), wt.I64Sub, wt.LocalTee(1), wt.I64Eqz, wt.I32Eqz, wt.BrIf(0)), wt.I32(0))
	})
	var work sync.WaitGroup
	var waiting []func()
	h := open(t, 1, Env{Go: func(f func()) { waiting = append(waiting, f) }})
	load(t, h, "x", slow, Options{})
	hs := h.Attach(queue("x", nil))
	enqueue1(hs, now, hook.Message{Priority: 9})
	later := now.Add(lastPause)
	if got := enqueue1(hs, later, hook.Message{}); got.Deadline != 0 || len(waiting) != 1 {
		t.Errorf("got %+v, %d instances are made elsewhere", got, len(waiting))
	}
	work.Go(waiting[0])
	work.Wait()
	if got := enqueue1(hs, later, hook.Message{}); got.Deadline != now {
		t.Errorf("got %+v", got)
	}
	if i, _ := h.Info("x"); !strings.HasPrefix(i.LastError, "on_enqueue: unreachable") || i.Instances != 1 {
		t.Errorf("got %+v", i)
	}
}
