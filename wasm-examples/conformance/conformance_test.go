package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/plugins/wasm"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/abi/conformance"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
	"github.com/curfewmq/curfew/wasm-examples/internal/build"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestC(t *testing.T) { run(t, "c.wasm") }

func TestCPP(t *testing.T) { run(t, "cpp.wasm") }

func TestRust(t *testing.T) { run(t, "rust.wasm") }

func TestZig(t *testing.T) { run(t, "zig.wasm") }

func TestAssemblyScript(t *testing.T) { run(t, "assemblyscript.wasm") }

func TestGo(t *testing.T) { run(t, build.Go(t, "go")) }

func TestCIsBuiltFromSource(t *testing.T) {
	build.Same(t, build.C(t, "src/guest.c"), "c.wasm")
}

func TestCPPIsBuiltFromSource(t *testing.T) {
	build.Same(t, build.CPP(t, "src/guest.cpp"), "cpp.wasm")
}

// A policy in C++20 and later, which compare differently, is the same.
func TestCPPOfLaterStandards(t *testing.T) {
	want := build.CPP(t, "src/guest.cpp").Bytes
	for _, standard := range []string{"c++20", "c++2b"} {
		if got := build.CPP(t, "src/guest.cpp", standard).Bytes; !bytes.Equal(got, want) {
			t.Errorf("-std=%s makes %d bytes, and -std=c++17 %d others", standard, len(got), len(want))
		}
	}
}

func TestRustIsBuiltFromSource(t *testing.T) { build.Same(t, build.Rust(t, "guest.rs"), "rust.wasm") }

func TestZigIsBuiltFromSource(t *testing.T) { build.Same(t, build.Zig(t, "guest.zig"), "zig.wasm") }

// The guest answers in zig test, too, where the SDK has doubles of the broker's functions.
func TestZigOnTheHost(t *testing.T) { build.ZigTest(t, "guest.zig") }

func TestAssemblyScriptIsBuiltFromSource(t *testing.T) {
	build.Same(t, build.AssemblyScript(t, "guest.ts"), "assemblyscript.wasm")
}

func run(t *testing.T, file string) {
	t.Helper()
	module, p := read(t, build.Path(file)), open(t)
	if _, err := p.Load("x", module, options(t, conformance.Config())); err != nil {
		t.Fatal(err)
	}
	conformance.Run(t, p)
	if i := p.info(); i.LastError != "" {
		t.Errorf("the guest failed: %s", i.LastError)
	}
	if _, err := p.Load("y", module, options(t, conformance.Refused())); err == nil || !strings.Contains(err.Error(), "as asked") {
		t.Errorf("a configuration that the guest has to refuse: got %v, want it to say %q", err, "as asked")
	}
}

func options(t *testing.T, config map[string]any) wasm.Options {
	t.Helper()
	b, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	o := wasm.Options{Config: b}
	for _, g := range abi.Grants() {
		o.Grants = append(o.Grants, string(g))
	}
	if err := o.Fuel.UnmarshalText([]byte("large")); err != nil {
		t.Fatal(err)
	}
	return o
}

// policy is a guest in the broker's host, and what it says.
type policy struct {
	*wasm.Host

	said    []string
	counted map[string]int64
}

func open(t *testing.T) *policy {
	t.Helper()
	h, _ := hooktest.New(t, wasm.Factory, nil).(*wasm.Host)
	p := &policy{Host: h}
	if err := h.Open(wasm.Env{Log: slog.New(p), Trace: p.trace}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (p *policy) info() wasm.Info {
	i, _ := p.Info("x")
	return i
}

// Said implements [conformance.Policy].
func (p *policy) Said() []string {
	said := p.said
	p.said = nil
	for name, n := range p.info().Counters {
		if n != p.counted[name] {
			said = append(said, fmt.Sprintf("count %s %d", name, n-p.counted[name]))
		}
	}
	p.counted = p.info().Counters
	return said
}

func (p *policy) trace(_ string, _ *hook.Message, key, value string) {
	p.said = append(p.said, fmt.Sprintf("trace %s %q", key, value))
}

var _ slog.Handler = (*policy)(nil)

// Enabled implements [slog.Handler].
func (p *policy) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

// Handle implements [slog.Handler].
func (p *policy) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "text" {
			p.said = append(p.said, fmt.Sprintf("log %s %q", strings.ToLower(r.Level.String()), a.Value))
		}
		return true
	})
	return nil
}

// WithAttrs implements [slog.Handler].
func (p *policy) WithAttrs([]slog.Attr) slog.Handler { return p }

// WithGroup implements [slog.Handler].
func (p *policy) WithGroup(string) slog.Handler { return p }
