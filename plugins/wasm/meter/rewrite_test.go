package meter

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero/api"
)

// kitchenSink is a module that has every kind of import, export, section and segment.
func kitchenSink() assembly {
	return assembly{
		imports: []hostFunction{{"host", "f", []ValueType{I32, F64}, []ValueType{I64}}, {"host", "g", nil, nil}},
		functions: []function{
			{export: "run", params: []ValueType{I32, V128}, results: []ValueType{I32, F32}, body: join(get(0), f32(1))},
			{export: "start", body: join(opGlobalGet, 0, 0x1a)},
			{export: "refs", params: []ValueType{ExternRef}, results: []ValueType{FuncRef, ExternRef, I64}, body: join(opRefFunc, u32(1), get(0), i64(3))},
		},
		tables: [][]byte{join(FuncRef, 0, 3), join(ExternRef, 1, 1, 5)},
		memory: []byte{0, 2},
		globals: [][]byte{
			join(I64, 1, i64(7), opEnd), join(F32, 0, f32(1), opEnd), join(F64, 0, f64(1), opEnd), join(V128, 0, v128(1, 2), opEnd),
			join(FuncRef, 0, opRefFunc, 3, opEnd), join(ExternRef, 0, opRefNull, ExternRef, opEnd),
		},
		exports: [][]byte{
			join(named("memory"), Memory, 0), join(named("table"), Table, 1), join(named("global"), Global, 0), join(named("again"), Func, 0),
		},
		start: u32(3),
		elements: [][]byte{
			join(0, i32(0), opEnd, vector(u32(1), u32(2))), join(1, 0, vector(u32(1))), join(2, 0, i32(1), opEnd, 0, vector(u32(2))), join(3, 0, vector(u32(1))),
			join(4, i32(0), opEnd, vector(join(opRefFunc, 1, opEnd))), join(5, ExternRef, vector(join(opRefNull, ExternRef, opEnd))),
			join(6, 0, i32(2), opEnd, FuncRef, vector(join(opRefNull, FuncRef, opEnd))), join(7, FuncRef, vector(join(opRefFunc, 2, opEnd))),
		},
		data:      [][]byte{join(0, i32(1), opEnd, named("active")), join(1, named("passive")), join(2, 0, i32(1), opEnd, named("explicit"))},
		dataCount: true,
		customs:   [][]byte{join(named("producers"), "whatever"), nameSection(), join(named(".debug_info"), "stale offsets")},
	}
}

// nameSection names module, function 2 and a local.
func nameSection() []byte {
	return join(named("name"), section(0, named("hostile")), section(1, vector(join(2, named("the function")))), section(2, vector(join(2, vector(join(0, named("x")))))))
}

func TestInfo(t *testing.T) {
	_, info, err := Rewrite(kitchenSink().bytes(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, i := range info.Imports {
		lines = append(lines, "import "+i.Module+"."+i.Name+" "+i.Type.String())
	}
	for _, e := range info.Exports {
		lines = append(lines, "export "+e.Name+" "+e.Type.String())
	}
	want := []string{
		"import host.f (func (param i32 f64) (result i64))",
		"import host.g (func)",
		"export memory (memory 2 256)",
		"export table (table 1 5 externref)",
		"export global (global (mut i64))",
		"export again (func (param i32 f64) (result i64))",
		"export run (func (param i32 v128) (result i32 f32))",
		"export start (func)",
		"export refs (func (param externref) (result funcref externref i64))",
	}
	if !reflect.DeepEqual(lines, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	if want := (&Limits{Min: 2, Max: 256, Bounded: true}); !reflect.DeepEqual(info.Memory, want) {
		t.Errorf("memory: got %v, want %v", info.Memory, want)
	}
	if !info.Start || info.Functions != 5 || info.Tables != 2 || info.Globals != 6 {
		t.Errorf("got start %t, %d functions, %d tables, %d globals; want true, 5, 2, 6", info.Start, info.Functions, info.Tables, info.Globals)
	}
}

func TestImportsOfAllKinds(t *testing.T) {
	module := header(section(typeSection, vector(funcType(nil, nil))), section(importSection, vector(
		join(named("m"), named("f"), Func, 0), join(named("m"), named("t"), Table, FuncRef, 1, 1, 2),
		join(named("m"), named("mem"), Memory, 0, 1), join(named("m"), named("g"), Global, F64, 0),
	)))
	_, info, err := Rewrite(module, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, i := range info.Imports {
		got = append(got, i.Type.String())
	}
	if want := []string{"(func)", "(table 1 2 funcref)", "(memory 1)", "(global f64)"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// All custom sections are dropped, except the functions' names.
func TestCustomSections(t *testing.T) {
	out := string(metered(t, kitchenSink().bytes(), Options{}))
	for _, gone := range []string{"whatever", "hostile", "stale"} {
		if strings.Contains(out, gone) {
			t.Errorf("%q is still there", gone)
		}
	}
	m, err := engines[1].runtime(t).CompileModule(t.Context(), []byte(out))
	if err != nil {
		t.Fatal(err)
	}
	if got := m.ExportedFunctions()["run"].Name(); got != "the function" || m.Name() != "" {
		t.Errorf("function %q of module %q", got, m.Name())
	}
	bad := kitchenSink()
	bad.customs = [][]byte{join(named("name"), section(1, join(u32(1000), "x")))}
	if out := string(metered(t, bad.bytes(), Options{})); strings.Contains(out, "name") {
		t.Error("names that are malformed are still there")
	}
}

func TestFuelIsExported(t *testing.T) {
	a := one(function{body: join(opNop)})
	m := engines[0].load(t, metered(t, a.bytes(), Options{Fuel: 12345, Global: "other"}))
	g, ok := m.ExportedGlobal("other").(api.MutableGlobal)
	if !ok || g.Type() != api.ValueTypeI64 || g.Get() != 12345 {
		t.Errorf("got %v", g)
	}
}

// A start function runs before the host can set any fuel.
func TestStartUsesInitialFuel(t *testing.T) {
	a := one(function{body: join(opNop)})
	a.start = u32(0)
	m := engines[0].load(t, metered(t, a.bytes(), Options{Fuel: 1000}))
	if left := fuelOf(t, m).Get(); left != 1000-unitsEntry {
		t.Errorf("%d left of 1000", left)
	}
	if _, err := engines[0].runtime(t).Instantiate(t.Context(), metered(t, a.bytes(), Options{Fuel: unitsEntry - 1})); err == nil {
		t.Error("a start function has run without fuel")
	}
}

// The host decides how far a module may grow, whatever the module declares.
func TestGrowthIsClamped(t *testing.T) {
	a := one(function{params: []ValueType{I32}, results: []ValueType{I32}, body: join(get(0), opMemoryGrow, 0)})
	a.memory = join(1, 1, u32(65536))
	a.tables = [][]byte{join(FuncRef, 0, 1)}
	a.functions = append(a.functions, function{
		export: "table", params: []ValueType{I32}, results: []ValueType{I32}, body: join(opRefNull, FuncRef, get(0), opMisc, 15, 0),
	})
	m := engines[0].load(t, metered(t, a.bytes(), Options{Fuel: MaxFuel, MemoryPages: 5, TableElements: 7}))
	for _, tc := range []struct {
		function string
		by       uint64
		want     int32
	}{
		{"run", 5, -1},
		{"run", 4, 1},
		{"run", 1, -1},
		{"table", 7, -1},
		{"table", 6, 1},
		{"table", 1, -1},
	} {
		if got := call1(t.Context(), m, tc.function, tc.by); len(got.results) != 1 || int32(got.results[0]) != tc.want {
			t.Errorf("%s grown by %d: got %v, want %d", tc.function, tc.by, got, tc.want)
		}
	}
}

// spent returns the cost of a call of run(arg).
func spent(t *testing.T, m api.Module, arg uint64) int64 {
	t.Helper()
	fuel := fuelOf(t, m)
	fuel.Set(MaxFuel)
	if got := call1(t.Context(), m, "run", arg); got.trap != "" {
		t.Fatal(got.trap)
	}
	return int64(MaxFuel - fuel.Get())
}

func TestCosts(t *testing.T) {
	drop := 0x1a
	entry := int64(unitsEntry)
	for _, tc := range []struct {
		name string
		f    function
		arg  uint64
		want int64
	}{
		{"nothing", function{}, 0, entry},
		{"locals", function{locals: []ValueType{I32, V128, I64}}, 0, entry + 3},
		{"instructions", function{body: join(get(0), i32(1), 0x6a, drop)}, 0, entry + 4},
		{"division", function{body: join(get(0), i32(1), 0x6d, drop)}, 0, entry + 3 + unitsDivide},
		{"arm of an if", function{body: join(get(0), opIf, emptyBlock, rep(50, join(i32(1), drop)), opElse, rep(20, join(i32(1), drop)), opEnd)}, 0, entry + 2 + 40},
		{"other arm", function{body: join(get(0), opIf, emptyBlock, rep(50, join(i32(1), drop)), opElse, rep(20, join(i32(1), drop)), opEnd)}, 1, entry + 2 + 100},
		{"small arm, taken or not", function{body: join(get(0), opIf, emptyBlock, i32(1), drop, opEnd)}, 0, entry + 2 + 2},
		{"dead code", function{body: join(opReturn, rep(50, join(i32(1), drop)))}, 0, entry + 1},
		{"loop, ten rounds", function{
			body: join(opLoop, emptyBlock, get(0), i32(1), 0x6a, tee(0), i32(10), 0x48, opBrIf, 0, opEnd, i32(1), drop),
		}, 0, entry + 2 + 10*7},
		{"empty loop", function{body: join(opLoop, emptyBlock, opEnd)}, 0, entry + 1},
		{"fill of 800 bytes", function{body: join(i32(0), i32(0), get(0), opMisc, 11, 0)}, 800, entry + 3 + unitsBulk + 100},
		{"growth by no page", function{body: join(get(0), opMemoryGrow, 0, drop)}, 0, entry + 2 + unitsGrow},
		{"growth by a page", function{body: join(get(0), opMemoryGrow, 0, drop)}, 1, entry + 2 + unitsGrow + 8192},
	} {
		tc.f.params = []ValueType{I32}
		m := engines[0].load(t, metered(t, one(tc.f).bytes(), Options{}))
		if got := spent(t, m, tc.arg); got != tc.want {
			t.Errorf("%s: costs %d, want %d", tc.name, got, tc.want)
		}
	}
}

// An import costs as much through a table as directly.
func TestHostCallsCost(t *testing.T) {
	direct := join(opCall, 0)
	indirect := join(i32(0), opCallIndirect, 0, 0)
	for _, tc := range []struct {
		name     string
		body     []byte
		elements [][]byte
		want     int64
	}{
		{"direct", direct, nil, unitsCall + 1000},
		{"through the table", indirect, [][]byte{join(0, i32(0), opEnd, vector(u32(0)))}, 1 + unitsIndirect + 1000},
		{"of its own through the table", indirect, [][]byte{join(0, i32(0), opEnd, vector(u32(2)))}, 1 + unitsIndirect + unitsEntry},
	} {
		a := assembly{
			imports:   []hostFunction{{module: "host", name: "f"}},
			tables:    [][]byte{join(FuncRef, 0, 1)},
			functions: []function{{export: "run", body: tc.body}, {}},
			types:     nil,
			elements:  tc.elements,
		}
		r := engines[0].runtime(t)
		if _, err := r.NewHostModuleBuilder("host").NewFunctionBuilder().WithFunc(func() {}).Export("f").Instantiate(t.Context()); err != nil {
			t.Fatal(err)
		}
		m, err := r.Instantiate(t.Context(), metered(t, a.bytes(), Options{Fuel: MaxFuel, HostCall: 1000}))
		if err != nil {
			t.Fatal(err)
		}
		if got := call1(t.Context(), m, "run"); got.trap != "" {
			t.Fatal(got.trap)
		}
		if got := int64(MaxFuel-fuelOf(t, m).Get()) - unitsEntry; got != tc.want {
			t.Errorf("%s: costs %d, want %d", tc.name, got, tc.want)
		}
	}
}

// Rewriting is a function of its input.
func TestSameOutput(t *testing.T) {
	for _, module := range corpus() {
		first, _, err1 := Rewrite(module, Options{})
		second, _, err2 := Rewrite(module, Options{})
		if string(first) != string(second) || fmt.Sprint(err1) != fmt.Sprint(err2) {
			t.Errorf("%d and %d bytes, errors %v and %v", len(first), len(second), err1, err2)
		}
	}
}
