package wasm

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
)

// hookSet is a set of hooks, as bits.
type hookSet uint8

func (s hookSet) has(h abi.Hook) bool { return s&(1<<h) != 0 }

// version is a module with its settings under a policy's name, ready for calls. After prepare, fields that follow from module and
// options do not change.
type version struct {
	policy  *policy
	engine  *engine
	module  *compiled
	options Options
	source  source // of a loaded policy

	configJSON []byte
	settings   map[string]*setting // the flattened configuration
	twice      []string            // names that occur in the configuration in two ways, sorted
	seed       [sha256.Size]byte   // seed of the guests' random numbers
	digest     uint64              // digest of the module; see [hook.Verdict]

	// Answers of the first instance, which apply to all instances.
	hooks    hookSet
	capacity int
	initFuel int64 // fuel used for preparing an instance
	settled  bool

	trial  *trial          // result of trying the module; nil: it was not tried
	absent map[string]bool // names for which the module asked and that are not in the configuration; nil: not recorded
	blank  bool            // the guest gets an empty configuration as text
	warned bool            // a warning was logged that the module does not read some keys

	pool    pool
	breaker breaker
	retries retries
	since   atomic.Int64 // the instant of the first call; 0: none
	memory  atomic.Int64 // bytes, of all instances
	stats   stats
}

// stats are a version's counters.
type stats struct {
	calls, messages, entered, fuel, most atomic.Uint64 // most: fuel of one call
	failures                             [kinds]atomic.Uint64
	last                                 atomic.Pointer[failure]
}

// pendingStats are counts of an instance that are not in stats yet.
type pendingStats struct{ calls, messages, entered, fuel, most uint64 }

// flushCalls is the number of calls after which an instance adds its counts.
const flushCalls = 64

func (t *pendingStats) add(fuel int64) {
	t.calls++
	t.fuel += uint64(fuel)
	t.most = max(t.most, uint64(fuel))
}

// addStats adds an instance's counts and clears them.
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

// newVersion makes a version with one instance. If it returns an error, the caller releases the module.
func newVersion(p *policy, c *compiled, o Options, change ...func(*version)) (*version, error) {
	v := &version{policy: p, engine: c.engine, module: c, options: o, settings: map[string]*setting{}, digest: c.short()}
	if err := v.readConfig(); err != nil {
		return nil, err
	}
	v.seed = sha256.Sum256([]byte(c.Digest))
	for _, f := range change {
		f(v)
	}
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
	v.twice = settingsOf("", m, v.settings)
	slices.Sort(v.twice)
	v.twice = slices.Compact(v.twice)
	return nil
}

// budget returns the fuel of a call with n messages.
func (v *version) budget(n int) int64 { return v.options.Fuel.base() + int64(n)*FuelPerMessage }

// failed counts and logs a failed call or start.
func (v *version) failed(now hook.Instant, f *failure) {
	v.stats.failures[f.kind].Add(1)
	v.stats.last.Store(f)
	v.policy.report.failed(now, v.module.Digest, f)
}
