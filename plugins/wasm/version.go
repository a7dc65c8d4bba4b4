package wasm

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync/atomic"

	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
)

// hookSet is a set of hooks, as bits.
type hookSet uint8

func (s hookSet) has(h abi.Hook) bool { return s&(1<<h) != 0 }

// version is a module with its settings under a policy's name, ready to be asked.
// What follows from module and options does not change after prepare.
type version struct {
	policy  *policy
	engine  *engine
	module  *compiled
	options Options
	source  source // of a loaded policy: what it was made of

	configJSON []byte
	settings   map[string]string // the configuration, flat
	seed       [sha256.Size]byte // of what guests take for random
	digest     uint64            // of the module: see [hook.Verdict]

	// What the first instance said; the others must not say otherwise.
	hooks    hookSet
	capacity int
	initFuel int64 // it took to get ready
	settled  bool

	pool    pool
	breaker breaker
	since   atomic.Int64 // the instant of its first call; 0: there was none
	memory  atomic.Int64 // bytes, of all instances
	stats   stats
}

// stats count what a version did.
type stats struct {
	calls, messages, entered, fuel, most atomic.Uint64 // most: fuel of one call
	failures                             [kinds]atomic.Uint64
	last                                 atomic.Pointer[failure]
}

// pendingStats is the part of these that an instance has not handed over yet.
type pendingStats struct{ calls, messages, entered, fuel, most uint64 }

// flushCalls is after how many calls.
const flushCalls = 64

func (t *pendingStats) add(fuel int64) {
	t.calls++
	t.fuel += uint64(fuel)
	t.most = max(t.most, uint64(fuel))
}

// addStats takes over what an instance counted.
func (v *version) addStats(t *pendingStats) {
	s := &v.stats
	s.calls.Add(t.calls)
	s.messages.Add(t.messages)
	s.entered.Add(t.entered)
	s.fuel.Add(t.fuel)
	for most := s.most.Load(); t.most > most && !s.most.CompareAndSwap(most, t.most); {
		most = s.most.Load()
	}
	*t = pendingStats{}
}

// newVersion makes a version with one instance, which shows that it works. The
// caller holds the host's lock, and releases the module if it does not.
func newVersion(p *policy, c *compiled, o Options) (*version, error) {
	v := &version{policy: p, engine: p.host.engine, module: c, options: o, settings: map[string]string{}, digest: c.short()}
	if err := v.readConfig(); err != nil {
		return nil, err
	}
	v.seed = sha256.Sum256([]byte(c.Digest))
	in, err := v.start()
	if err != nil {
		return nil, err
	}
	v.initFuel, v.settled = in.initialized, true
	v.pool.init(v, p.host.slots, in)
	return v, nil
}

func (v *version) readConfig() error {
	v.configJSON = []byte("{}")
	if len(v.options.Config) == 0 {
		return nil
	}
	v.configJSON = bytes.TrimSpace(v.options.Config)
	d := json.NewDecoder(bytes.NewReader(v.configJSON))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	settingsOf("", m, v.settings)
	return nil
}

// setCapacity takes what the first instance says.
func (v *version) setCapacity(n int) {
	if !v.settled {
		v.capacity = n
	}
}

// setHooks takes what the first instance says.
func (v *version) setHooks(s hookSet) {
	if !v.settled {
		v.hooks = s
	}
}

// budget is the fuel of a call with n messages.
func (v *version) budget(n int) int64 { return v.options.Fuel.base() + int64(n)*FuelPerMessage }

// failed takes note of a call that failed, or a start.
func (v *version) failed(now hook.Instant, f *failure) {
	v.stats.failures[f.kind].Add(1)
	v.stats.last.Store(f)
	v.policy.report.failed(now, v.module.Digest, f)
}
