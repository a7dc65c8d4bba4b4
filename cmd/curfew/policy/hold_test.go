package policy

import (
	"testing"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/sdk/abi"
)

// Messages are released when their holds end. Events of the trace about a held message are ignored, because the broker would not have delivered it.
func TestHolds(t *testing.T) {
	module := holdingByPriority(t)
	r := curfewPolicy(t, "test", module, "--trace", "testdata/holds.ndjson", "--expect", "testdata/holds.txt")
	r.want(t, 0, "# 6 messages: 1 expired, 2 acknowledged, 3 still there\n# 5 calls of on_enqueue, on_deadline, on_head, on_requeue; the one that used most fuel used F of M\n", "")
	trace := file(t, "t.ndjson", `{"event":"publish","id":"a","priority":1}`+"\n"+`{"event":"publish","id":"b","priority":6}`)
	curfewPolicy(t, "test", module, "--trace", trace, "--after", "4s").want(t, 0,
		"         0  on_enqueue   a         keep for ever, hold until 5000\n"+
			"         0  on_enqueue   b         keep for ever\n"+
			"# 2 messages: 2 still there, 1 of them held\n# 1 calls of on_enqueue, on_deadline, on_head, on_requeue; the one that used most fuel used F of M\n", "")
}

// Without the grant the module is refused, and the refusal names it.
func TestHoldWithoutTheGrant(t *testing.T) {
	const refused = ": the module imports policy_v1.hold, which needs the grant hold; granted: headers\n"
	module := holdingByPriority(t)
	r := curfewPolicy(t, "check", module, "--grants", "headers")
	if want := "curfew policy check" + refused; r.status != 1 || r.stderr != want {
		t.Errorf("check: got status %d, %q, want %q", r.status, r.stderr, want)
	}
	r = curfewPolicy(t, "test", module, "--grants", "headers", "--trace", "testdata/holds.ndjson")
	if want := "curfew policy test" + refused; r.status != 1 || r.stderr != want {
		t.Errorf("test: got status %d, %q, want %q", r.status, r.stderr, want)
	}
}

func TestFuzzHolds(t *testing.T) {
	if r := curfewPolicy(t, "test", holdingByPriority(t), "--fuzz", "--messages", "2000"); r.status != 0 {
		t.Errorf("got %+v", r)
	}
}

// holdingByPriority is a module that holds messages according to their priorities.
func holdingByPriority(t *testing.T) string {
	t.Helper()
	b := wt.New()
	hold := b.Host("hold")
	b.Batch(8)
	is := func(n int, body ...[]byte) []byte {
		return join(wt.LocalGet(wt.Record), wt.I32Load8U(abi.RecordPriority), wt.I32(n), wt.I32Eq, wt.If(body...))
	}
	in := func(ms int64) []byte { return join(wt.LocalGet(wt.Now), wt.I64(ms), wt.I64Add) }
	until := func(ms int64) []byte { return join(wt.LocalGet(wt.Index), in(ms), wt.Call(hold)) }
	forEver := wt.Keep(wt.I64(-1))
	b.Each(abi.OnEnqueue,
		is(1, until(5000), forEver), is(2, until(5000), wt.Keep(in(3000))),
		is(3, forEver, wt.LocalGet(wt.Verdict), wt.I32(abi.AskAtHead), wt.I32Store(abi.VerdictFlags)),
		is(4, forEver), is(5, until(500)), is(6, forEver))
	b.Each(abi.OnDeadline, is(2, forEver))
	b.Each(abi.OnHead, is(3, until(10)))
	b.Each(abi.OnRequeue, is(4, until(2000)))
	return file(t, "holding.wasm", string(b.Bytes()))
}
