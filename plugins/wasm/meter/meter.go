// Package meter rewrites a WebAssembly module so that it pays for what it
// executes and stops when it cannot: the only way to bound a guest that runs
// inside a host goroutine.
//
// # Fuel
//
// The rewritten module has one more global, a mutable i64 that it exports
// ([Options.Global]): the fuel that is left. The host sets it before a call; the
// guest cannot name it. The module takes units off it before it executes what
// they pay for, and when the fuel goes below zero it executes unreachable. Fuel
// below zero therefore means exhausted, and any other trap leaves it at zero or
// more. An exhausted instance has stopped in the middle of something and is of
// no further use.
//
// What is charged depends on the module and its input alone, never on the engine,
// the machine or the time: the same call uses the same fuel everywhere.
//
// # What costs what
//
//   - Every instruction costs one unit; block, loop, else, end and nop generate
//     no code and cost nothing; a few slow ones cost more (see weights.go).
//   - Entering a function costs some units and one for each of its locals, which bounds
//     the stack as well as the time of a recursion.
//   - A call of an import costs [Options.HostCall] units. If the module can reach
//     an import through a table, every call_indirect costs that much.
//   - memory.fill, memory.copy and memory.init cost one unit for eight bytes,
//     table.fill, table.copy, table.init and table.grow one for each element, and
//     memory.grow 8192 for a page, all in addition and before anything is
//     touched. Lengths are unsigned and the sums fit: a length of 2^32-1
//     exhausts any sensible fuel and never wraps it.
//
// # Where it is charged
//
// At points. There is one at the entry of each function and at the head of each
// loop, so nothing unbounded lies between two. Elsewhere instructions are put in
// classes: a class is code that executes exactly as often as its beginning. A
// branch starts a class, and so do the arms of an if; where branches meet again
// and none has left further out, the class from before goes on. A class has
// a point at its beginning, unless it is so cheap that the class it depends on
// can pay for it as well: up to [foldLimit] units of such code may hang on
// one point, and none ever hangs on a point outside its loop.
//
// So fuel is never less than what was executed, and never more than that plus
// foldLimit units for each point that was passed. A straight
// loop pays once for each round, a function without branches once for each call.
//
// # What does not get through
//
// Every feature of the WebAssembly 2.0 core specification is metered. What cannot
// be (threads, tail calls, exceptions, garbage collection, memory64, several
// memories, anything unknown) is refused with an error that names it, the
// function and the offset. So is whatever could be read in two ways, such as
// an overlong opcode: what is metered here and what the engine executes must be
// the same instructions. Engines trust the counts in a module when they
// allocate; Rewrite checks them against limits first, so it should see a module
// before the engine does. Types of operands are left to the engine's validator:
// a module is valid after the rewrite if and only if it was valid before.
//
// Custom sections are dropped, since their offsets would be wrong, but for the
// functions' names, which stack traces show.
//
// There is no limit on the depth of calls beyond what fuel buys. A counter of its own
// would cost every call as much as metering does, while a recursion pays for
// entry and locals of every frame: it is out of fuel before its stack is large.
package meter

import "fmt"

// Options says how a module is metered and what it may claim. Zero fields mean
// the defaults, but for Fuel.
type Options struct {
	// Fuel is the fuel of a fresh instance, 0 to [MaxFuel]: what its start function,
	// which runs before a host could set any, may use. 0: a start function traps.
	Fuel int64
	// Global is the name under which the fuel is exported; "" = [DefaultGlobal].
	// A module that exports something by that name is refused.
	Global string
	// HostCall is what a call of an import costs, in units; 0 = 256.
	HostCall uint32
	// ModuleBytes is the size of the largest module accepted; 0 = 8 MiB.
	ModuleBytes int
	// MemoryPages is how far a module's memory may grow, in pages of 64 KiB, whatever
	// maximum it declares; 0 = 256 (16 MiB). One that starts larger is refused.
	MemoryPages uint32
	// TableElements is how far each of a module's tables may grow, whatever
	// maximum it declares, and how large they may be together at the start; 0 = 65536.
	TableElements uint32

	// exact gives each class a point of its own: fuel is then what was executed.
	exact bool
}

const (
	// DefaultGlobal is the name of the exported fuel unless [Options.Global] gives another.
	DefaultGlobal = "curfew_fuel"
	// MaxFuel is the most fuel that may be given: no single charge can then wrap it.
	MaxFuel = 1 << 62
)

// foldLimit is how many units of code that may not execute one point pays for in advance.
const foldLimit = 8

// withDefaults returns o with zero fields filled in, or an error about those out of range.
func (o Options) withDefaults() (Options, error) {
	if o.Fuel < 0 || o.Fuel > MaxFuel {
		return o, fmt.Errorf("fuel: %d is out of range; accepted are 0 to %d", o.Fuel, int64(MaxFuel))
	}
	if o.MemoryPages > 65536 {
		return o, fmt.Errorf("memory: %d pages are out of range; accepted are 1 to 65536", o.MemoryPages)
	}
	if o.Global == "" {
		o.Global = DefaultGlobal
	}
	setDefault(&o.HostCall, 256)
	setDefault(&o.ModuleBytes, 8<<20)
	setDefault(&o.MemoryPages, 256)
	setDefault(&o.TableElements, 65536)
	return o, nil
}

func setDefault[T uint32 | int](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// Error says what is wrong with a module, and where.
type Error struct {
	// Function is the index of the function in whose code it is, imports counted;
	// -1 outside of code.
	Function int
	// Offset is where in the module it is, in bytes.
	Offset int
	Reason string
}

func (e *Error) Error() string {
	if e.Function < 0 {
		return fmt.Sprintf("offset %#x: %s", e.Offset, e.Reason)
	}
	return fmt.Sprintf("function %d, offset %#x: %s", e.Function, e.Offset, e.Reason)
}

// Rewrite returns a metered copy of a module in the binary format, and what the
// module declares, which is read from its sections without executing anything. An error about the
// module is an [*Error]. Rewrite keeps nothing of module and does not change it.
func Rewrite(module []byte, o Options) (metered []byte, info Info, err error) {
	o, err = o.withDefaults()
	if err != nil {
		return nil, Info{}, err
	}
	if len(module) > o.ModuleBytes {
		return nil, Info{}, fmt.Errorf("module of %d bytes is too large; accepted are up to %d", len(module), o.ModuleBytes)
	}
	m, err := parse(module, o)
	if err != nil {
		return nil, Info{}, err
	}
	code, err := m.meterCode()
	if err != nil {
		return nil, Info{}, err
	}
	return m.assemble(code), m.info, nil
}
