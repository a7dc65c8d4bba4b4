package wasm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/curfewmq/curfew/plugins/wasm/meter"
	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
)

// instance is an instantiated module. It belongs to the goroutine that took it from its pool. After a trap it must not be called
// again.
type instance struct {
	version *version
	slot    int // in the pool

	module api.Module
	memory api.Memory
	fuel   api.MutableGlobal
	calls  [abi.Hooks]api.Function // the hooks in use
	buffer uint32                  // address of records and verdicts
	space  *guestMemory
	ctx    context.Context //nolint:containedctx // carries the instance to host functions, and nothing else
	stack  [8]uint64       // parameters and result

	// The current call, for host functions.
	now       hook.Instant
	slept     int64 // nanoseconds
	batch     []hook.Message
	holds     []int64 // ends of the messages' holds, by index; empty: no message is held
	queue     hook.Queue
	watch     *watch // nil: no message is traced
	complaint string // argument of the host function fail
	printed   []byte
	lost      int // printed bytes that were dropped

	configMistake string // of policy_configure
	initialized   int64  // fuel that preparing it used

	random   *rand.ChaCha8
	counters map[string]*atomic.Int64
	targets  map[destination]*hook.Target
	pending  pendingStats
}

// epoch is the guest's time outside calls.
const epoch = hook.Instant(946_684_800_000_000_000) // 2000-01-01

// instanceKey is the context's key of the instance.
type instanceKey struct{}

// callContext is the context with which an instance is called.
type callContext struct {
	context.Context
	in *instance
}

// Value implements [context.Context]. wazero looks up several keys in each call; only this one exists.
func (c *callContext) Value(key any) any {
	if _, ok := key.(instanceKey); ok {
		return c.in
	}
	return nil
}

// start makes an instance and prepares it.
func (v *version) start() (*instance, error) {
	in := &instance{
		version: v, now: epoch, counters: map[string]*atomic.Int64{}, targets: map[destination]*hook.Target{},
		random: rand.NewChaCha8(v.seed), space: &guestMemory{budget: &v.policy.host.memory, total: &v.memory},
	}
	in.ctx = &callContext{context.Background(), in}
	if err := in.instantiate(); err != nil {
		in.space.Free()
		return nil, err
	}
	if err := in.getReady(); err != nil {
		in.close()
		return nil, err
	}
	return in, nil
}

func (in *instance) instantiate() error {
	v := in.version
	if need := int64(v.module.pages) * pageSize; v.policy.host.memory.left.Load() < need {
		return fmt.Errorf("an instance needs %s of memory, which plugins.wasm.total-memory does not leave", Size(need))
	}
	ctx := experimental.WithMemoryAllocator(in.ctx, in.space)
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions()
	m, err := v.engine.instantiate(ctx, v.module.code, config)
	if err != nil {
		return fmt.Errorf("the module cannot be instantiated: %w", in.failure("start", err))
	}
	in.module = m
	in.memory = m.Memory()
	in.fuel, _ = m.ExportedGlobal(meter.DefaultGlobal).(api.MutableGlobal) // package meter put it there
	return nil
}

// instantiate recovers from wazero's panics, one of which means that memory is short.
func (e *engine) instantiate(ctx context.Context, code wazero.CompiledModule, config wazero.ModuleConfig) (m api.Module, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return e.runtime.InstantiateModule(ctx, code, config)
}

// getReady performs the handshake.
func (in *instance) getReady() error {
	for _, step := range []func() error{in.initialize, in.greet, in.configure, in.chooseHooks} {
		if err := step(); err != nil {
			return err
		}
	}
	in.initialized = in.version.engine.fuel - int64(in.fuel.Get())
	for h := range abi.Hooks {
		if in.version.hooks.has(h) {
			in.calls[h] = in.module.ExportedFunction(h.String())
		}
	}
	in.flush()
	return nil
}

// call calls an export of the handshake.
func (in *instance) call(name string, params ...uint64) (result uint64, err error) {
	copy(in.stack[:], params)
	in.complaint = ""
	err = in.module.ExportedFunction(name).CallWithStack(in.ctx, in.stack[:])
	if err != nil {
		return 0, in.failure(name, err)
	}
	return in.stack[0], nil
}

func (in *instance) initialize() error {
	if !in.version.module.exports[abi.ExportInitialize] {
		return nil
	}
	_, err := in.call(abi.ExportInitialize)
	return err
}

// greet asks for the capacity. The first instance's answer applies to all.
func (in *instance) greet() error {
	v := in.version
	r, err := in.call(abi.Name)
	if err != nil {
		return err
	}
	n := int(int32(r))
	switch batches := v.module.has(abi.OnEnqueue) || v.module.has(abi.OnDeadline) || v.module.has(abi.OnHead) || v.module.has(abi.OnRequeue); {
	case n < 0 || n > abi.MaxCapacity:
		return fmt.Errorf("%s: the module would take %d messages at once; accepted are 0 to %d", abi.Name, n, abi.MaxCapacity)
	case n > 0 && !v.module.exports[abi.ExportBuffer]:
		return fmt.Errorf("%s: the module would take %d messages at once, but exports no %s to put them", abi.Name, n, abi.ExportBuffer)
	case n == 0 && batches:
		return fmt.Errorf("%s: the module exports hooks for batches and would take no message at once; accepted are 1 to %d", abi.Name, abi.MaxCapacity)
	}
	if !v.settled {
		v.capacity = n
	}
	return nil
}

// configure passes the configuration.
func (in *instance) configure() error {
	v := in.version
	size := 0
	if v.module.exports[abi.ExportBuffer] {
		size = len(v.configJSON)
		if err := in.findBuffer(max(size, v.capacity*(abi.RecordSize+abi.VerdictSize))); err != nil {
			return err
		}
		copy(in.at(size), v.configText())
	}
	if !v.module.exports[abi.ExportConfigure] {
		return nil
	}
	r, err := in.call(abi.ExportConfigure, uint64(size))
	switch {
	case err != nil:
		return err
	case int32(r) < 0 && in.complaint != "":
		return errors.New("the policy refuses its configuration: " + in.complaint)
	case int32(r) < 0:
		return fmt.Errorf("the policy refuses its configuration, and does not say why (%s returned %d)", abi.ExportConfigure, int32(r))
	case in.configMistake != "":
		return errors.New(in.configMistake)
	}
	return nil
}

func (in *instance) findBuffer(size int) error {
	r, err := in.call(abi.ExportBuffer, uint64(size))
	if err != nil {
		return err
	}
	in.buffer = uint32(r)
	if in.buffer == 0 {
		return fmt.Errorf("%s: the module has no buffer of %d bytes, for %d messages and a configuration of %d bytes",
			abi.ExportBuffer, size, in.version.capacity, len(in.version.configJSON))
	}
	if in.at(size) == nil && size > 0 {
		return fmt.Errorf("%s: a buffer of %d bytes at %#x does not lie in the module's memory of %d bytes", abi.ExportBuffer, size, in.buffer, in.memory.Size())
	}
	return nil
}

// at returns the beginning of the buffer; nil if it is outside the memory.
func (in *instance) at(size int) []byte {
	b, _ := in.memory.Read(in.buffer, uint32(size))
	return b
}

// chooseHooks asks the module which of its exported hooks it wants to use.
func (in *instance) chooseHooks() error {
	v := in.version
	hooks := hookSet(0)
	for _, h := range v.module.Hooks {
		hooks |= 1 << h
	}
	if v.module.exports[abi.ExportHooks] {
		mask, err := in.call(abi.ExportHooks)
		if err != nil {
			return err
		}
		hooks &= hookSet(mask & math.MaxUint8)
		if hooks == 0 {
			return fmt.Errorf("%s: the module wants none of the hooks that it exports", abi.ExportHooks)
		}
	}
	if !v.settled {
		v.hooks = hooks
	}
	return nil
}

// run calls a hook for n messages; the parameters are on the stack.
func (in *instance) run(h abi.Hook, now hook.Instant, r *fuelBudget, n int) *failure {
	in.now, in.slept = now, 0
	fuel := r.next(in.version, n)
	in.fuel.Set(uint64(fuel))
	err := in.calls[h].CallWithStack(in.ctx, in.stack[:])
	left := int64(in.fuel.Get())
	if in.watch != nil {
		in.watch.fuel = fuel - max(left, 0)
	}
	if err != nil {
		f := in.failure(h.String(), err)
		f.reason += in.version.fuelHint(f.kind)
		return f
	}
	r.spend(left, n)
	in.pending.add(fuel - left)
	if len(in.printed) > 0 {
		in.flush()
	}
	return nil
}

// failure describes a trap.
func (in *instance) failure(what string, err error) *failure {
	f := &failure{kind: trapped, what: what, reason: reasonOf(err), output: in.output()}
	switch {
	case in.fuel == nil: // there is no instance yet that could tell
		f.reason += ", or it used up its fuel"
	case int64(in.fuel.Get()) < 0:
		f.kind, f.reason = outOfFuel, "it used up its fuel"
	case in.space.refused, strings.HasPrefix(f.reason, "out of bounds memory access"):
		f.kind = outOfMemory
	}
	if in.complaint != "" {
		f.reason += "; it said: " + in.complaint
	}
	return f
}

// reasonOf shortens wazero's error to its first line and the innermost functions.
func reasonOf(err error) string {
	text := strings.TrimPrefix(err.Error(), "wasm error: ")
	text = strings.ReplaceAll(text, " (recovered by wazero)", "")
	reason, trace, _ := strings.Cut(text, "\nwasm stack trace:\n\t")
	const enough = 5
	frames := strings.SplitN(trace, "\n\t", enough+1)
	if len(frames) > enough {
		frames = frames[:enough]
	}
	if trace == "" {
		return reason
	}
	return reason + " in " + strings.Join(frames, " < ")
}

// clock returns the guest's time.
func (in *instance) clock() hook.Instant { return in.now + hook.Instant(in.slept) }

// sleep advances the guest's clock.
func (in *instance) sleep(t int64, absolute bool) {
	if absolute {
		t -= int64(in.clock())
	}
	const longest = 1 << 60 // 36 years
	if t > 0 && in.slept+min(t, longest) < longest {
		in.slept += min(t, longest)
	}
}

// maxPrinted bounds the bytes of a guest's output that are kept per call.
const maxPrinted = 2048

// print buffers the guest's output until the end of the call.
func (in *instance) print(b []byte) {
	kept := min(len(b), maxPrinted-len(in.printed))
	in.printed = append(in.printed, b[:kept]...)
	in.lost += len(b) - kept
}

// output returns the buffered output and clears it.
func (in *instance) output() string {
	s := strings.TrimSpace(printable(in.printed))
	if in.lost > 0 {
		s += fmt.Sprintf(" … and %d bytes more", in.lost)
	}
	in.printed, in.lost = in.printed[:0], 0
	return s
}

// flush logs the buffered output.
func (in *instance) flush() {
	if s := in.output(); s != "" {
		in.version.policy.report.guest(in.now, slogLevel(abi.LogInfo), s)
	}
}

// close releases the instance's resources.
func (in *instance) close() {
	in.version.addStats(&in.pending)
	_ = in.module.Close(context.Background()) // there are no files to be closed
	in.space.Free()
}
