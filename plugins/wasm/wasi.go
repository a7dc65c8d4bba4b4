package wasm

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/sdk/abi"
)

// The error numbers and descriptors of WASI that are used.
const (
	wasiOK     = 0
	wasiBadFD  = 8
	wasiFault  = 21
	wasiNoSys  = 52
	wasiStdout = 1
	wasiStderr = 2
)

// wasiSignatures are the functions of WASI preview 1, with the sizes of their
// parameters.
var wasiSignatures = map[string]string{
	"args_get": "44", "args_sizes_get": "44", "clock_res_get": "44", "clock_time_get": "484", "environ_get": "44",
	"environ_sizes_get": "44", "fd_advise": "4884", "fd_allocate": "488", "fd_close": "4", "fd_datasync": "4",
	"fd_fdstat_get": "44", "fd_fdstat_set_flags": "44", "fd_fdstat_set_rights": "488", "fd_filestat_get": "44",
	"fd_filestat_set_size": "48", "fd_filestat_set_times": "4884", "fd_pread": "44484", "fd_prestat_get": "44",
	"fd_prestat_dir_name": "444", "fd_pwrite": "44484", "fd_read": "4444", "fd_readdir": "44484", "fd_renumber": "44",
	"fd_seek": "4844", "fd_sync": "4", "fd_tell": "44", "fd_write": "4444", "path_create_directory": "444",
	"path_filestat_get": "44444", "path_filestat_set_times": "4444884", "path_link": "4444444", "path_open": "444448844",
	"path_readlink": "444444", "path_remove_directory": "444", "path_rename": "444444", "path_symlink": "44444",
	"path_unlink_file": "444", "poll_oneoff": "4444", "proc_exit": "4", "proc_raise": "4", "random_get": "44",
	"sched_yield": "", "sock_accept": "444", "sock_recv": "444444", "sock_send": "44444", "sock_shutdown": "44",
}

// wasiCalls are the implemented functions, which programs compiled for an operating system need. All are deterministic. The others return
// ENOSYS.
var wasiCalls = map[string]func(in *instance, stack []uint64){
	"args_sizes_get":      wasiNothing,
	"args_get":            wasiDone,
	"environ_sizes_get":   wasiNothing,
	"environ_get":         wasiDone,
	"clock_time_get":      wasiClock,
	"clock_res_get":       wasiResolution,
	"random_get":          wasiRandom,
	"sched_yield":         wasiDone,
	"poll_oneoff":         wasiPoll,
	"proc_exit":           wasiExit,
	"fd_write":            wasiWrite,
	"fd_close":            wasiDone,
	"fd_fdstat_get":       wasiDescriptor,
	"fd_fdstat_set_flags": wasiDone,
	"fd_prestat_get":      wasiNoFile,
	"fd_prestat_dir_name": wasiNoFile,
}

func wasiFunction(name string) (abi.Function, bool) {
	params, ok := wasiSignatures[name]
	f := abi.Function{Name: name, Signature: abi.Signature{Params: make([]abi.Value, len(params)), Results: []abi.Value{abi.I32}}}
	if name == "proc_exit" {
		f.Results = nil
	}
	for i := range f.Params {
		f.Params[i] = abi.I32
		if params[i] == '8' {
			f.Params[i] = abi.I64
		}
	}
	return f, ok
}

func wasiFunctions() []hostFunction {
	var all []hostFunction
	for name := range wasiSignatures {
		f, _ := wasiFunction(name)
		call := wasiCalls[name]
		if call == nil {
			call = wasiAbsent
		}
		all = append(all, hostFunction{f, call})
	}
	slices.SortFunc(all, func(a, b hostFunction) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// respond sets the result to an error number. The stack is never empty, even
// without parameters.
func respond(stack []uint64, number uint64) { stack[0] = number }

func wasiDone(_ *instance, stack []uint64)   { respond(stack, wasiOK) }
func wasiAbsent(_ *instance, stack []uint64) { respond(stack, wasiNoSys) }
func wasiNoFile(_ *instance, stack []uint64) { respond(stack, wasiBadFD) }

// wasiNothing writes a count and a size of zero: no arguments, no environment.
func wasiNothing(in *instance, stack []uint64) {
	clear(in.bytes("wasi", stack[0], 4))
	clear(in.bytes("wasi", stack[1], 4))
	respond(stack, wasiOK)
}

// wasiClock returns the time of the call plus the time slept in it. Outside calls the clock
// stands still, so that all instances of a module are prepared alike.
func wasiClock(in *instance, stack []uint64) {
	binary.LittleEndian.PutUint64(in.bytes("clock_time_get", stack[2], 8), uint64(in.clock()))
	respond(stack, wasiOK)
}

func wasiResolution(in *instance, stack []uint64) {
	binary.LittleEndian.PutUint64(in.bytes("clock_res_get", stack[1], 8), 1)
	respond(stack, wasiOK)
}

// wasiRandom returns the same numbers in every instance of a module.
func wasiRandom(in *instance, stack []uint64) {
	_, _ = in.random.Read(in.bytes("random_get", stack[0], stack[1])) // never fails
	respond(stack, wasiOK)
}

// wasiExit ends the instance, because an ended program cannot be called again.
func wasiExit(_ *instance, stack []uint64) {
	panic(misuse(fmt.Sprintf("the program ended with exit status %d", uint32(stack[0]))))
}

// wasiWrite handles a program's standard output and error.
func wasiWrite(in *instance, stack []uint64) {
	if fd := uint32(stack[0]); fd != wasiStdout && fd != wasiStderr {
		respond(stack, wasiBadFD)
		return
	}
	const maxVectors = 1024 // as in POSIX
	vectors := in.bytes("fd_write", stack[1], 8*min(uint64(uint32(stack[2])), maxVectors))
	written := uint32(0)
	for ; len(vectors) >= 8; vectors = vectors[8:] {
		b := in.bytes("fd_write", uint64(binary.LittleEndian.Uint32(vectors)), uint64(binary.LittleEndian.Uint32(vectors[4:])))
		in.print(b)
		written += uint32(len(b))
	}
	binary.LittleEndian.PutUint32(in.bytes("fd_write", stack[3], 4), written)
	respond(stack, wasiOK)
}

// wasiDescriptor describes standard input, output and error as terminals, so that programs do not configure them.
func wasiDescriptor(in *instance, stack []uint64) {
	if uint32(stack[0]) > wasiStderr {
		respond(stack, wasiBadFD)
		return
	}
	const size, characterDevice = 24, 2
	b := in.bytes("fd_fdstat_get", stack[1], size)
	clear(b)
	b[0] = characterDevice
	respond(stack, wasiOK)
}

// Layout of poll_oneoff's subscriptions and events.
const (
	subscriptionSize = 48 // u64 userdata, u8 type, and of a clock: u32 id, u64 timeout, u64 precision, u16 flags
	eventSize        = 32 // u64 userdata, u16 error, u8 type, …
	subscribedClock  = 0
	absoluteTime     = 1 // of the flags
)

// wasiPoll returns at once: a sleep advances the clock of this call, and there is nothing else to wait for.
func wasiPoll(in *instance, stack []uint64) {
	const most = 1024
	n := min(uint64(uint32(stack[2])), most)
	subscriptions, events := in.bytes("poll_oneoff", stack[0], n*subscriptionSize), in.bytes("poll_oneoff", stack[1], n*eventSize)
	for i := range int(n) {
		s, e := subscriptions[i*subscriptionSize:][:subscriptionSize], events[i*eventSize:][:eventSize]
		userdata, kind := binary.LittleEndian.Uint64(s), s[8]
		number := uint16(wasiOK)
		if kind == subscribedClock {
			in.sleep(int64(binary.LittleEndian.Uint64(s[24:])), s[40]&absoluteTime != 0)
		} else {
			number = wasiNoSys
		}
		clear(e)
		binary.LittleEndian.PutUint64(e, userdata)
		binary.LittleEndian.PutUint16(e[8:], number)
		e[10] = kind
	}
	binary.LittleEndian.PutUint32(in.bytes("poll_oneoff", stack[3], 4), uint32(n))
	respond(stack, wasiOK)
}
