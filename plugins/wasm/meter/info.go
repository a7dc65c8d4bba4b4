package meter

import (
	"fmt"
	"strconv"
	"strings"
)

// Info has a module's declarations. Strings in it are copies.
type Info struct {
	Imports []Import
	// Exports are the module's own exports, without the fuel.
	Exports []Export
	// Memory is the module's memory, imported or its own, with the maximum after the rewrite; nil if it has none.
	Memory *Limits
	// Start reports whether instantiating the module executes a function.
	Start bool
	// Go reports whether the custom section "producers" names Go's compiler.
	Go bool
	// Functions, Tables and Globals count the module's, imported ones included.
	Functions, Tables, Globals int
}

// Import is an import of a module.
type Import struct {
	Module, Name string
	Type         Type
}

// Export is an export of a module.
type Export struct {
	Name string
	Type Type
}

// Kind is the kind of an import or export.
type Kind byte

// The kinds, numbered as in the binary format.
const (
	Func Kind = iota
	Table
	Memory
	Global
)

func (k Kind) String() string {
	switch k {
	case Func:
		return "func"
	case Table:
		return "table"
	case Memory:
		return "memory"
	case Global:
		return "global"
	}
	return fmt.Sprintf("kind %#x", byte(k))
}

// ValueType is the type of a parameter, a result, a global or a table's elements,
// numbered as in the binary format.
type ValueType byte

// The value types.
const (
	I32       ValueType = 0x7f
	I64       ValueType = 0x7e
	F32       ValueType = 0x7d
	F64       ValueType = 0x7c
	V128      ValueType = 0x7b
	FuncRef   ValueType = 0x70
	ExternRef ValueType = 0x6f
)

func (v ValueType) String() string {
	switch v {
	case I32:
		return "i32"
	case I64:
		return "i64"
	case F32:
		return "f32"
	case F64:
		return "f64"
	case V128:
		return "v128"
	case FuncRef:
		return "funcref"
	case ExternRef:
		return "externref"
	}
	return fmt.Sprintf("type %#x", byte(v))
}

// Type is the type of an import or export. Kind decides which fields are used.
type Type struct {
	Kind            Kind
	Params, Results []ValueType // of a function
	Value           ValueType   // of a global or a table's elements
	Mutable         bool        // of a global
	Limits          Limits      // of a memory or table
}

// Limits are the sizes of a memory, in pages of 64 KiB, or a table, in elements.
type Limits struct {
	Min, Max uint32
	// Bounded reports whether Max applies.
	Bounded bool
}

// String returns the type as the text format writes it: (func (param i64 i32) (result i32)).
func (t Type) String() string {
	switch t.Kind {
	case Func:
		return "(func" + list("param", t.Params) + list("result", t.Results) + ")"
	case Global:
		if t.Mutable {
			return "(global (mut " + t.Value.String() + "))"
		}
		return "(global " + t.Value.String() + ")"
	case Table:
		return "(table " + t.Limits.String() + " " + t.Value.String() + ")"
	case Memory:
		return "(memory " + t.Limits.String() + ")"
	}
	return t.Kind.String()
}

func list(what string, types []ValueType) string {
	if len(types) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString(" (" + what)
	for _, t := range types {
		b.WriteString(" " + t.String())
	}
	return b.String() + ")"
}

func (l Limits) String() string {
	if l.Bounded {
		return fmt.Sprintf("%d %d", l.Min, l.Max)
	}
	return strconv.FormatUint(uint64(l.Min), 10)
}

// clamp lowers the maximum to limit.
func (l Limits) clamp(limit uint32) Limits {
	if !l.Bounded || l.Max > limit {
		l.Max = limit
	}
	l.Bounded = true
	return l
}
