package wasm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

func TestDecide(t *testing.T) {
	h := open(t, 2, Env{})
	for name, module := range map[string][]byte{"batch": ttl(1500), "single": singleTTL(1500)} {
		load(t, h, name, module, Options{})
		hs := h.Attach(queue(name, nil))
		if got, want := enqueue1(hs, now, hook.Message{}).Deadline, now.Add(1500*time.Millisecond); got != want {
			t.Errorf("%s: got deadline %d, want %d", name, got, want)
		}
		if got := head1(hs, now, hook.Message{Deadline: now, Why: hook.WhyDue}); got.Action != hook.Drop || got.Reason != hook.ReasonExpired || got.Final {
			t.Errorf("%s: due: got %+v", name, got)
		}
		if i, _ := h.Info(name); i.Calls != 1 || i.Messages != 1 || i.FuelUsed == 0 || i.LastError != "" {
			t.Errorf("%s: got %+v", name, i)
		}
	}
}

// modules writes modules to files, and returns a section that names them.
func modules(t *testing.T, ms map[string][]byte) hooktest.Section {
	t.Helper()
	dir, entries := t.TempDir(), hooktest.Section{}
	for name, b := range ms {
		file := filepath.Join(dir, name+".wasm")
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		entries[name] = hooktest.Section{"path": file, "grants": []string{"headers", "body", "route", "metrics", "trace"}}
	}
	return hooktest.Section{"modules": entries}
}

// opened opens hosts, as the broker does between making plugins and using them.
func opened(t *testing.T) hook.Factory {
	t.Helper()
	return hook.Factory{Name: Factory.Name, New: func(decode func(any) error) (hook.Plugin, any, error) {
		p, config, err := Factory.New(decode)
		if err != nil {
			return nil, nil, err
		}
		h, _ := p.(*Host)
		t.Cleanup(func() { _ = h.Close() })
		return p, config, h.Open(Env{})
	}}
}

// busy is a module with every hook, which uses all of its arguments.
func busy() []byte {
	b := wt.New()
	header, prop := b.Host("header_i64"), b.Host("prop_str")
	name := b.Text(16, "x-delay")
	b.Batch(32)
	b.Each(abi.OnEnqueue,
		wt.Keep(wt.LocalGet(wt.Now), wt.LocalGet(wt.Record), wt.I32Load8U(abi.RecordPriority), wt.I64Extend, wt.I64Add,
			wt.LocalGet(wt.Index), name, wt.I64(5), wt.Call(header), wt.I64(1000), wt.I64LtS, wt.I64Extend, wt.I64Add,
			wt.LocalGet(wt.Index), wt.I32(abi.PropRoutingKey), wt.I32(0), wt.I32(0), wt.Call(prop), wt.I64Extend, wt.I64Add),
		wt.LocalGet(wt.Verdict), wt.I32(abi.AskAtHead|abi.SetState), wt.I32Store(abi.VerdictFlags),
		wt.LocalGet(wt.Verdict), wt.LocalGet(wt.Record), wt.I64Load(abi.RecordState), wt.I64Store(abi.VerdictState))
	byPriority := wt.Block( // priorities up to 4 are actions, the others no opinion
		wt.LocalGet(wt.Record), wt.I32Load8U(abi.RecordPriority), wt.I32(5), wt.I32GeU, wt.BrIf(0),
		wt.LocalGet(wt.Verdict), wt.LocalGet(wt.Record), wt.I32Load8U(abi.RecordPriority), wt.I32Store(abi.VerdictAction))
	for _, h := range []abi.Hook{abi.OnDeadline, abi.OnHead, abi.OnRequeue} {
		b.Each(h, byPriority)
	}
	b.Has(abi.OnIdle.String(), wt.LocalGet(0), wt.LocalGet(1), wt.I64Add, wt.LocalGet(2), wt.I64Extend, wt.I64Add)
	return b.Bytes()
}

func TestConformance(t *testing.T) {
	plain := wt.New()
	plain.Batch(3)
	plain.Each(abi.OnEnqueue)
	s := modules(t, map[string][]byte{"ttl": ttl(1000), "single": singleTTL(1000), "busy": busy(), "silent": plain.Bytes()})
	hooktest.Run(t, opened(t),
		hooktest.Case{Name: "policies", Section: s},
		hooktest.Case{Name: "settings", Section: s, Queue: hooktest.Spec{Settings: map[string]any{"message-ttl": int32(500), "dead-letter-exchange": "dlx"}}})
}

func TestConfigErrors(t *testing.T) {
	for _, tc := range []struct {
		name    string
		section hooktest.Section
		want    string
	}{
		{"name", hooktest.Section{"modules": hooktest.Section{"A b": hooktest.Section{"path": "p"}}}, `modules.A b: the name "A b" is not accepted`},
		{"path", hooktest.Section{"modules": hooktest.Section{"a": hooktest.Section{}}}, "modules.a.path: is missing"},
		{"grant", hooktest.Section{"modules": hooktest.Section{"a": hooktest.Section{"path": "p", "grants": []string{"all"}}}}, `modules.a.grants: "all" is not a grant, expected one of headers, body, route, metrics, trace, hold`},
		{"fuel", hooktest.Section{"modules": hooktest.Section{"a": hooktest.Section{"path": "p", "fuel": "much"}}}, "modules: a: fuel: accepted are default, large, and 10000 to 1000000000"},
		{"on-error", hooktest.Section{"modules": hooktest.Section{"a": hooktest.Section{"path": "p", "on-error": "expire"}}}, "modules: a: on-error: accepted are builtin, keep, reject"},
		{"config", hooktest.Section{"modules": hooktest.Section{"a": hooktest.Section{"path": "p", "config": map[string]any{"x": strings.Repeat("x", abi.MaxConfig)}}}}, "modules.a.config: has 65544 bytes of JSON"},
		{"memory", hooktest.Section{"memory": "100KiB"}, "memory: 100KiB is not in whole pages of 64KiB"},
		{"too much memory", hooktest.Section{"memory": "2GiB"}, "memory: 2GiB is out of range; accepted are 64KiB to 1GiB"},
		{"total", hooktest.Section{"total-memory": "1"}, "total-memory: 1 is out of range"},
		{"size", hooktest.Section{"memory": "1MB"}, "memory: a size is a whole number of bytes, or one followed by KiB, MiB or GiB"},
	} {
		_, _, err := Factory.New(tc.section.Decode)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.want)
		}
	}
}
