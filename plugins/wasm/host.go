package wasm

import (
	"errors"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Host is the plugin: all policies of a broker. Its methods may be called from any
// goroutine, but those that change something not from a queue's turn.
type Host struct {
	config   Config
	env      Env // does not change after Open
	slots    int // instances of a version
	memory   memoryBudget
	onChange atomic.Pointer[func(strategy string, recompute bool)]
	table    atomic.Pointer[table]

	mu     sync.Mutex // guards what follows and changes of table; held while modules are compiled
	engine *engine    // nil: not open
}

var _ hook.Dynamic = (*Host)(nil)

// Env is what a host needs of its broker. Any of it may be absent.
type Env struct {
	// Log is told what policies say and do wrong.
	Log *slog.Logger
	// Store keeps the modules that are loaded while the broker runs. Without one
	// they are gone after a restart.
	Store Store
	// CacheDir is a folder for compiled code, which spares half a second of
	// processor time at each start for a module the size of Go's. Nobody else may
	// write to it: what lies there is executed.
	CacheDir string
	// Go runs a function on another goroutine. Without it, what should not be done
	// on a queue's turn is done there, and what must not be is left undone.
	Go func(func())
	// Queues says how many queues have chosen a strategy.
	Queues func(strategy string) int
	// Clock says how long decisions take, for the traces of messages. It is not
	// asked for messages that are not traced.
	Clock func() hook.Instant
	// Trace is told of attributes that a policy adds to the trace of a message that
	// nobody traces. It is called on the queue's turn and must not keep the message.
	// Without it they are logged, at level debug.
	Trace func(policy string, m *hook.Message, key, value string)
	// Notice is told what happens to policies. It is called from any goroutine, on
	// queues' turns and with the host's lock held, too: it must neither wait nor call
	// the host.
	Notice func(Notice)
}

// table is which policies there are. It does not change; changes make another.
type table struct {
	policies map[string]*policy // by name
	shadows  map[string]*policy // by the strategy they run beside
}

func newHost(c Config) *Host {
	h := &Host{config: c, slots: runtime.GOMAXPROCS(0)}
	h.memory.left.Store(int64(c.TotalMemory))
	h.table.Store(&table{policies: map[string]*policy{}, shadows: map[string]*policy{}})
	return h
}

// prefix is what the names of strategies begin with.
const prefix = "wasm/"

// Arguments implements [hook.Plugin].
func (*Host) Arguments() []hook.Argument { return nil }

// Strategies implements [hook.Strategist].
func (h *Host) Strategies() []string {
	var names []string
	for name, p := range h.table.Load().policies {
		if p.isStrategy() {
			names = append(names, prefix+name)
		}
	}
	slices.Sort(names)
	return names
}

// DefaultStrategy implements [hook.Strategist]: plugins.ttl.strategy may name one of
// ours.
func (*Host) DefaultStrategy() string { return "" }

// OnChange implements [hook.Dynamic].
func (h *Host) OnChange(changed func(strategy string, recompute bool)) { h.onChange.Store(&changed) }

// changed has the queues that chose a strategy attached anew.
func (h *Host) changed(strategy string, recompute bool) {
	if f := h.onChange.Load(); f != nil {
		(*f)(strategy, recompute)
	}
}

// Attach implements [hook.Plugin].
func (h *Host) Attach(q hook.Queue) hook.Hooks {
	t, strategy := h.table.Load(), q.Strategy()
	var p *policy
	if len(strategy) > len(prefix) && strategy[:len(prefix)] == prefix {
		p = t.policies[strategy[len(prefix):]]
	}
	if p != nil && !p.isStrategy() {
		p = nil
	}
	shadow := t.shadows[strategy]
	if p == nil && shadow == nil {
		return hook.Hooks{Shared: true}
	}
	return bind(q, p, shadow)
}

// add makes a policy known, in place of the one of that name if there is one.
func (h *Host) add(p *policy) {
	p.host = h
	if p.report == nil {
		p.report = newReport(h.env.Log, p.name)
	}
	t := h.table.Load().clone()
	t.policies[p.name] = p
	if p.origin == Shadow {
		t.shadows[p.beside] = p
	}
	h.table.Store(t)
}

// remove makes a policy unknown.
func (h *Host) remove(p *policy) {
	t := h.table.Load().clone()
	delete(t.policies, p.name)
	if p.origin == Shadow {
		delete(t.shadows, p.beside)
	}
	h.table.Store(t)
}

func (t *table) clone() *table {
	return &table{policies: maps.Clone(t.policies), shadows: maps.Clone(t.shadows)}
}

// Errors of changes.
var (
	ErrUnknown    = errors.New("there is no such policy")
	ErrConfigured = errors.New("the policy comes from the configuration: change the file that its path names and reload it, or remove it there")
	ErrInUse      = errors.New("queues have chosen the policy")
	ErrNotStored  = errors.New("the module works, but cannot be kept for the next start")
	ErrNotOpen    = errors.New("the host of policies is not open")
)
