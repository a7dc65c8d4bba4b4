package wasm

import (
	"slices"
	"strings"
	"testing"

	wt "github.com/curfewmq/curfew/plugins/wasm/wasmtest"
	"github.com/curfewmq/curfew/sdk/abi"
)

// types are signatures of test modules.
func types(params, results string) (s abi.Signature) {
	for i, digits := range []string{params, results} {
		for _, d := range digits {
			v := abi.I32
			if d == '8' {
				v = abi.I64
			}
			if i == 0 {
				s.Params = append(s.Params, v)
				continue
			}
			s.Results = append(s.Results, v)
		}
	}
	return s
}

// assemble makes a module with a function that fills its builder.
func assemble(tell func(b *wt.Builder)) []byte {
	b := wt.New()
	tell(b)
	return b.Bytes()
}

// handshake adds the handshake and a hook to a module.
func handshake(b *wt.Builder) {
	b.Batch(8)
	b.Each(abi.OnEnqueue)
}

func TestRefusedModules(t *testing.T) {
	h := open(t, 1, Env{})
	h.engine.fuel = 1_000_000                       // or some would take half a second
	refuse := func(b *wt.Builder, what ...[]byte) { // a policy_configure that does this
		handshake(b)
		b.Has(abi.ExportConfigure, what...)
	}
	for _, tc := range []struct {
		name    string
		module  []byte
		options Options
		want    string
	}{
		{name: "nothing", want: "not a WebAssembly module of version 1"},
		{name: "no version", module: assemble(func(b *wt.Builder) { b.Each(abi.OnEnqueue) }), want: "exports no policy_v1: it is not an expiry policy"},
		{
			name: "another version", want: "the module speaks policy_v2, this broker policy_v1",
			module: assemble(func(b *wt.Builder) { b.Export("policy_v2", b.Func(types("", "4"), nil, wt.I32(1))) }),
		},
		{
			name: "imports of another version", want: "the module speaks policy_v3, this broker policy_v1",
			module: assemble(func(b *wt.Builder) { b.Import("policy_v3", "log", types("444", "")); handshake(b) }),
		},
		{
			name: "unknown import", want: "imports policy_v1.kv_get, which this broker does not know",
			module: assemble(func(b *wt.Builder) { b.Import(abi.Name, "kv_get", types("4", "4")); handshake(b) }),
		},
		{
			name: "import of another type", want: "import policy_v1.log is a (func (param i32)), want (func (param i32 i32 i32))",
			module: assemble(func(b *wt.Builder) { b.Import(abi.Name, "log", types("4", "")); handshake(b) }),
		},
		{
			name: "import from elsewhere", want: "imports env.abort, which is not available; available are functions of policy_v1 and, for compilers that need it, wasi_snapshot_preview1",
			module: assemble(func(b *wt.Builder) { b.Import("env", "abort", types("4444", "")); handshake(b) }),
		},
		{
			name: "unknown part of the operating system", want: "imports wasi_snapshot_preview1.fork, which does not exist",
			module: assemble(func(b *wt.Builder) { b.Import(abi.WASI, "fork", types("", "4")); handshake(b) }),
		},
		{
			name: "operating system of another type", want: "import wasi_snapshot_preview1.fd_close is a (func (param i64)",
			module: assemble(func(b *wt.Builder) { b.Import(abi.WASI, "fd_close", types("8", "4")); handshake(b) }),
		},
		{
			name: "not granted", want: "imports policy_v1.header_i64, which needs the grant headers; granted: body, route", options: Options{Grants: []string{"body", "route"}},
			module: assemble(func(b *wt.Builder) { b.Host("header_i64"); handshake(b) }),
		},
		{
			name: "export of another type", want: "export on_enqueue is a (func (param i64) (result i32)), want (func (param i64 i32) (result i32))",
			module: assemble(func(b *wt.Builder) {
				b.Batch(8)
				b.Export("on_enqueue", b.Func(types("8", "4"), nil, wt.I32(0)))
			}),
		},
		{name: "no hook", module: assemble(func(b *wt.Builder) { b.Batch(8) }), want: "exports none of the hooks deadline, on_enqueue, on_deadline, on_head, on_requeue, on_idle"},
		{
			name: "too many at once", want: "policy_v1: the module would take 1025 messages at once; accepted are 0 to 1024",
			module: assemble(func(b *wt.Builder) { b.Batch(1025); b.Each(abi.OnEnqueue) }),
		},
		{
			name: "fewer than none", want: "would take -1 messages at once",
			module: assemble(func(b *wt.Builder) { b.Batch(-1); b.Each(abi.OnEnqueue) }),
		},
		{
			name: "batches of none", want: "exports hooks for batches and would take no message at once",
			module: assemble(func(b *wt.Builder) { b.Single(); b.Each(abi.OnEnqueue) }),
		},
		{
			name: "no buffer", want: "but exports no policy_buf to put them",
			module: assemble(func(b *wt.Builder) { b.Has(abi.Name, wt.I32(8)); b.Each(abi.OnEnqueue) }),
		},
		{
			name: "buffer refused", want: "policy_buf: the module has no buffer of 768 bytes, for 8 messages and a configuration of 2 bytes",
			module: assemble(func(b *wt.Builder) {
				b.Has(abi.Name, wt.I32(8))
				b.Has(abi.ExportBuffer, wt.I32(0))
				b.Each(abi.OnEnqueue)
			}),
		},
		{
			name: "buffer elsewhere", want: "policy_buf: a buffer of 768 bytes at 0xffff does not lie in the module's memory of 65536 bytes",
			module: assemble(func(b *wt.Builder) {
				b.Has(abi.Name, wt.I32(8))
				b.Has(abi.ExportBuffer, wt.I32(0xffff))
				b.Each(abi.OnEnqueue)
			}),
		},
		{
			name: "buffer too small for the configuration", want: "has no buffer of 1009 bytes", options: Options{Config: []byte(`{"a":"` + strings.Repeat("x", 1001) + `"}`)},
			module: assemble(func(b *wt.Builder) {
				b.Has(abi.Name, wt.I32(8))
				b.Has(abi.ExportBuffer, wt.I32(8*96), wt.LocalGet(0), wt.I32GeU, wt.I32(wt.Buffer), wt.I32Mul)
				b.Each(abi.OnEnqueue)
			}),
		},
		{name: "configuration refused", module: assemble(func(b *wt.Builder) { refuse(b, wt.I32(-7)) }), want: "refuses its configuration, and does not say why (policy_configure returned -7)"},
		{
			name: "configuration refused with a reason", want: "the policy refuses its configuration: base-ms must be positive",
			module: assemble(func(b *wt.Builder) {
				fail := b.Host("fail")
				refuse(b, b.Text(16, "base-ms must be positive"), wt.Call(fail), wt.I32(-1))
			}),
		},
		{
			name: "configuration that is no number", want: `config: base-ms: "5s" is not a whole number`, options: Options{Config: []byte(`{"base-ms":"5s"}`)},
			module: assemble(func(b *wt.Builder) {
				get := b.Host("config_i64")
				refuse(b, b.Text(16, "base-ms"), wt.I64(0), wt.Call(get), wt.Drop, wt.I32(0))
			}),
		},
		{name: "trap", module: assemble(func(b *wt.Builder) { refuse(b, wt.Unreachable) }), want: "policy_configure: unreachable in ."},
		{name: "endless", module: assemble(func(b *wt.Builder) { refuse(b, wt.Loop(wt.Br(0)), wt.I32(0)) }), want: "policy_configure: it used up its fuel"},
		{
			name: "configuration with a number that is too large", want: `config: base-ms: "9223372036854775808" is not a whole number of 64 bits`, options: Options{Config: []byte(`{"base-ms":9223372036854775808}`)},
			module: assemble(func(b *wt.Builder) {
				get := b.Host("config_i64")
				refuse(b, b.Text(16, "base-ms"), wt.I64(0), wt.Call(get), wt.Drop, wt.I32(0))
			}),
		},
		{name: "trap", module: assemble(func(b *wt.Builder) { refuse(b, wt.Unreachable) }), want: "policy_configure: unreachable in ."},
		{name: "endless", module: assemble(func(b *wt.Builder) { refuse(b, wt.Loop(wt.Br(0)), wt.I32(0)) }), want: "policy_configure: it used up its fuel"},
		{
			name: "hooks that are not there", want: "policy_hooks: the module wants none of the hooks that it exports",
			module: assemble(func(b *wt.Builder) { handshake(b); b.Has(abi.ExportHooks, wt.I64(1<<abi.OnIdle)) }),
		},
		{
			name: "endless start", want: "or it used up its fuel",
			module: assemble(func(b *wt.Builder) {
				handshake(b)
				b.Start(b.Func(types("", ""), nil, wt.Loop(wt.Br(0))))
			}),
		},
		{
			name: "start that traps", want: "cannot be instantiated: start: ",
			module: assemble(func(b *wt.Builder) { handshake(b); b.Start(b.Func(types("", ""), nil, wt.Unreachable)) }),
		},
		{name: "data outside", module: assemble(func(b *wt.Builder) { handshake(b); b.Data(65536, "x") }), want: "cannot be instantiated: start: "},
		{name: "large memory", module: assemble(func(b *wt.Builder) { handshake(b); b.Memory(300, 300) }), want: "memory"},
		{name: "digest", module: ttl(1), options: Options{Digest: "sha256:" + strings.Repeat("0", 64)}, want: "not " + strings.Repeat("0", 64) + ": it was changed or truncated on the way"},
		{name: "digest that is none", module: ttl(1), options: Options{Digest: "sha256:00"}, want: `"00" is not a digest; accepted are 64 hexadecimal digits`},
		{name: "grant", module: ttl(1), options: Options{Grants: []string{"root"}}, want: `grants: "root" is not a grant`},
		{name: "fuel", module: ttl(1), options: Options{Fuel: 1}, want: "fuel: 1 is out of range; accepted are default, large, and 10000 to 1000000000"},
		{name: "configuration", module: ttl(1), options: Options{Config: []byte("[]")}, want: "config: is not a JSON object"},
		{name: "invalid code", module: assemble(func(b *wt.Builder) { handshake(b); b.Func(types("", ""), nil, wt.I32(1)) }), want: "the module is not valid"},
	} {
		_, err := h.Load("x", tc.module, tc.options)
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), `policy "x": `) {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.want)
		}
	}
	if len(h.List()) > 0 || len(h.engine.modules) > 0 {
		t.Errorf("something is left of modules that were refused: %+v, %d compiled", h.List(), len(h.engine.modules))
	}
	if _, err := h.Load("X", ttl(1), Options{}); err == nil || !strings.Contains(err.Error(), `the name "X" is not accepted`) {
		t.Errorf("name: got %v", err)
	}
	if _, err := h.Load("x", make([]byte, abi.MaxModule+1), Options{}); err == nil || !strings.Contains(err.Error(), "too large; accepted are up to 8MiB") {
		t.Errorf("size: got %v", err)
	}
}

func TestInspect(t *testing.T) {
	m, err := Inspect(assemble(func(b *wt.Builder) {
		for _, name := range []string{"log", "header_str", "header_i64", "body"} {
			b.Host(name)
		}
		b.Import(abi.WASI, "fd_write", types("4444", "4"))
		handshake(b)
		b.Each(abi.OnHead)
	}))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(m.Imports, " ") + "; " + words(m.Grants); got != "log header_str header_i64 body; body, headers" {
		t.Errorf("got %s", got)
	}
	if len(m.Hooks) != 2 || m.Hooks[0] != abi.OnEnqueue || m.Hooks[1] != abi.OnHead || !m.WASI || len(m.Digest) != 64 || m.Size == 0 {
		t.Errorf("got %+v", m)
	}
}

// The effects of unusual handshakes.
func TestHandshake(t *testing.T) {
	h := open(t, 1, Env{})
	i := load(t, h, "idle", assemble(func(b *wt.Builder) { b.Single(); b.Has(abi.OnIdle.String(), wt.I64(-2)) }), Options{})
	if strings.Join(i.Hooks, " ") != "on_idle" || i.Capacity != 0 {
		t.Errorf("a policy for idle queues alone: got %+v", i)
	}
	i = load(t, h, "masked", assemble(func(b *wt.Builder) {
		handshake(b)
		b.Each(abi.OnHead)
		b.Has(abi.ExportHooks, wt.I64(1<<abi.OnHead|1<<60))
	}), Options{})
	if strings.Join(i.Hooks, " ") != "on_head" || i.Capacity != 8 {
		t.Errorf("a policy that chooses: got %+v", i)
	}
	i = load(t, h, "defaults", ttl(1), Options{})
	if i.Strategy != "wasm/defaults" || i.Origin != Loaded || !i.Loaded || i.MaxFuel != 1_320_000 || i.WorstPause.Microseconds() != 1320 || i.Breaker != "closed" ||
		i.Slots != 1 || i.Instances != 1 || i.Memory != 65536 || i.InitFuel <= 0 {
		t.Errorf("got %+v", i)
	}
}

// The configuration lies in the buffer when the policy is configured, and the
// functions know it, too.
func TestConfiguration(t *testing.T) {
	module := assemble(func(b *wt.Builder) {
		number, text, fail := b.Host("config_i64"), b.Host("config_str"), b.Host("fail")
		b.Has(abi.Name, wt.I32(8))
		b.Has(abi.ExportBuffer, wt.I32(wt.Buffer))
		b.Each(abi.OnEnqueue)
		said := []byte{}
		say := func(code ...[]byte) { said = append(said, slices.Concat(code...)...) }
		check := func(want int64, code ...[]byte) { // refuse unless the i64 is the one
			say(slices.Concat(code...), wt.I64(want), wt.I64Sub, wt.I64Eqz, wt.I32Eqz,
				wt.If(wt.LocalGet(0), wt.Drop, wt.I32(wt.Buffer), wt.LocalGet(0), wt.Call(fail), wt.I32(-1), wt.Return))
		}
		check(5, b.Text(16, "n"), wt.I64(9), wt.Call(number))
		check(9, b.Text(32, "m"), wt.I64(9), wt.Call(number))
		check(-2, b.Text(48, "deep.digits"), wt.I64(9), wt.Call(number))
		check(4, b.Text(64, "yes"), wt.I32(128), wt.I32(10), wt.Call(text), wt.I64Extend) // "true"
		check(0xffff_ffff, b.Text(80, "no"), wt.I32(128), wt.I32(10), wt.Call(text), wt.I64Extend)
		check(7, b.Text(96, "list"), wt.I32(128), wt.I32(6), wt.Call(text), wt.I64Extend) // [1,"a"] is too long
		check('t', wt.I32(128), wt.I32Load8U(0), wt.I64Extend)                            // so this is still there
		check('{', wt.I32(wt.Buffer), wt.I32Load8U(0), wt.I64Extend)
		b.Has(abi.ExportConfigure, said, wt.I32(0))
	})
	h := open(t, 1, Env{})
	load(t, h, "x", module, Options{Config: []byte(`{"n":5,"deep":{"digits":"-2"},"yes":true,"list":[1,"a"]}`)})
	if _, err := h.Load("x", module, Options{Config: []byte(` {"n": 6}`)}); err == nil || !strings.HasSuffix(err.Error(), `the policy refuses its configuration: {"n": 6}`) {
		t.Errorf("got %v", err)
	}
	if i, _ := h.Info("x"); string(i.Config) != `{"n":5,"deep":{"digits":"-2"},"yes":true,"list":[1,"a"]}` {
		t.Errorf("a configuration that was refused is in force: %s", i.Config)
	}
}
