package policy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/sdk/abi"
)

// Every feature of a trace, with a policy that has every hook.
func TestTrace(t *testing.T) {
	r := curfewPolicy(t, "test", everything(t), "--trace", "testdata/everything.ndjson", "--expect", "testdata/everything.txt")
	r.want(t, 0, "# 8 messages: 2 expired, 1 dropped, 2 dead-lettered elsewhere, 2 acknowledged, 1 still there\n"+
		"# 12 calls of on_enqueue, on_deadline, on_head, on_requeue, on_idle; the one that used most fuel used F of M\n", "")
}

// everything is a module that decides by priority, and by state later on.
func everything(t *testing.T) string {
	t.Helper()
	b := wt.New()
	b.Batch(4)
	b.Data(wt.Scratch, "elsewherekey")
	priority := wt.I32Load8U(56)
	is := func(n int, body ...[]byte) []byte {
		code := append(wt.LocalGet(wt.Record), priority...)
		code = append(code, wt.I32(n)...)
		code = append(append(code, wt.I32Eq...), wt.If(body...)...)
		return code
	}
	for7s := wt.Keep(wt.LocalGet(wt.Now), wt.I64(7000), wt.I64Add)
	flags := func(n int) []byte { return join(wt.LocalGet(wt.Verdict), wt.I32(n), wt.I32Store(abi.VerdictFlags)) }
	state := func(code ...[]byte) []byte {
		return join(wt.LocalGet(wt.Verdict), join(code...), wt.I64Store(abi.VerdictState), flags(abi.SetState))
	}
	route := join(wt.Act(abi.DeadLetter),
		wt.LocalGet(wt.Verdict), wt.I32(wt.Scratch), wt.I32Store(abi.VerdictStrings),
		wt.LocalGet(wt.Verdict), wt.I32(9), wt.I32Store16(abi.VerdictExchangeLen),
		wt.LocalGet(wt.Verdict), wt.I32(3), wt.I32Store16(abi.VerdictKeyLen))
	b.Each(abi.OnEnqueue,
		is(1, for7s), is(2, for7s, state(wt.I64(1))), is(3, wt.Keep(wt.I64(-1)), flags(abi.AskAtHead)), is(4, wt.Act(abi.Drop)), is(5, route))
	b.Each(abi.OnDeadline, is(1, wt.Act(abi.Expire)), is(2, route))
	b.Each(abi.OnHead, is(3, for7s))
	b.Each(abi.OnRequeue, is(1, for7s, state(wt.LocalGet(wt.Record), wt.I64Load(abi.RecordState), wt.I64(1), wt.I64Add)))
	b.Has(abi.OnIdle.String(), wt.LocalGet(1), wt.I64(1000), wt.I64GeS, wt.If(wt.I64(-1), wt.Return), wt.LocalGet(0), wt.I64(5000), wt.I64Add)
	return file(t, "everything.wasm", string(b.Bytes()))
}

func join(code ...[]byte) (all []byte) {
	for _, c := range code {
		all = append(all, c...)
	}
	return all
}

func TestExpect(t *testing.T) {
	trace := file(t, "t.ndjson", `{"event":"publish","id":"a"}`+"\n"+`{"event":"publish","at":5,"id":"b"}`)
	golden := filepath.Join(t.TempDir(), "golden.txt")
	summary := "# 2 messages: 2 expired\n# 2 calls of on_enqueue, on_requeue; the one that used most fuel used F of M\n"
	decisions := "         0  on_enqueue   a         keep until 10\n" +
		"         5  on_enqueue   b         keep until 15\n" +
		"        10  on_deadline  a         expire\n" +
		"        15  on_deadline  b         expire\n"
	ten, twenty := keeping(t, 10), keeping(t, 20)
	curfewPolicy(t, "test", ten, "--trace", trace).want(t, 0, decisions+summary, "")
	curfewPolicy(t, "test", ten, "--trace", trace, "--expect", golden).want(t, 1, "", "curfew policy test: open "+golden+": no such file or directory\n")
	curfewPolicy(t, "test", ten, "--trace", trace, "--expect", golden, "--update").want(t, 0, summary, "")
	if b, err := os.ReadFile(golden); err != nil || string(b) != decisions {
		t.Errorf("got %q, %v", b, err)
	}
	curfewPolicy(t, "test", ten, "--trace", trace, "--expect", golden).want(t, 0, summary, "")
	curfewPolicy(t, "test", twenty, "--trace", trace, "--expect", golden).want(t, 1,
		"-          0  on_enqueue   a         keep until 10\n"+
			"-          5  on_enqueue   b         keep until 15\n"+
			"-         10  on_deadline  a         expire\n"+
			"-         15  on_deadline  b         expire\n"+
			"+          0  on_enqueue   a         keep until 20\n"+
			"+          5  on_enqueue   b         keep until 25\n"+
			"+         20  on_deadline  a         expire\n"+
			"+         25  on_deadline  b         expire\n",
		"curfew policy test: 8 lines differ from "+golden+": its own begin with -, those of the policy with +\n")
	curfewPolicy(t, "test", ten, "--trace", trace, "--compare", ten).want(t, 0, "# both make the same 4 decisions\n", "")
	if r := curfewPolicy(t, "test", ten, "--trace", trace, "--compare", twenty); r.status != 1 || !strings.HasPrefix(r.stdout, "-          0") {
		t.Errorf("got %+v", r)
	}
}

func TestTheClockStopsSomeTimeAfterTheTrace(t *testing.T) {
	trace := file(t, "t.ndjson", `{"event":"publish"}`)
	r := curfewPolicy(t, "test", keeping(t, 10), "--trace", trace, "--after", "9ms")
	r.want(t, 0, "         0  on_enqueue   m1        keep until 10\n# 1 messages: 1 still there\n"+
		"# 1 calls of on_enqueue, on_requeue; the one that used most fuel used F of M\n", "")
}

// A policy may prolong deadlines forever; its test ends nevertheless.
func TestEndlessRenewal(t *testing.T) {
	b := wt.New()
	b.Batch(8)
	again := wt.Keep(wt.LocalGet(wt.Now), wt.I64(1), wt.I64Add)
	b.Each(abi.OnEnqueue, again)
	b.Each(abi.OnDeadline, again)
	r := curfewPolicy(t, "test", file(t, "endless.wasm", string(b.Bytes())), "--trace", file(t, "t.ndjson", `{"event":"publish"}`))
	r.want(t, 1, "", "curfew policy test: the policy was called more than 100100 times; a lower --after ends the trace earlier\n")
}

func TestAPolicyThatFails(t *testing.T) {
	b := wt.New()
	b.Batch(8)
	b.Each(abi.OnEnqueue, wt.Block(wt.Loop(wt.Br(0))))
	module := file(t, "loop.wasm", string(b.Bytes()))
	r := curfewPolicy(t, "test", module, "--trace", file(t, "t.ndjson", `{"event":"publish","expiration":3}`))
	if r.status != 1 || !strings.HasPrefix(r.stdout, "         0  on_enqueue   m1        keep until 3 (the policy failed)\n") ||
		!strings.Contains(r.stderr, "needs --fuel large") {
		t.Errorf("got %+v", r)
	}
	if r := curfewPolicy(t, "check", module); r.status != 1 || !strings.Contains(r.stderr, "the policy failed: on_enqueue: ") {
		t.Errorf("check: got %+v", r)
	}
}

func TestEventsThatCannotBe(t *testing.T) {
	for _, tc := range []struct{ name, trace, want string }{
		{"twice", `{"event":"publish","id":"a"}` + "\n" + `{"event":"publish","id":"a"}`, `at 0: publish: there is a message "a" already`},
		{"unknown", `{"event":"ack","at":3,"id":"a"}`, `at 3: ack: there was no message "a"`},
		{"waiting", `{"event":"publish","id":"a"}` + "\n" + `{"event":"requeue","id":"a"}`, `at 0: requeue: the message "a" is not handed out`},
		{
			"handed out", `{"event":"publish","id":"a"}` + "\n" + `{"event":"deliver"}` + "\n" + `{"event":"deliver","id":"a"}`,
			`at 0: deliver: the message "a" is handed out already`,
		},
	} {
		r := curfewPolicy(t, "test", keeping(t, 10), "--trace", file(t, "t.ndjson", tc.trace))
		if r.status != 1 || r.stderr != "curfew policy test: "+tc.want+"\n" {
			t.Errorf("%s: got %+v, want %s", tc.name, r, tc.want)
		}
	}
}

func TestFuzz(t *testing.T) {
	r := curfewPolicy(t, "test", everything(t), "--fuzz", "--messages", "3000")
	if r.status != 0 || !strings.HasPrefix(r.stdout, "# ") || !strings.Contains(r.stdout, "none of which made it fail") {
		t.Errorf("got %+v", r)
	}
	again := curfewPolicy(t, "test", everything(t), "--fuzz", "--messages", "3000")
	if again != r {
		t.Errorf("got %+v, and then %+v", r, again)
	}
}

// A failing message is shown alone, with everything needed to reproduce the failure.
func TestFuzzFinds(t *testing.T) {
	b := wt.New()
	b.Batch(32)
	b.Each(abi.OnEnqueue, wt.LocalGet(wt.Record), wt.I32Load8U(56), wt.I32(77), wt.I32Eq, wt.If(wt.Unreachable))
	r := curfewPolicy(t, "test", file(t, "picky.wasm", string(b.Bytes())), "--fuzz", "--seed", "3")
	if r.status != 1 || !strings.Contains(r.stderr, "--seed 3: the policy failed: on_enqueue: ") ||
		!strings.Contains(r.stderr, "The failing call was on_enqueue with this message") || !strings.Contains(r.stderr, `"priority":77`) {
		t.Errorf("got %+v", r)
	}
}
