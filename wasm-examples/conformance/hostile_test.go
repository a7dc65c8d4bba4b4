package conformance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/curfewmq/curfew/sdk/abi/conformance"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
	"github.com/curfewmq/curfew/wasm-examples/internal/build"
)

// A stack that overflows ends the instance. It lay behind the data and overwrote it: the policy decided from what it found there.
func TestStackOverflowOfC(t *testing.T) {
	failsAt(t, build.C(t, source(t, "deep.c", `#include "policy.h"
static volatile int64_t ttl[512];

__attribute__((noinline)) static int64_t deeper(int64_t n) {
  volatile int64_t local[16];
  for (int i = 0; i < 16; i++) local[i] = n;
  return n == 0 ? 0 : deeper(n - 1) + local[n % 16];
}

POLICY_CONFIGURE() { ttl[0] = 1000; }
POLICY_HOOK(on_enqueue, now, m, v) { policy_keep(v, now + ttl[0] + (m->priority ? deeper(m->size) * 0 : 0)); }
`)).Bytes, hook.Message{Priority: 1, Size: 100}, "out of bounds memory access")
}

// Global objects are constructed, and once. Without _initialize the linker leaves out their constructors.
func TestGlobalObjectsOfCPP(t *testing.T) {
	p := load(t, build.CPP(t, source(t, "global.cpp", `#include "policy.hpp"
namespace {
struct counter {
  counter() : n(curfew::config("first", 7)) {}
  virtual ~counter() = default;
  virtual int64_t next() { return n++; }
  int64_t n;
};
counter calls;
curfew::verdict enter(int64_t, const curfew::message &) { return curfew::keep(curfew::none).with_state(calls.next()); }
}
void operator delete(void *, decltype(sizeof 0)) noexcept {}
CURFEW_ON_ENQUEUE(enter)
`)).Bytes)
	for want := int64(7); want < 10; want++ {
		if v := p.ask(hook.Message{}, hooktest.Content{}); v.State != want {
			t.Errorf("got %+v, want state %d", v, want)
		}
	}
}

// An index outside of a text, and a panic, end the instance, and the broker's log says why.
func TestPanicOfCPP(t *testing.T) {
	module := build.CPP(t, source(t, "panic.cpp", `#include "policy.hpp"
static curfew::verdict enter(int64_t, const curfew::message &m) {
  curfew::buffer<8> b;
  curfew::text header = m.header_text("text", b);
  if (m.priority == 1) curfew::panic("out of ideas");
  return curfew::keep(curfew::none).with_state(m.priority == 2 ? header[7] : 0);
}
CURFEW_ON_ENQUEUE(enter)
`)).Bytes
	failsAt(t, module, hook.Message{Priority: 1}, "out of ideas")
	failsAt(t, module, hook.Message{Priority: 2}, "unreachable")
}

// What Zig checks at run time ends the instance, and the broker's log says why.
func TestPanicOfZig(t *testing.T) {
	module := build.Zig(t, source(t, "panic.zig", `const std = @import("std");
const policy = @import("policy.zig");
pub const panic = policy.panic;
fn enter(_: i64, m: *const policy.Message) policy.Verdict {
    var room: [8]u8 = undefined;
    if (m.priority == 1) return policy.keep(m.size - 1000);
    if (m.priority == 2) return policy.keep(room[m.size]);
    if (m.priority == 3) @panic("out of ideas");
    if (m.priority == 4) return policy.keep(deeper(m.size));
    if (m.priority == 5) return if (@wasmMemoryGrow(0, 1024) < 0) policy.expire() else policy.noOpinion();
    return policy.noOpinion();
}
fn deeper(n: i64) i64 {
    var local: [16]i64 = undefined;
    for (&local) |*l| l.* = n;
    std.mem.doNotOptimizeAway(&local);
    return if (n == 0) 0 else deeper(n - 1) + local[3];
}
comptime {
    policy.register(.{ .on_enqueue = enter });
}
`)).Bytes
	failsAt(t, module, hook.Message{Priority: 1, Size: 1}, "integer overflow")
	failsAt(t, module, hook.Message{Priority: 2, Size: 9}, "index out of bounds")
	failsAt(t, module, hook.Message{Priority: 3}, "out of ideas")
	failsAt(t, module, hook.Message{Priority: 4, Size: 100}, "out of bounds memory access")
	p := load(t, module) // more memory than an instance may have is an error, which a policy can handle
	if v := p.ask(hook.Message{Priority: 5}, hooktest.Content{}); v.Action != hook.Drop || p.info().LastError != "" {
		t.Errorf("got %+v and %q, want it expired", v, p.info().LastError)
	}
}

// source writes a policy's source to a file.
func source(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	write(t, file, text)
	return file
}

// load loads a module with all grants.
func load(t *testing.T, module []byte) *policy {
	t.Helper()
	p := open(t)
	if _, err := p.Load("x", module, options(t, map[string]any{"first": 7})); err != nil {
		t.Fatal(err)
	}
	return p
}

// ask asks about a message that is about to be enqueued.
func (p *policy) ask(m hook.Message, c hooktest.Content) hook.Verdict {
	const now = hook.Instant(1_700_000_000_000_000_000)
	m.Enqueued, m.Why = now, hook.WhyEnqueue
	ms, vs := []hook.Message{m}, make([]hook.Verdict, 1)
	hooktest.Bind(ms, c)
	p.Attach(hooktest.NewQueue(hooktest.Spec{Strategy: "wasm/x"})).OnEnqueue(now, ms, vs)
	return vs[0]
}

// failsAt checks that a message ends the instance, with an error that says want, and that the policy decides about the next message
// as if nothing had happened.
func failsAt(t *testing.T, module []byte, m hook.Message, want string) {
	t.Helper()
	p := load(t, module)
	p.ask(m, hooktest.Content{})
	if i := p.info(); !strings.Contains(i.LastError, want) {
		t.Errorf("got %q, want it to say %q", i.LastError, want)
	}
}

// guests are the modules that are checked in.
var guests = map[string]string{"c": "c.wasm", "c++": "cpp.wasm", "rust": "rust.wasm", "zig": "zig.wasm", "assemblyscript": "assemblyscript.wasm"}

// Publishers send any bytes as texts. None of them may end an instance, and what a guest says of them is what was sent, as far as
// a trace may have it.
func TestHostileTexts(t *testing.T) {
	for name, file := range guests {
		t.Run(name, func(t *testing.T) {
			module, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			p := open(t)
			if _, err := p.Load("x", module, options(t, conformance.Config())); err != nil {
				t.Fatal(err)
			}
			for _, text := range []string{"a\x00b", "\x00", "\xff\xfe\x00\x80", "\xed\xa0\x80", strings.Repeat("\xf0", 300), strings.Repeat("ü\x00", 5_000)} {
				v := p.ask(hook.Message{Priority: 9}, hooktest.Content{Headers: map[string]any{"text": text}})
				if utf8.ValidString(text) && v.State != int64(len(text)) && v.State != -1 {
					t.Errorf("%.10q: got %+v, want its %d bytes, or that they are too many", text, v, len(text))
				}
				v = p.ask(hook.Message{Priority: 11}, hooktest.Content{Parts: map[hook.Part][]byte{hook.PartBody: []byte(text)}})
				if want := min(max(int64(len(text))-4, 0), 8); v.State != want {
					t.Errorf("%.10q as a body: got %+v, want %d bytes of it", text, v, want)
				}
			}
			if i := p.info(); i.LastError != "" {
				t.Errorf("the guest failed: %s", i.LastError)
			}
			p.Said()
		})
	}
}
