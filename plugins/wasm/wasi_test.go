package wasm

import (
	"slices"
	"strings"
	"testing"
	"time"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
)

// wasi imports a function of the operating system.
func wasi(b *wt.Builder, name string) int {
	f, ok := wasiFunction(name)
	if !ok {
		panic("there is no " + name)
	}
	return b.Import(abi.WASI, name, f.Signature)
}

// errno is code that calls a function and leaves what it returns as an i64.
func errno(b *wt.Builder, name string, params ...[]byte) []byte {
	return slices.Concat(slices.Concat(params...), wt.Call(wasi(b, name)), wt.I64Extend)
}

// written is code for what a function has written to out, after it was called.
func written(call []byte) []byte {
	return slices.Concat(call, wt.LocalSet(wt.Temp), wt.I32(out), wt.I64Load(0))
}

// stateOf loads a module that stores the result of code as the state of messages, and returns the states of two.
func stateOf(t *testing.T, h *Host, code func(b *wt.Builder) []byte) [2]int64 {
	t.Helper()
	load(t, h, "x", assemble(func(b *wt.Builder) {
		c := code(b)
		b.Batch(8)
		b.Each(abi.OnEnqueue, result(c))
	}), Options{})
	hs := h.Attach(queue("x", nil))
	var got [2]int64
	for i := range got {
		got[i] = enqueue1(hs, now.Add(time.Duration(i)), hook.Message{}).State
	}
	if i, _ := h.Info("x"); i.LastError != "" {
		t.Error(i.LastError)
	}
	return got
}

func TestWASI(t *testing.T) {
	at := wt.I32(out)
	for _, tc := range []struct {
		name string
		code func(b *wt.Builder) []byte
		want [2]int64
	}{
		{"clock_time_get", func(b *wt.Builder) []byte {
			return written(errno(b, "clock_time_get", wt.I32(0), wt.I64(1), at))
		}, [2]int64{int64(now), int64(now) + 1}},
		{"clock_res_get", func(b *wt.Builder) []byte { return written(errno(b, "clock_res_get", wt.I32(0), at)) }, [2]int64{1, 1}},
		{"args_sizes_get", func(b *wt.Builder) []byte {
			return written(errno(b, "args_sizes_get", at, wt.I32(out+4)))
		}, [2]int64{}},
		{"environ_get", func(b *wt.Builder) []byte { return errno(b, "environ_get", at, at) }, [2]int64{}},
		{"sched_yield", func(b *wt.Builder) []byte { return errno(b, "sched_yield") }, [2]int64{}},
		{"fd_prestat_get", func(b *wt.Builder) []byte { return errno(b, "fd_prestat_get", wt.I32(3), at) }, [2]int64{wasiBadFD, wasiBadFD}},
		{"path_open", func(b *wt.Builder) []byte {
			return errno(b, "path_open", wt.I32(3), wt.I32(0), at, wt.I32(1), wt.I32(0), wt.I64(0), wt.I64(0), wt.I32(0), at)
		}, [2]int64{wasiNoSys, wasiNoSys}},
		{"fd_fdstat_get", func(b *wt.Builder) []byte { return written(errno(b, "fd_fdstat_get", wt.I32(1), at)) }, [2]int64{2, 2}},
		{"fd_fdstat_get of a file", func(b *wt.Builder) []byte { return errno(b, "fd_fdstat_get", wt.I32(3), at) }, [2]int64{wasiBadFD, wasiBadFD}},
		{"fd_write to a file", func(b *wt.Builder) []byte {
			return errno(b, "fd_write", wt.I32(3), at, wt.I32(1), at)
		}, [2]int64{wasiBadFD, wasiBadFD}},
	} {
		if got := stateOf(t, open(t, 1, Env{}), tc.code); got != tc.want {
			t.Errorf("%s: got %d, want %d", tc.name, got, tc.want)
		}
	}
}

// Every instance takes the same numbers for random, one after the other.
func TestRandom(t *testing.T) {
	code := func(b *wt.Builder) []byte { return written(errno(b, "random_get", wt.I32(out), wt.I32(8))) }
	first, second := stateOf(t, open(t, 1, Env{}), code), stateOf(t, open(t, 1, Env{}), code)
	if first != second || first[0] == first[1] || first[0] == 0 {
		t.Errorf("got %d and %d", first, second)
	}
}

// Sleeping makes the clock of the call jump, and takes no time.
func TestSleep(t *testing.T) {
	const subscription, events = 1024, 1536
	got := stateOf(t, open(t, 1, Env{}), func(b *wt.Builder) []byte {
		poll := errno(b, "poll_oneoff", wt.I32(subscription), wt.I32(events), wt.I32(1), wt.I32(out))
		clock := errno(b, "clock_time_get", wt.I32(0), wt.I64(1), wt.I32(out))
		return slices.Concat(
			wt.I32(subscription), wt.I64(int64(time.Hour)), wt.I64Store(24), // a relative time
			poll, wt.LocalSet(wt.Temp), written(clock))
	})
	if want := [2]int64{int64(now.Add(time.Hour)), int64(now.Add(time.Hour)) + 1}; got != want {
		t.Errorf("got %d, want %d", got, want)
	}
}

// A guest's output is logged; before a trap it becomes part of the error.
func TestPrinting(t *testing.T) {
	const vector = 1024
	module := func(then ...[]byte) []byte {
		return assemble(func(b *wt.Builder) {
			write := wasi(b, "fd_write")
			b.Data(16, "oh no\n")
			b.Batch(8)
			b.Each(abi.OnEnqueue,
				wt.I32(vector), wt.I32(16), wt.I32Store(0), wt.I32(vector), wt.I32(6), wt.I32Store(4),
				wt.I32(2), wt.I32(vector), wt.I32(1), wt.I32(out), wt.Call(write), wt.Drop, slices.Concat(then...))
		})
	}
	var log lines
	h := open(t, 1, Env{Log: log.logger()})
	load(t, h, "prints", module(), Options{})
	enqueue1(h.Attach(queue("prints", nil)), now, hook.Message{})
	if !strings.Contains(log.String(), `level=INFO msg="a policy says" policy=prints text="oh no"`) {
		t.Errorf("got\n%s", &log)
	}
	load(t, h, "panics", module(wt.Unreachable), Options{})
	enqueue1(h.Attach(queue("panics", nil)), now, hook.Message{})
	if i, _ := h.Info("panics"); !strings.HasSuffix(i.LastError, "it printed: oh no") {
		t.Errorf("got %q", i.LastError)
	}
}

func TestExit(t *testing.T) {
	h := open(t, 1, Env{})
	load(t, h, "x", assemble(func(b *wt.Builder) {
		exit := wasi(b, "proc_exit")
		b.Batch(8)
		b.Each(abi.OnEnqueue, wt.I32(3), wt.Call(exit))
	}), Options{})
	enqueue1(h.Attach(queue("x", nil)), now, hook.Message{})
	if i, _ := h.Info("x"); i.Errors["trap"] != 1 || !strings.Contains(i.LastError, "the program ended with exit status 3") {
		t.Errorf("got %q", i.LastError)
	}
}
