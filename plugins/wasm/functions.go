package wasm

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"github.com/tetratelabs/wazero/api"

	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
)

// hostFunction is a function that modules can import. Its parameters are on the stack, and the result replaces them. The upper half
// of an i32 is undefined.
type hostFunction struct {
	abi.Function
	call func(in *instance, stack []uint64)
}

// function returns f for wazero. Each instance is called with a context that leads to the instance.
func (f hostFunction) function() api.GoModuleFunction {
	return api.GoModuleFunc(func(ctx context.Context, _ api.Module, stack []uint64) {
		in, _ := ctx.Value(instanceKey{}).(*instance)
		f.call(in, stack)
	})
}

func valueTypes(vs []abi.Value) []api.ValueType {
	types := make([]api.ValueType, len(vs))
	for i, v := range vs {
		types[i] = api.ValueType(v)
	}
	return types
}

// policyFunctions returns the functions of [abi.Imports].
func policyFunctions() []hostFunction {
	calls := map[string]func(*instance, []uint64){
		"log":           (*instance).hostLog,
		"log_enabled":   (*instance).hostLogEnabled,
		"fail":          (*instance).hostFail,
		"config_i64":    (*instance).hostConfigInt,
		"config_str":    (*instance).hostConfigText,
		"queue_arg_i64": (*instance).hostQueueInt,
		"queue_arg_str": (*instance).hostQueueText,
		"header_i64":    (*instance).hostHeaderInt,
		"header_str":    (*instance).hostHeaderText,
		"prop_str":      (*instance).hostProperty,
		"body":          (*instance).hostBody,
		"counter_add":   (*instance).hostCount,
		"trace_attr":    (*instance).hostTrace,
		"hold":          (*instance).hostHold,
	}
	var all []hostFunction
	for _, f := range abi.Imports() {
		all = append(all, hostFunction{f, calls[f.Name]})
	}
	return all
}

// misuse is the panic for a wrong use of a host function; the instance traps.
type misuse string

func (m misuse) Error() string { return string(m) }

// bytes returns part of the guest's memory, valid until the guest continues. It
// charges the fuel that the guest would need to access it.
func (in *instance) bytes(what string, at, n uint64) []byte {
	if uint32(n) == 0 {
		return nil // at any address
	}
	b, ok := in.memory.Read(uint32(at), uint32(n))
	if !ok {
		panic(misuse(fmt.Sprintf("%s: %d bytes at %#x are not in its memory of %d bytes", what, uint32(n), uint32(at), in.memory.Size())))
	}
	in.charge(len(b))
	return b
}

// name returns a name from the guest, in the guest's memory.
func (in *instance) name(what string, at, n uint64) string {
	b := in.bytes(what, at, uint64(min(uint32(n), abi.MaxName+1)))
	if len(b) > abi.MaxName {
		panic(misuse(fmt.Sprintf("%s: a name of %d bytes; accepted are up to %d", what, uint32(n), abi.MaxName)))
	}
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// text returns a copy of a text from the guest, truncated to abi.MaxText.
func (in *instance) text(what string, at, n uint64) string {
	return printable(in.bytes(what, at, uint64(min(uint32(n), abi.MaxText))))
}

// charge takes fuel for processing some bytes. Without enough fuel the guest traps.
func (in *instance) charge(bytes int) {
	left := int64(in.fuel.Get()) - int64(bytes)/bytesPerFuel
	in.fuel.Set(uint64(left))
	if left < 0 {
		panic(misuse("fuel exhausted"))
	}
}

// bytesPerFuel is the number of bytes that are copied or searched for one unit of fuel.
const bytesPerFuel = 8

// put writes a text into the guest's buffer, or nothing if it exceeds limit. It
// returns the text's length, or -1 if there is no text.
func (in *instance) put(what string, b []byte, found bool, at, limit uint64) uint64 {
	if !found {
		return minusOne32
	}
	if len(b) <= int(uint32(limit)) {
		copy(in.bytes(what, at, uint64(len(b))), b)
	}
	return uint64(len(b))
}

// minusOne32 is -1 as an i32.
const minusOne32 = 0xffff_ffff

// message returns a message of the current call.
func (in *instance) message(what string, index uint64) *hook.Message {
	i := int(uint32(index))
	if i >= len(in.batch) {
		panic(misuse(fmt.Sprintf("%s: there is no message %d in a call with %d", what, i, len(in.batch))))
	}
	return &in.batch[i]
}

func (in *instance) hostLog(stack []uint64) {
	level, text := int(int32(stack[0])), in.text("log", stack[1], stack[2])
	in.version.policy.report.guest(in.now, slogLevel(level), text)
}

func (in *instance) hostLogEnabled(stack []uint64) {
	level := int(int32(stack[0]))
	stack[0] = 0
	if in.version.policy.report.enabled(slogLevel(level)) {
		stack[0] = 1
	}
}

func (in *instance) hostFail(stack []uint64) {
	in.complaint = in.text("fail", stack[0], stack[1])
}

func (in *instance) hostConfigInt(stack []uint64) {
	name := in.name("config_i64", stack[0], stack[1])
	n := int64(stack[2])
	if v, ok := in.version.setting(in.now, name); ok {
		whole, ok := hook.WholeText([]byte(v))
		if !ok && in.configMistake == "" {
			in.configMistake = fmt.Sprintf("config: %s: %q is not a whole number%s", name, v, tooLarge(v))
		}
		if ok {
			n = whole
		}
	}
	stack[0] = uint64(n)
}

// tooLarge returns the rest of an error about an integer of more than 64 bits.
func tooLarge(s string) string {
	if strings.Trim(s, "-0123456789") == "" {
		return " of 64 bits"
	}
	return ""
}

func (in *instance) hostConfigText(stack []uint64) {
	v, ok := in.version.setting(in.now, in.name("config_str", stack[0], stack[1]))
	stack[0] = in.put("config_str", unsafe.Slice(unsafe.StringData(v), len(v)), ok, stack[2], stack[3])
}

// queueSetting returns a setting of the call's queue, by its name, or by the name of the queue argument with x- before it.
func (in *instance) queueSetting(what string, queue, at, n uint64) (any, bool) {
	name := in.name(what, at, n)
	if uint32(queue) != 0 || in.queue == nil {
		panic(misuse(fmt.Sprintf("%s: there is no queue %d", what, uint32(queue))))
	}
	if len(name) > 2 && name[:2] == "x-" {
		name = name[2:]
	}
	return in.queue.Setting(name)
}

func (in *instance) hostQueueInt(stack []uint64) {
	v, _ := in.queueSetting("queue_arg_i64", stack[0], stack[1], stack[2])
	n, ok := hook.Int(v)
	if b, isBool := v.(bool); isBool {
		ok = true
		if b {
			n = 1
		}
	}
	if !ok {
		n = int64(stack[3])
	}
	stack[0] = uint64(n)
}

func (in *instance) hostQueueText(stack []uint64) {
	v, _ := in.queueSetting("queue_arg_str", stack[0], stack[1], stack[2])
	s, ok := v.(string)
	stack[0] = in.put("queue_arg_str", unsafe.Slice(unsafe.StringData(s), len(s)), ok, stack[3], stack[4])
}

// searchable returns a message, and charges fuel for searching its headers.
func (in *instance) searchable(what string, index uint64) *hook.Message {
	m := in.message(what, index)
	in.charge(bytesPerFuel * len(m.Part(hook.PartHeaders)))
	return m
}

func (in *instance) hostHeaderInt(stack []uint64) {
	m, name := in.searchable("header_i64", stack[0]), in.name("header_i64", stack[1], stack[2])
	n, ok := m.HeaderInt(name)
	if !ok {
		n = int64(stack[3])
	}
	stack[0] = uint64(n)
}

func (in *instance) hostHeaderText(stack []uint64) {
	m, name := in.searchable("header_str", stack[0]), in.name("header_str", stack[1], stack[2])
	b, ok := m.HeaderText(name)
	stack[0] = in.put("header_str", b, ok, stack[3], stack[4])
}

// properties are the properties of prop_str, by number.
var properties = [...]hook.Part{
	abi.PropExchange: hook.PartExchange, abi.PropRoutingKey: hook.PartRoutingKey, abi.PropMessageID: hook.PartMessageID,
	abi.PropType: hook.PartType, abi.PropAppID: hook.PartAppID, abi.PropUserID: hook.PartUserID,
}

func (in *instance) hostProperty(stack []uint64) {
	p := uint32(stack[1])
	if p < abi.PropExchange || p > abi.PropUserID {
		panic(misuse(fmt.Sprintf("prop_str: there is no property %d; accepted are %d to %d", p, abi.PropExchange, abi.PropUserID)))
	}
	var b []byte
	if p <= abi.PropRoutingKey {
		b = in.message("prop_str", stack[0]).Part(properties[p])
	} else {
		b = in.searchable("prop_str", stack[0]).Part(properties[p])
	}
	stack[0] = in.put("prop_str", b, b != nil || p <= abi.PropRoutingKey, stack[2], stack[3])
}

// hostBody copies a body from an offset on, up to the limit.
func (in *instance) hostBody(stack []uint64) {
	b := in.message("body", stack[0]).Part(hook.PartBody)
	b = b[min(uint64(uint32(stack[1])), uint64(len(b))):]
	b = b[:min(uint64(uint32(stack[3])), uint64(len(b)))]
	if len(b) > 0 {
		copy(in.bytes("body", stack[2], uint64(len(b))), b)
	}
	stack[0] = uint64(len(b))
}

func (in *instance) hostCount(stack []uint64) {
	name, delta := in.name("counter_add", stack[0], stack[1]), int64(stack[2])
	c, ok := in.counters[name]
	if !ok {
		name = printable([]byte(name)) // a copy
		c = in.version.policy.counters.counter(name)
		if c == nil {
			panic(misuse(fmt.Sprintf("counter_add: %q is one name too many; accepted are %d", name, abi.MaxCounters)))
		}
		in.counters[name] = c
	}
	c.Add(delta)
}

func (in *instance) hostTrace(stack []uint64) {
	m := in.message("trace_attr", stack[0])
	key, value := in.text("trace_attr", stack[1], uint64(min(uint32(stack[2]), abi.MaxName))), in.text("trace_attr", stack[3], stack[4])
	if in.watch.attribute(int(uint32(stack[0])), m, key, value) {
		return
	}
	p := in.version.policy
	if p.standIn {
		return
	}
	if p.host.env.Trace != nil {
		p.host.env.Trace(p.name, m, key, value)
		return
	}
	p.report.trace(in.now, m, key, value)
}

// granted reports whether a policy has a grant.
func (v *version) granted(g abi.Grant) bool { return slices.Contains(v.options.Grants, string(g)) }
