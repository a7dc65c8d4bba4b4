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
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// Host is the plugin: all policies of a broker. Any goroutine may call its methods,
// but no queue's turn may call those that change something.
type Host struct {
	config   Config
	env      Env // does not change after Open
	slots    int // instances of a version
	memory   memoryBudget
	onChange atomic.Pointer[func(strategy string, recompute bool)]
	table    atomic.Pointer[table]

	// loading is held while a module is compiled and tried, which may take seconds. This is
	// done one at a time, so that other work keeps its processors. loading is acquired
	// before mu.
	loading sync.Mutex
	mu      sync.Mutex // guards the fields below, changes of table, and policies' sources
	engine  *engine    // nil: not open; loading guards changes of it, too
}

var _ guest.Dynamic = (*Host)(nil)

// Env has the parts of a broker that a host needs. Every field is optional.
type Env struct {
	// Log receives the policies' log lines and failures.
	Log *slog.Logger
	// Store saves modules that are loaded while the broker runs. Without it they do
	// not survive a restart.
	Store Store
	// Shared means that other hosts follow the same store, as this host does with
	// [Host.Follow]. Events at a single host, such as a rollback, are not saved.
	Shared bool
	// CacheDir is a folder for compiled code, which saves half a second of processor time
	// per start for a Go module. Only the broker may have write access, because the code is
	// executed.
	CacheDir string
	// Go runs a function on another goroutine. Without it, work that should not run in a
	// queue's turn does so, and work that must not is skipped.
	Go func(func())
	// Queues returns the number of queues with a strategy.
	Queues func(strategy string) int
	// Undecided returns roughly how many messages in the queues of a strategy still need a
	// decision. Without it the count includes messages that have left their queues.
	Undecided func(strategy string) int
	// Clock measures decisions about traced messages.
	Clock func() hook.Instant
	// Trace receives attributes that a policy adds to untraced messages. It is called in
	// the queue's turn and must not retain the message. Without it the attributes are
	// logged at level debug.
	Trace func(policy string, m *hook.Message, key, value string)
	// MaxHold is the longest time for which a message may be held, in milliseconds. If
	// absent it is hook.MaxMillis, ten years.
	MaxHold hook.Limit
	// Trial sets the effect of a module's trial. Brokers use the default.
	Trial TrialMode
	// Nearest returns the candidate that a name was probably meant to be; "" means none.
	// Without it warnings contain no such hints.
	Nearest func(name string, candidates []string) string
	// Notice receives changes of policies. It is called from any goroutine, including
	// queues' turns, and with the host's lock held: it must neither block nor call the
	// host.
	Notice func(Notice)
}

// table holds the policies. It is immutable: a change makes a new table.
type table struct {
	policies map[string]*policy // by name
	shadows  map[string]*policy // by the strategy that they run beside
}

func newHost(c Config) *Host {
	h := &Host{config: c, slots: runtime.GOMAXPROCS(0)}
	h.memory.left.Store(int64(c.TotalMemory))
	h.table.Store(&table{policies: map[string]*policy{}, shadows: map[string]*policy{}})
	return h
}

// prefix begins the names of our strategies.
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

// DefaultStrategy implements [hook.Strategist]. plugins.ttl.strategy may name one of our strategies.
func (*Host) DefaultStrategy() string { return "" }

// OnChange implements [guest.Dynamic].
func (h *Host) OnChange(changed func(strategy string, recompute bool)) { h.onChange.Store(&changed) }

// changed makes the queues of a strategy attach again.
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

// add adds a policy to the table; it replaces a policy of the same name.
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

// addNow is add for callers that do not hold mu.
func (h *Host) addNow(p *policy) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.add(p)
}

// remove removes a policy from the table.
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
	ErrNoShadow   = errors.New("the policy is not a shadow: only a shadow has differences")
	ErrNotShadow  = errors.New("the policy is not a shadow: it is in force already")
	ErrInUse      = errors.New("queues have chosen the policy")
	ErrNotStored  = errors.New("the module works, but cannot be kept for the next start")
	ErrNotOpen    = errors.New("the host of policies is not open")
)
