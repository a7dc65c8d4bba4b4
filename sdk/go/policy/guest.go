//go:build wasip1

package policy

import "unsafe"

// The functions that the broker calls. All hooks are exported, whatever the policy
// is; policy_hooks says which of them it has.

//go:wasmexport policy_v1
func exportVersion() int32 { return capacity }

// exportBuffer returns memory for the records and verdicts of a call, and for the
// configuration, which the SDK does not read there: see ConfigInt and ConfigText.
//
//go:wasmexport policy_buf
func exportBuffer(bytes int32) unsafe.Pointer {
	if uint32(bytes) > uint32(unsafe.Sizeof(buffer)) {
		return nil
	}
	return unsafe.Pointer(&buffer)
}

//go:wasmexport policy_hooks
func exportHooks() int64 { return registered.hooks }

//go:wasmexport policy_configure
func exportConfigure(int32) int32 {
	if registered.configure == nil {
		return 0
	}
	if err := registered.configure(); err != nil {
		hostFail(err.Error())
		return -1
	}
	return 0
}

//go:wasmexport on_enqueue
func exportEnqueue(now int64, n int32) int32 {
	each(now, int(n), registered.onEnqueue)
	return 0
}

//go:wasmexport on_deadline
func exportDeadline(now int64, n int32) int32 {
	each(now, int(n), registered.onDeadline)
	return 0
}

//go:wasmexport on_head
func exportHead(now int64, n int32) int32 {
	each(now, int(n), registered.onHead)
	return 0
}

//go:wasmexport on_requeue
func exportRequeue(now int64, n int32) int32 {
	each(now, int(n), registered.onRequeue)
	return 0
}

//go:wasmexport on_idle
func exportIdle(now, idle int64, ready, unacked, consumers int32) int64 {
	return registered.onIdle(now, idle, int(uint32(ready)), int(uint32(unacked)), int(uint32(consumers)))
}

// The broker's functions.

//go:wasmimport policy_v1 log
func hostLog(level int32, text string)

//go:wasmimport policy_v1 log_enabled
func hostLogEnabled(level int32) int32

//go:wasmimport policy_v1 fail
func hostFail(text string)

//go:wasmimport policy_v1 config_i64
func hostConfigInt(name string, otherwise int64) int64

//go:wasmimport policy_v1 config_str
func hostConfigText(name string, buf unsafe.Pointer, limit uint32) int32

//go:wasmimport policy_v1 queue_arg_i64
func hostQueueInt(queue uint32, name string, otherwise int64) int64

//go:wasmimport policy_v1 queue_arg_str
func hostQueueText(queue uint32, name string, buf unsafe.Pointer, limit uint32) int32

//go:wasmimport policy_v1 header_i64
func hostHeaderInt(msg uint32, name string, otherwise int64) int64

//go:wasmimport policy_v1 header_str
func hostHeaderText(msg uint32, name string, buf unsafe.Pointer, limit uint32) int32

//go:wasmimport policy_v1 prop_str
func hostProperty(msg, property uint32, buf unsafe.Pointer, limit uint32) int32

//go:wasmimport policy_v1 body
func hostBody(msg, offset uint32, buf unsafe.Pointer, limit uint32) int32

//go:wasmimport policy_v1 counter_add
func hostCount(name string, delta int64)

//go:wasmimport policy_v1 trace_attr
func hostTrace(msg uint32, key, value string)

//go:wasmimport policy_v1 hold
func hostHold(msg uint32, until int64)
