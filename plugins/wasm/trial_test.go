package wasm

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// during is code for Each: execute body only while the module is tried.
func during(body ...[]byte) []byte {
	const hour = 3_600_000
	return slices.Concat(wt.LocalGet(wt.Now), wt.I64(wt.TrialStart), wt.I64Sub, wt.I64(hour), wt.I64GeU, wt.I32Eqz, wt.If(body...))
}

func TestTrialStart(t *testing.T) {
	if int64(trialStart) != wt.TrialStart*1_000_000 {
		t.Errorf("trials begin at %d, and package wasmtest says %d ms", trialStart, int64(wt.TrialStart))
	}
}

// A module that fails when it is tried is refused. The version in force stays, and no notice is sent.
func TestTrialRefuses(t *testing.T) {
	fails := func(h abi.Hook, body ...[]byte) []byte {
		return assemble(func(b *wt.Builder) { handshake(b); b.Each(h, body...) })
	}
	enqueue := func(low, high int, body ...[]byte) []byte {
		return assemble(func(b *wt.Builder) { b.Memory(low, high); b.Batch(8); b.Each(abi.OnEnqueue, body...) })
	}
	const leak = 2 // pages per message: 16 MiB are used up after 128 messages
	for _, tc := range []struct {
		name, want string
		module     []byte
		options    Options
	}{
		{name: "on_enqueue", module: failing(), want: "the policy failed: on_enqueue: unreachable in ."},
		{name: "on_deadline", module: fails(abi.OnDeadline, wt.Unreachable), want: "the policy failed: on_deadline: unreachable in ."},
		{name: "on_head", module: fails(abi.OnHead, wt.Unreachable), want: "the policy failed: on_head: unreachable in ."},
		{name: "on_requeue", module: fails(abi.OnRequeue, wt.Unreachable), want: "the policy failed: on_requeue: unreachable in ."},
		{
			name: "on_idle", want: "the policy failed: on_idle: ",
			module: assemble(func(b *wt.Builder) { b.Single(); b.Has(abi.OnIdle.String(), wt.Unreachable) }),
		},
		{
			name: "on_idle that makes no sense", want: "the policy failed: on_idle: ",
			module: assemble(func(b *wt.Builder) { b.Single(); b.Has(abi.OnIdle.String(), wt.I64(-77)) }),
		},
		{
			name: "deadline", want: "the policy failed: deadline: ",
			module: assemble(func(b *wt.Builder) { b.Single(); b.Has(abi.Deadline.String(), wt.Unreachable) }),
		},
		{name: "verdict", module: enqueue(1, 1, wt.Keep(wt.I64(1))), want: "the policy failed: on_enqueue: verdict 0 of 1: "},
		{name: "complaint", module: enqueue(1, 1, wt.I32(-3), wt.Return), want: "the policy failed: on_enqueue: it returned -3, and does not say why"},
		{
			name: "endless", module: enqueue(1, 1, wt.Loop(wt.Br(0))),
			want: "on_enqueue: it used up its fuel; a policy in a language with a garbage collector, such as Go, needs --fuel large (or fuel: large)",
		},
		{name: "endless, with large fuel", module: enqueue(1, 1, wt.Loop(wt.Br(0))), options: Options{Fuel: LargeFuel}, want: "on_enqueue: it used up its fuel"},
		{
			name: "memory that is not given back", want: "the policy failed: on_enqueue: ",
			module: enqueue(1, 65536, wt.I32(leak), wt.MemoryGrow, wt.I32(16), wt.I32Mul, wt.I32(0), wt.I32GeU, wt.Drop,
				wt.I32(leak), wt.MemoryGrow, wt.I32(64<<10), wt.I32Mul, wt.I32(1), wt.I32Store(0)),
		},
		{
			name: "no grant for a route", want: "the policy failed: on_enqueue: verdict 0 of 1: ",
			module: enqueue(1, 1, wt.Act(abi.DeadLetter), wt.LocalGet(wt.Verdict), wt.I32(3), wt.I32Store16(abi.VerdictExchangeLen)),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var log lines
			var notices []Notice
			h := openTrying(t, 2, Env{Log: log.logger(), Notice: func(n Notice) { notices = append(notices, n) }})
			good := load(t, h, "x", ttl(1000), Options{})
			for range 3 { // however often
				_, err := h.Load("x", tc.module, tc.options)
				if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), `policy "x": `) {
					t.Fatalf("got %v, want %s", err, tc.want)
				}
			}
			if _, err := h.Shadow("beside", tc.module, tc.options, "deadline"); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("as a shadow: got %v", err)
			}
			if i, _ := h.Info("x"); i.Digest != good.Digest || i.LastError != "" || i.Errors["trap"] != 0 || i.Breaker != "closed" {
				t.Errorf("got %+v", i)
			}
			if len(notices) != 1 || len(h.List()) != 1 || len(h.engine.modules) != 1 || strings.Contains(log.String(), "failed") {
				t.Errorf("%d notices, %d policies, %d modules; log:\n%s", len(notices), len(h.List()), len(h.engine.modules), &log)
			}
			if got := enqueue1(h.Attach(queue("x", nil)), now, hook.Message{}).Deadline; got != now.AddMillis(1000) {
				t.Errorf("got %d", got)
			}
		})
	}
}

// If headers or bodies are granted, the error says that messages without any made the module fail.
func TestTrialWithoutContent(t *testing.T) {
	const hint = "; messages of the trial have no headers, properties and body, and publishers may send such"
	idle := assemble(func(b *wt.Builder) { b.Single(); b.Has(abi.OnIdle.String(), wt.Unreachable) })
	for _, tc := range []struct {
		name   string
		module []byte
		grants []string
		want   bool
	}{
		{"headers", failing(), []string{"headers"}, true},
		{"body", failing(), []string{"body"}, true},
		{"no grant", failing(), nil, false},
		{"another grant", failing(), []string{"metrics"}, false},
		{"no message", idle, []string{"headers"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := openTrying(t, 1, Env{}).Load("x", tc.module, Options{Grants: tc.grants})
			if err == nil || strings.HasSuffix(err.Error(), hint) != tc.want {
				t.Errorf("got %v", err)
			}
		})
	}
}

// The actions of a module during its trial have no effect in service.
func TestTrialLeavesNothing(t *testing.T) {
	var log lines
	var traced int
	h := openTrying(t, 1, Env{Log: log.logger(), Trace: func(string, *hook.Message, string, string) { traced++ }})
	module := assemble(func(b *wt.Builder) {
		count, trace, say := b.Host("counter_add"), b.Host("trace_attr"), b.Host("log")
		asked := b.Global()
		b.Batch(8)
		name := b.Text(wt.Scratch, "n")
		b.Each(abi.OnEnqueue,
			name, wt.I64(1), wt.Call(count), wt.LocalGet(wt.Index), name, name, wt.Call(trace),
			wt.I32(abi.LogWarn), name, wt.Call(say),
			wt.GlobalGet(asked), wt.I64(1), wt.I64Add, wt.GlobalSet(asked),
			wt.Keep(wt.LocalGet(wt.Record), wt.I64Load(abi.RecordEnqueued), wt.GlobalGet(asked), wt.I64Add))
	})
	i := load(t, h, "x", module, Options{Grants: []string{"metrics", "trace"}})
	if len(i.Trial) != 1 || i.Trial[0].Hook != "on_enqueue" || i.Trial[0].One <= i.Trial[0].Each || i.Trial[0].Each <= 0 {
		t.Errorf("got %+v", i.Trial)
	}
	if i.Calls+i.Messages+i.FuelUsed > 0 || len(i.Counters) > 0 || i.Instances != 1 || i.Memory != pageSize || traced > 0 {
		t.Errorf("got %+v, %d attributes", i, traced)
	}
	if got := enqueue1(h.Attach(queue("x", nil)), now, hook.Message{}).Deadline; got != now.AddMillis(1) {
		t.Errorf("the first message: got %v after now, want 1ms", got.Sub(now))
	}
	if !strings.Contains(log.String(), "trial=true") {
		t.Errorf("lines of the trial are not marked:\n%s", &log)
	}
}

// A module may use much fuel in each call, if its settings allow that. The trial stops
// before that takes long, and all hooks that it can reach are tried.
func TestTrialIsBounded(t *testing.T) {
	slow := func(rounds int64) []byte { // some 8 units each, once a call
		return slices.Concat(wt.LocalGet(wt.Index), wt.I32Eqz, wt.If(
			wt.I64(rounds), wt.LocalSet(wt.Temp),
			wt.Loop(wt.LocalGet(wt.Temp), wt.I64(1), wt.I64Sub, wt.LocalSet(wt.Temp), wt.LocalGet(wt.Temp), wt.I64Eqz, wt.I32Eqz, wt.BrIf(0))))
	}
	module := func(rounds int64, last ...[]byte) []byte {
		return assemble(func(b *wt.Builder) {
			b.Batch(64)
			for _, on := range []abi.Hook{abi.OnEnqueue, abi.OnDeadline, abi.OnHead} {
				b.Each(on, slow(rounds))
			}
			b.Each(abi.OnRequeue, last...)
		})
	}
	h := openTrying(t, 1, Env{})
	i := load(t, h, "x", module(15_000_000), Options{Fuel: maxFuel})
	if len(i.Trial) != 4 || i.Trial[0].Untried || !i.Trial[3].Untried || i.Trial[0].One < 15_000_000 || i.Trial[0].Each != 0 {
		t.Errorf("got %+v", i.Trial)
	}
	if want := "on_requeue was not tried: the hooks before it used the fuel of the trial, 250000000"; !slices.Contains(i.Warnings, want) {
		t.Errorf("got %q, want %q", i.Warnings, want)
	}
	_, err := h.Load("x", module(5_000_000, wt.Unreachable), Options{Fuel: maxFuel})
	if err == nil || !strings.Contains(err.Error(), "the policy failed: on_requeue: unreachable") {
		t.Errorf("an expensive hook kept another from being tried: got %v", err)
	}
}

// A module that an older broker accepted stays when the broker starts, even if it would be refused now. It is not accepted again.
func TestTrialOfStoredPolicies(t *testing.T) {
	var log lines
	store := Dir(t.TempDir())
	if err := store.Save(StoredPolicy{Name: "x", Module: failing()}); err != nil {
		t.Fatal(err)
	}
	h := openTrying(t, 1, Env{Log: log.logger(), Store: store})
	want := "the module would be refused if it were loaded now: the policy failed: on_enqueue: unreachable in ."
	i, _ := h.Info("x")
	if !i.Loaded || len(i.Warnings) != 1 || !strings.HasPrefix(i.Warnings[0], want) || !strings.Contains(log.String(), want) {
		t.Errorf("got %+v, log:\n%s", i, &log)
	}
	if len(h.Alarms()) > 0 || len(h.Strategies()) != 1 {
		t.Errorf("got %v, %v", h.Alarms(), h.Strategies())
	}
	if _, err := h.Reload("x", false); err == nil || !strings.Contains(err.Error(), "the policy failed: on_enqueue: ") {
		t.Errorf("got %v", err)
	}
}

// A module of the configuration that fails is refused at the start, and when it is read again.
func TestTrialOfConfiguredPolicies(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.wasm")
	write := func(b []byte) {
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h, _ := hooktest.New(t, Factory, hooktest.Section{"modules": hooktest.Section{"c": hooktest.Section{"path": file}}}).(*Host)
	write(failing())
	if err := h.Open(Env{}); err == nil || !strings.HasPrefix(err.Error(), "plugins.wasm.modules.c: the policy failed: on_enqueue: ") {
		t.Errorf("got %v", err)
	}
	write(ttl(1))
	if err := h.Open(Env{}); err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	write(failing())
	if _, err := h.Reload("c", false); err == nil || !strings.HasPrefix(err.Error(), `policy "c": the policy failed: on_enqueue: `) {
		t.Errorf("got %v", err)
	}
	if i, _ := h.Info("c"); !i.Loaded || len(i.Warnings) > 0 {
		t.Errorf("got %+v", i)
	}
}

// While a module is tried, other policies can be listed and unloaded, and queues attached.
func TestTrialHoldsNothingUp(t *testing.T) {
	var h *Host
	var seen []string
	log := slog.New(atTrial{func() {
		if _, ok := h.Info("other"); !ok {
			return
		}
		seen = append(seen, fmt.Sprint(len(h.List()), h.Strategies(), h.Attach(queue("other", nil)).Strategy, h.Unload("other", false)))
	}, false})
	h = openTrying(t, 1, Env{Log: log})
	load(t, h, "other", ttl(1), Options{})
	load(t, h, "x", assemble(func(b *wt.Builder) {
		say := b.Host("log")
		b.Batch(8)
		b.Each(abi.OnEnqueue, during(wt.I32(abi.LogWarn), b.Text(wt.Scratch, "now"), wt.Call(say)))
	}), Options{})
	if want := "1 [wasm/other] true <nil>"; len(seen) != 1 || seen[0] != want {
		t.Errorf("got %q, want %q", seen, want)
	}
}

// atTrial is a log that calls a function when a module that is being tried logs a line.
type atTrial struct {
	do    func()
	trial bool
}

func (atTrial) Enabled(context.Context, slog.Level) bool { return true }
func (a atTrial) WithGroup(string) slog.Handler          { return a }
func (a atTrial) WithAttrs(attrs []slog.Attr) slog.Handler {
	return atTrial{a.do, attrs[0].Key == "trial"}
}

func (a atTrial) Handle(context.Context, slog.Record) error {
	if a.trial {
		a.do()
	}
	return nil
}

// If a policy is unloaded while its next version is being tried, it is back with that version.
func TestUnloadedDuringItsTrial(t *testing.T) {
	var h *Host
	unloaded := false
	h = openTrying(t, 1, Env{Store: Dir(t.TempDir()), Log: slog.New(atTrial{func() {
		if !unloaded {
			unloaded = h.Unload("x", false) == nil
		}
	}, false})})
	load(t, h, "x", ttl(1), Options{})
	next := assemble(func(b *wt.Builder) {
		say := b.Host("log")
		b.Batch(8)
		b.Each(abi.OnEnqueue, during(wt.I32(abi.LogWarn), b.Text(wt.Scratch, "now"), wt.Call(say)))
	})
	load(t, h, "x", next, Options{})
	stored, err := h.env.Store.LoadAll()
	if i, _ := h.Info("x"); !unloaded || !i.Loaded || len(h.engine.modules) != 1 || err != nil || len(stored) != 1 {
		t.Errorf("unloaded: %t, %+v, %d modules, %d stored, %v", unloaded, i, len(h.engine.modules), len(stored), err)
	}
	unloaded = false
	if _, err := h.Reload("x", false); !unloaded || err == nil || len(h.engine.modules) != 0 {
		t.Errorf("unloaded: %t, got %v, %d modules", unloaded, err, len(h.engine.modules))
	}
}

// The same module is tried again for another configuration, but compiled once.
func TestTheSameModuleAgain(t *testing.T) {
	module := assemble(func(b *wt.Builder) { // traps for each message if n is 1
		get := b.Host("config_i64")
		n := b.Global()
		b.Batch(8)
		b.Has(abi.ExportConfigure, b.Text(16, "n"), wt.I64(0), wt.Call(get), wt.GlobalSet(n), wt.I32(0))
		b.Each(abi.OnEnqueue, wt.GlobalGet(n), wt.I64Eqz, wt.I32Eqz, wt.If(wt.Unreachable))
	})
	h := openTrying(t, 1, Env{})
	for range 2 {
		load(t, h, "x", module, Options{Config: []byte(`{"n":0}`)})
		if _, err := h.Load("x", module, Options{Config: []byte(`{"n":1}`)}); err == nil || !strings.Contains(err.Error(), "the policy failed: on_enqueue: unreachable") {
			t.Errorf("got %v", err)
		}
	}
	if i, _ := h.Info("x"); string(i.Config) != `{"n":0}` || len(h.engine.modules) != 1 {
		t.Errorf("got %s, %d modules", i.Config, len(h.engine.modules))
	}
}

// The policies' memory is sufficient for a trial beside the version in force.
func TestTrialGivesItsMemoryBack(t *testing.T) {
	h := openTrying(t, 1, Env{})
	load(t, h, "x", ttl(1), Options{})
	h.memory.left.Store(pageSize) // for one more instance
	load(t, h, "x", ttl(2), Options{Config: []byte(`{"unread":1}`)})
	if left := h.memory.left.Load(); left != pageSize {
		t.Errorf("%d bytes are left, want %d", left, pageSize)
	}
	h.memory.left.Store(defaultTotalMemory - pageSize)
}

// Modules made by Go's compiler say so. The custom section may also have any other content.
func TestProducers(t *testing.T) {
	custom := func(name, content string) []byte {
		body := append([]byte{byte(len(name))}, name+content...)
		return append(append(ttl(1), 0, byte(len(body))), body...)
	}
	const made = "\x01\x0cprocessed-by\x01\x0eGo cmd/compile\x06go1.26"
	for _, tc := range []struct {
		name   string
		module []byte
		fuel   Fuel
		want   int
	}{
		{name: "Go", module: custom("producers", made), want: 1},
		{name: "Go with large fuel", module: custom("producers", made), fuel: LargeFuel},
		{name: "Go with fuel that was chosen", module: custom("producers", made), fuel: 2_000_000},
		{name: "another section", module: custom("producer", made)},
		{name: "another compiler", module: custom("producers", "\x01\x08language\x01\x04Rust\x00")},
		{name: "garbage", module: custom("producers", "\xff\xff\xff\xff\xff\xffGo")},
		{name: "nothing", module: custom("producers", "")},
	} {
		h := openTrying(t, 1, Env{})
		if i := load(t, h, "x", tc.module, Options{Fuel: tc.fuel}); len(i.Warnings) != tc.want {
			t.Errorf("%s: got %q, want %d warnings", tc.name, i.Warnings, tc.want)
		}
	}
}
