package wasm

import (
	"slices"
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
)

// noted is a host that records its notices.
func noted(t *testing.T) (h *Host, notes func() []Notice) {
	t.Helper()
	var all []Notice
	h = open(t, 1, Env{Notice: func(n Notice) { all = append(all, n) }})
	return h, func() []Notice {
		seen := all
		all = nil
		return seen
	}
}

func TestNotices(t *testing.T) {
	h, notes := noted(t)
	one := load(t, h, "x", ttl(1), Options{}).Digest
	two := load(t, h, "x", ttl(2), Options{}).Digest
	if _, err := h.Reload("x", false); err != nil {
		t.Fatal(err)
	}
	beside, err := h.Shadow("s", ttl(3), Options{}, "deadline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"s", "x"} {
		if err := h.Unload(name, false); err != nil {
			t.Fatal(err)
		}
	}
	want := []Notice{
		{Change: PolicyLoaded, Policy: "x", Digest: one},
		{Change: PolicyReloaded, Policy: "x", Digest: two, Previous: one},
		{Change: PolicyReloaded, Policy: "x", Digest: two, Previous: two},
		{Change: PolicyLoaded, Policy: "s", Digest: beside.Digest, Beside: "deadline"},
		{Change: PolicyUnloaded, Policy: "s", Digest: beside.Digest, Beside: "deadline"},
		{Change: PolicyUnloaded, Policy: "x", Digest: two},
	}
	if got := notes(); !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if _, err := h.Load("x", []byte("nothing"), Options{}); err == nil || len(notes()) > 0 {
		t.Error("what is refused is told")
	}
}

func TestNoticesOfABreaker(t *testing.T) {
	h, notes := noted(t)
	digest := load(t, h, "x", assemble(func(b *wt.Builder) { // traps for messages of priority 9
		b.Batch(8)
		b.Each(abi.OnEnqueue, wt.LocalGet(wt.Record), wt.I32Load8U(abi.RecordPriority), wt.I32(9), wt.I32Eq, wt.If(wt.Unreachable), wt.Keep(wt.I64(nowMillis)))
	}), Options{}).Digest
	hs := h.Attach(queue("x", nil))
	at := now
	for range tolerated + 2 { // those that come while it is open are not asked
		enqueue1(hs, at, hook.Message{Priority: 9})
		at = at.Add(time.Second)
	}
	opened := now.Add((tolerated - 1) * time.Second)
	for range 2 {
		enqueue1(hs, at.Add(shortestPause), hook.Message{})
	}
	want := []Notice{
		{Change: PolicyLoaded, Policy: "x", Digest: digest},
		{Change: BreakerOpened, Policy: "x", Digest: digest, Until: opened.Add(shortestPause)},
		{Change: BreakerClosed, Policy: "x", Digest: digest},
	}
	if got := notes(); !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestNoticeOfARollback(t *testing.T) {
	h, notes := noted(t)
	good := load(t, h, "x", ttl(1), Options{}).Digest
	bad := load(t, h, "x", failing(), Options{}).Digest
	hs := h.Attach(queue("x", nil))
	for i := range tolerated {
		enqueue1(hs, now.Add(time.Duration(i)*time.Second), hook.Message{})
	}
	opened := now.Add((tolerated - 1) * time.Second)
	want := []Notice{
		{Change: PolicyLoaded, Policy: "x", Digest: good},
		{Change: PolicyReloaded, Policy: "x", Digest: bad, Previous: good},
		{Change: BreakerOpened, Policy: "x", Digest: bad, Until: opened.Add(shortestPause)},
		{Change: PolicyRolledBack, Policy: "x", Digest: good, Previous: bad},
	}
	if got := notes(); !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}
