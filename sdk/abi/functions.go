package abi

import "strings"

// Value is the type of a parameter or a result, numbered as in the binary
// format of WebAssembly.
type Value byte

// The types.
const (
	I32 Value = 0x7f
	I64 Value = 0x7e
)

func (v Value) String() string {
	if v == I64 {
		return "i64"
	}
	return "i32"
}

// Signature is the type of a function.
type Signature struct{ Params, Results []Value }

// String returns the type in WebAssembly's text format.
func (s Signature) String() string {
	return "(func" + list("param", s.Params) + list("result", s.Results) + ")"
}

func list(what string, types []Value) string {
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

// Function is a function that a module can import from the broker, or export to
// it.
type Function struct {
	Name string
	Signature
	Grant Grant // needed to import it
}

func function(name string, grant Grant, params, results string) Function {
	return Function{Name: name, Grant: grant, Signature: Signature{values(params), values(results)}}
}

// values reads types written as digits: 4 for i32, 8 for i64, after their bytes.
func values(digits string) []Value {
	vs := make([]Value, len(digits))
	for i := range vs {
		vs[i] = I32
		if digits[i] == '8' {
			vs[i] = I64
		}
	}
	return vs
}

// Imports returns the functions that a module may import from the module [Name].
func Imports() []Function {
	return []Function{
		function("log", Always, "444", ""),              // level, text
		function("log_enabled", Always, "4", "4"),       // level
		function("fail", Always, "44", ""),              // text
		function("config_i64", Always, "448", "8"),      // name, default
		function("config_str", Always, "4444", "4"),     // name, buffer, limit
		function("queue_arg_i64", Always, "4448", "8"),  // queue, name, default
		function("queue_arg_str", Always, "44444", "4"), // queue, name, buffer, limit
		function("header_i64", Headers, "4448", "8"),    // message, name, default
		function("header_str", Headers, "44444", "4"),   // message, name, buffer, limit
		function("prop_str", Headers, "4444", "4"),      // message, property, buffer, limit
		function("body", Body, "4444", "4"),             // message, offset, buffer, limit
		function("counter_add", Metrics, "448", ""),     // name, delta
		function("trace_attr", Trace, "44444", ""),      // message, key, value
		function("hold", Hold, "48", ""),                // message, until
	}
}

// Exports returns the functions that a module may export to the broker; it must export [Name].
func Exports() []Function {
	return []Function{
		function(ExportInitialize, Always, "", ""),
		function(Name, Always, "", "4"),             // messages at once, 0 to MaxCapacity
		function(ExportBuffer, Always, "4", "4"),    // bytes; pointer, 0 = refused
		function(ExportConfigure, Always, "4", "4"), // bytes of JSON in the buffer; negative = refused
		function(ExportHooks, Always, "", "8"),      // mask of hooks
		function(Deadline.String(), Always, "888444", "8"),
		function(OnEnqueue.String(), Always, "84", "4"), // now, messages; negative = failed
		function(OnDeadline.String(), Always, "84", "4"),
		function(OnHead.String(), Always, "84", "4"),
		function(OnRequeue.String(), Always, "84", "4"),
		function(OnIdle.String(), Always, "88444", "8"),
	}
}
