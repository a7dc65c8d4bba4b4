package wasm

import (
	"slices"
	"strings"
	"testing"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hooktest"
)

// out is the address to which host functions write in test modules.
const out = 2048

// result is code for Each that stores the i64 which of puts on the stack as the message's state.
func result(of ...[]byte) []byte {
	return slices.Concat(
		slices.Concat(of...), wt.LocalSet(wt.Temp),
		wt.LocalGet(wt.Verdict), wt.I32(abi.SetState), wt.I32Store(abi.VerdictFlags),
		wt.LocalGet(wt.Verdict), wt.LocalGet(wt.Temp), wt.I64Store(abi.VerdictState),
		wt.Act(abi.Keep))
}

// first is code for the length on the stack, and above it in decimal the first byte
// that was written.
func first(length ...[]byte) []byte {
	return slices.Concat(slices.Concat(length...), wt.I64Extend,
		wt.I32(out), wt.I32Load8U(0), wt.I64Extend, wt.I64(1_000_000), wt.I64Mul, wt.I64Add)
}

const (
	none = 0xffff_ffff // -1 as an i32, widened
	high = 1 << 40     // something in the upper half of an i32
)

var everything = hooktest.Content{
	Exchange: "logs", RoutingKey: "a.b",
	Headers: map[string]any{
		"int": int32(-5), "float": 2.0, "half": 2.5, "digits": "77", "yes": true, "text": "hello", "bytes": []byte("\x01\xff"), "list": []any{},
	},
	Parts: map[hook.Part][]byte{
		hook.PartMessageID: []byte("id-7"), hook.PartType: []byte("t"), hook.PartUserID: []byte("me"), hook.PartBody: []byte("body!"),
	},
}

func TestHostFunctions(t *testing.T) {
	index := wt.LocalGet(wt.Index)
	for _, tc := range []struct {
		name string
		code func(b *wt.Builder) []byte
		want int64
	}{
		{"header_i64", func(b *wt.Builder) []byte { return call64(b, "header_i64", index, b.Text(16, "int"), wt.I64(9)) }, -5},
		{"header_i64 of a float", func(b *wt.Builder) []byte { return call64(b, "header_i64", index, b.Text(16, "float"), wt.I64(9)) }, 2},
		{"header_i64 of a fraction", func(b *wt.Builder) []byte { return call64(b, "header_i64", index, b.Text(16, "half"), wt.I64(9)) }, 9},
		{"header_i64 of digits", func(b *wt.Builder) []byte { return call64(b, "header_i64", index, b.Text(16, "digits"), wt.I64(9)) }, 77},
		{"header_i64 of a truth value", func(b *wt.Builder) []byte { return call64(b, "header_i64", index, b.Text(16, "yes"), wt.I64(9)) }, 1},
		{"header_i64 of nothing", func(b *wt.Builder) []byte { return call64(b, "header_i64", index, b.Text(16, "no"), wt.I64(-9)) }, -9},
		{"header_str", func(b *wt.Builder) []byte { return text(b, "header_str", 5, index, b.Text(16, "text")) }, 'h'*1_000_000 + 5},
		{"header_str of bytes", func(b *wt.Builder) []byte { return text(b, "header_str", 5, index, b.Text(16, "bytes")) }, 1_000_002},
		{"header_str without room", func(b *wt.Builder) []byte { return text(b, "header_str", 4, index, b.Text(16, "text")) }, 5},
		{"header_str of a number", func(b *wt.Builder) []byte { return text(b, "header_str", 5, index, b.Text(16, "int")) }, none},
		{"prop_str exchange", func(b *wt.Builder) []byte { return text(b, "prop_str", 9, index, wt.I32(abi.PropExchange)) }, 'l'*1_000_000 + 4},
		{"prop_str key", func(b *wt.Builder) []byte { return text(b, "prop_str", 9, index, wt.I32(abi.PropRoutingKey)) }, 'a'*1_000_000 + 3},
		{"prop_str message-id", func(b *wt.Builder) []byte { return text(b, "prop_str", 9, index, wt.I32(abi.PropMessageID)) }, 'i'*1_000_000 + 4},
		{"prop_str type", func(b *wt.Builder) []byte { return text(b, "prop_str", 9, index, wt.I32(abi.PropType)) }, 't'*1_000_000 + 1},
		{"prop_str app-id, which it has not", func(b *wt.Builder) []byte { return text(b, "prop_str", 9, index, wt.I32(abi.PropAppID)) }, none},
		{"prop_str user-id", func(b *wt.Builder) []byte { return text(b, "prop_str", 9, index, wt.I32(abi.PropUserID)) }, 'm'*1_000_000 + 2},
		{"body", func(b *wt.Builder) []byte { return text(b, "body", 2, index, wt.I32(1)) }, 'o'*1_000_000 + 2},
		{"rest of the body", func(b *wt.Builder) []byte { return text(b, "body", 99, index, wt.I32(4)) }, '!'*1_000_000 + 1},
		{"body behind its end", func(b *wt.Builder) []byte { return text(b, "body", 99, index, wt.I32(-1)) }, 0},
		{"queue_arg_i64", func(b *wt.Builder) []byte {
			return call64(b, "queue_arg_i64", wt.I32(0), b.Text(16, "message-ttl"), wt.I64(9))
		}, 2000},
		{"queue_arg_i64 as clients write it", func(b *wt.Builder) []byte {
			return call64(b, "queue_arg_i64", wt.I32(0), b.Text(16, "x-message-ttl"), wt.I64(9))
		}, 2000},
		{"queue_arg_i64 of a truth value", func(b *wt.Builder) []byte {
			return call64(b, "queue_arg_i64", wt.I32(0), b.Text(16, "flag"), wt.I64(9))
		}, 1},
		{"queue_arg_i64 of nothing", func(b *wt.Builder) []byte { return call64(b, "queue_arg_i64", wt.I32(0), b.Text(16, "x-"), wt.I64(9)) }, 9},
		{"queue_arg_str", func(b *wt.Builder) []byte {
			return text(b, "queue_arg_str", 9, wt.I32(0), b.Text(16, "dead-letter-exchange"))
		}, 'd'*1_000_000 + 3},
		{"queue_arg_str of a number", func(b *wt.Builder) []byte { return text(b, "queue_arg_str", 9, wt.I32(0), b.Text(16, "message-ttl")) }, none},
		{"config_str", func(b *wt.Builder) []byte { return text(b, "config_str", 9, b.Text(16, "a.b")) }, 'c'*1_000_000 + 1},
		{"config_i64", func(b *wt.Builder) []byte { return call64(b, "config_i64", b.Text(16, "n"), wt.I64(9)) }, 1 << 53},
		{"log_enabled", func(b *wt.Builder) []byte {
			return slices.Concat(call64(b, "log_enabled", wt.I32(abi.LogDebug)), wt.I64Extend)
		}, 1},
	} {
		h := open(t, 1, Env{Log: new(lines).logger()})
		module := assemble(func(b *wt.Builder) {
			code := tc.code(b)
			b.Batch(8)
			b.Each(abi.OnEnqueue, result(code))
		})
		load(t, h, "x", module, Options{Grants: []string{"headers", "body"}, Config: []byte(`{"a":{"b":"c"},"n":9007199254740992}`)})
		ms, vs := []hook.Message{{Enqueued: now}, {Enqueued: now}}, make([]hook.Verdict, 2)
		hooktest.Bind(ms, hooktest.Content{}, everything)
		h.Attach(queue("x", map[string]any{"message-ttl": int32(2000), "dead-letter-exchange": "dlx", "flag": true})).OnEnqueue(now, ms, vs)
		if i, _ := h.Info("x"); vs[1].State != tc.want || i.LastError != "" {
			t.Errorf("%s: got %d, want %d, error %q", tc.name, vs[1].State, tc.want, i.LastError)
		}
	}
}

// call64 is code that calls a host function.
func call64(b *wt.Builder, name string, params ...[]byte) []byte {
	return slices.Concat(slices.Concat(params...), wt.Call(b.Host(name)))
}

// text is code that calls a host function which writes up to limit bytes.
func text(b *wt.Builder, name string, limit int, params ...[]byte) []byte {
	return first(slices.Concat(params...), wt.I32(out), wt.I32(limit), wt.Call(b.Host(name)))
}

// A guest that misuses a host function is ended, and its messages are decided without it.
func TestMisuse(t *testing.T) {
	index := wt.LocalGet(wt.Index)
	for _, tc := range []struct {
		name string
		code func(b *wt.Builder) []byte
		want string
	}{
		{"no such message", func(b *wt.Builder) []byte {
			return slices.Concat(call64(b, "header_i64", wt.I32(1), b.Text(16, "x"), wt.I64(0)), wt.Drop)
		}, "header_i64: there is no message 1 in a call with 1"},
		{"message before the first", func(b *wt.Builder) []byte {
			return slices.Concat(call64(b, "body", wt.I32(-1), wt.I32(0), wt.I32(0), wt.I32(0)), wt.Drop)
		}, "body: there is no message 4294967295 in a call with 1"},
		{"no such property", func(b *wt.Builder) []byte {
			return slices.Concat(call64(b, "prop_str", index, wt.I32(7), wt.I32(0), wt.I32(0)), wt.Drop)
		}, "prop_str: there is no property 7; accepted are 1 to 6"},
		{"no such queue", func(b *wt.Builder) []byte {
			return slices.Concat(call64(b, "queue_arg_i64", wt.I32(1), b.Text(16, "x"), wt.I64(0)), wt.Drop)
		}, "queue_arg_i64: there is no queue 1"},
		{"name elsewhere", func(b *wt.Builder) []byte {
			return slices.Concat(call64(b, "header_i64", index, wt.I32(-4), wt.I32(5), wt.I64(0)), wt.Drop)
		}, "header_i64: 5 bytes at 0xfffffffc are not in its memory of 65536 bytes"},
		{"long name", func(b *wt.Builder) []byte {
			return slices.Concat(call64(b, "config_i64", wt.I32(0), wt.I32(256), wt.I64(0)), wt.Drop)
		}, "config_i64: a name of 256 bytes; accepted are up to 255"},
		{"room elsewhere", func(b *wt.Builder) []byte {
			return slices.Concat(call64(b, "header_str", index, b.Text(16, "text"), wt.I32(65533), wt.I32(5)), wt.Drop)
		}, "header_str: 5 bytes at 0xfffd are not in its memory of 65536 bytes"},
		{"text elsewhere", func(b *wt.Builder) []byte { return call64(b, "fail", wt.I32(65535), wt.I32(2)) }, "fail: 2 bytes at 0xffff"},
		{"hold of no message", func(b *wt.Builder) []byte {
			return call64(b, "hold", wt.I32(1), wt.I64(nowMillis+1))
		}, "hold: there is no message 1 in a call with 1"},
		{"too many counters", func(b *wt.Builder) []byte {
			b.Data(16, strings.Repeat("c", abi.MaxCounters+1))
			return wt.Loop(
				wt.LocalGet(wt.Temp), wt.I64(1), wt.I64Add, wt.LocalSet(wt.Temp),
				call64(b, "counter_add", wt.I32(16), wt.LocalGet(wt.Temp), wt.I32Wrap, wt.I64(1)), wt.Br(0))
		}, "is one name too many; accepted are 32"},
	} {
		h := open(t, 1, Env{})
		load(t, h, "x", assemble(func(b *wt.Builder) {
			code := tc.code(b)
			b.Batch(8)
			b.Each(abi.OnEnqueue, code)
		}), Options{Grants: []string{"headers", "body", "metrics", "hold"}})
		ms, vs := []hook.Message{{Enqueued: now, Expiration: hook.LimitOf(5)}}, make([]hook.Verdict, 1)
		hooktest.Bind(ms, everything)
		h.Attach(queue("x", nil)).OnEnqueue(now, ms, vs)
		if i, _ := h.Info("x"); i.Errors["trap"] != 1 || !strings.Contains(i.LastError, tc.want) || vs[0] != (hook.Verdict{Again: true, Deadline: now.AddMillis(5)}) {
			t.Errorf("%s: got %q, %+v, want %q", tc.name, i.LastError, vs[0], tc.want)
		}
	}
}

// The upper half of an i32 parameter is ignored.
func TestUpperHalves(t *testing.T) {
	h := open(t, 1, Env{})
	load(t, h, "x", ttl(1), Options{})
	v := h.table.Load().policies["x"].active.Load()
	in := v.pool.take(now)
	defer v.pool.put(in)
	copy(in.at(10), "base-ms!!!")
	in.fuel.Set(uint64(DefaultFuel))
	if got := in.name("test", uint64(in.buffer)|high, 7|high); got != "base-ms" {
		t.Errorf("name: got %q", got)
	}
	if got := in.text("test", uint64(in.buffer)|high, 4|high); got != "base" {
		t.Errorf("text: got %q", got)
	}
}

// A guest's log lines, counts and trace attributes arrive, up to their limits.
func TestTelling(t *testing.T) {
	module := assemble(func(b *wt.Builder) {
		log, count, trace := b.Host("log"), b.Host("counter_add"), b.Host("trace_attr")
		b.Batch(64)
		b.Each(abi.OnEnqueue,
			wt.I32(abi.LogWarn), b.Text(16, "look"), wt.Call(log),
			b.Text(32, "seen"), wt.I64(2), wt.Call(count),
			wt.LocalGet(wt.Index), b.Text(48, "why"), b.Text(64, "because"), wt.Call(trace))
	})
	var log lines
	traced := map[string]int{}
	h := open(t, 1, Env{Log: log.logger(), Trace: func(policy string, m *hook.Message, key, value string) {
		traced[policy+" "+string(m.RoutingKey())+" "+key+" "+value]++
	}})
	load(t, h, "x", module, Options{Grants: []string{"metrics", "trace"}})
	ms, vs := make([]hook.Message, 50), make([]hook.Verdict, 50)
	hooktest.Bind(ms, everything)
	h.Attach(queue("x", nil)).OnEnqueue(now, ms, vs)
	i, _ := h.Info("x")
	if i.Counters["seen"] != 100 || traced["x a.b why because"] != 1 || traced["x  why because"] != 49 {
		t.Errorf("got %v, %v", i.Counters, traced)
	}
	if n := strings.Count(log.String(), `level=WARN msg="a policy says" policy=x text=look`); n != guestBurst {
		t.Errorf("%d lines were logged, want %d:\n%s", n, guestBurst, &log)
	}
}

// If attributes are not wanted, they are logged.
func TestTracesAreLogged(t *testing.T) {
	var log lines
	h := open(t, 1, Env{Log: log.logger()})
	load(t, h, "x", assemble(func(b *wt.Builder) {
		trace := b.Host("trace_attr")
		b.Batch(8)
		b.Each(abi.OnEnqueue, wt.LocalGet(wt.Index), b.Text(48, "why"), b.Text(64, "because"), wt.Call(trace))
	}), Options{Grants: []string{"trace"}})
	ms, vs := make([]hook.Message, 1), make([]hook.Verdict, 1)
	hooktest.Bind(ms, everything)
	h.Attach(queue("x", nil)).OnEnqueue(now, ms, vs)
	if want := `level=DEBUG msg="a policy traces a message" policy=x key=why value=because message_id=id-7 routing_key=a.b`; !strings.Contains(log.String(), want) {
		t.Errorf("got\n%s", &log)
	}
}
