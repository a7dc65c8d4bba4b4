// Package meter rewrites a WebAssembly module so that it counts the instructions it
// executes and traps when its fuel is used up. This is the only way to limit a guest that
// runs inside a host goroutine.
//
// # Fuel
//
// The rewritten module has one more global, a mutable i64 that it exports
// ([Options.Global]): the remaining fuel. The host sets it before a call; the guest cannot
// access it. The module subtracts the price of instructions before it executes them, and
// executes unreachable when the fuel falls below zero. Negative fuel therefore means that
// it is exhausted; any other trap leaves it at zero or more. An exhausted instance has
// stopped at an arbitrary point and must not be used again.
//
// Charges depend only on the module and its input, never on the engine, the machine or the time: the same call uses the same fuel
// everywhere.
//
// # Prices
//
//   - Every instruction costs one unit; block, loop, else, end and nop generate
//     no code and cost nothing; a few slow ones cost more (see weights.go).
//   - Entering a function costs some units and one for each of its locals, which bounds
//     the stack as well as the time of a recursion.
//   - A call of an import costs [Options.HostCall] units. If the module can reach
//     an import through a table, every call_indirect costs that much.
//   - memory.fill, memory.copy and memory.init cost one unit for eight bytes,
//     table.fill, table.copy, table.init and table.grow one for each element, and
//     memory.grow 8192 for a page, all in addition and before memory is
//     accessed. Lengths are unsigned and the sums fit: a length of 2^32-1
//     exhausts any sensible fuel and never wraps it.
//
// # Charge points
//
// There is a point at the entry of each function and at the head of each loop, so
// the code between two points is bounded. Other instructions are divided into
// classes: a class is code that executes exactly as often as its beginning. A
// branch starts a class, and so do the arms of an if. Where branches merge and
// none has left to an outer frame, the class from before continues. A class has a
// point at its beginning, unless it is cheap enough for the class that it depends
// on to pay for it: up to [foldLimit] units of such code may be charged at one
// point, and never at a point outside its loop.
//
// So the charge is never less than the price of the executed instructions, and exceeds it by at most foldLimit units for each point that
// was passed. A loop without branches is charged once per iteration, a function without branches once per call.
//
// # Refused modules
//
// Every feature of the WebAssembly 2.0 core specification is metered. Other features (threads, tail calls, exceptions, garbage collection,
// memory64, several memories, anything unknown) are refused with an error that names the feature, the function and the offset. So is any
// encoding that could be read in two ways, such as an overlong opcode: the metered and the executed instructions must be the
// same. Engines trust the counts in a module when they allocate; Rewrite checks them against limits first, so it should see a module
// before the engine does. Checking operand types is left to the engine's validator: a module is valid after the rewrite if and only if it
// was valid before.
//
// Custom sections are dropped, because their offsets would be wrong. The functions' names are kept, because stack traces show them.
//
// Only the fuel limits the depth of calls. A separate counter would cost every call as much as metering does. A recursion is charged for
// the entry and the locals of every frame, so it runs out of fuel before its stack is large.
package meter

import "fmt"

// Options configure the metering and limit the module. Zero fields mean the
// defaults, except Fuel.
type Options struct {
	// Fuel is the fuel of a new instance, 0 to [MaxFuel], for its start function, which
	// runs before the host can set any. 0: a start function traps.
	Fuel int64
	// Global is the name under which the fuel is exported; "" = [DefaultGlobal]. A module with an export of that name is refused.
	Global string
	// HostCall is the price of calling an import, in units; 0 = 256.
	HostCall uint32
	// ModuleBytes is the maximum size of a module; 0 = 8 MiB.
	ModuleBytes int
	// MemoryPages is how far a module's memory may grow, in pages of 64 KiB, whatever maximum it declares; 0 = 256 (16 MiB). A module
	// that starts with more is refused.
	MemoryPages uint32
	// TableElements is how far each of a module's tables may grow, whatever maximum it
	// declares, and how large they may be together at the start; 0 = 65536.
	TableElements uint32

	// exact gives each class its own point, so that the charge equals the price of the executed instructions.
	exact bool
}

const (
	// DefaultGlobal is the name of the exported fuel unless [Options.Global] sets another.
	DefaultGlobal = "curfew_fuel"
	// MaxFuel is the highest fuel that may be set: no single charge can then make it wrap around.
	MaxFuel = 1 << 62
)

// foldLimit bounds the units of conditional code that one point charges in advance.
const foldLimit = 8

// withDefaults returns o with zero fields filled in, or an error for fields out of range.
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

// Error describes a fault of a module and its position.
type Error struct {
	// Function is the index of the function whose code has the fault, counting imports; -1 outside of code.
	Function int
	// Offset is the position in the module, in bytes.
	Offset int
	Reason string
}

func (e *Error) Error() string {
	if e.Function < 0 {
		return fmt.Sprintf("offset %#x: %s", e.Offset, e.Reason)
	}
	return fmt.Sprintf("function %d, offset %#x: %s", e.Function, e.Offset, e.Reason)
}

// Rewrite returns a metered copy of a module in the binary format, and the module's declarations, without executing anything. An error
// about the module is an [*Error]. Rewrite neither retains nor changes module.
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
