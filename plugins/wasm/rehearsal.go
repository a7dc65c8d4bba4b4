package wasm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// A rehearsal calls policies about messages that do not exist. It has its own instances, so that it leaves nothing behind: no counts, no
// failures, no state of a guest.

// Candidate is a module that takes part in a rehearsal instead of a loaded one.
type Candidate struct {
	// Name is the name of the policy. Without a module it is the name of a loaded policy or shadow.
	Name    string
	Module  []byte
	Options Options
	// Beside is the strategy that the module runs beside as a shadow; "" = it is itself the strategy wasm/NAME.
	Beside string
}

// Rehearsal takes the place of a [Host] for one simulation, and belongs to one goroutine. Close frees its resources.
type Rehearsal struct {
	host      *Host
	engine    *engine // stays open until Close; nil: the host is not open
	table     *table
	candidate *policy // nil: none
	beside    string  // strategy that the candidate runs beside
	actors    map[*policy]*actor
	inOrder   []*actor
	opinions  []Opinion
	err       error // why an instance could not be made
}

// Opinion is a shadow's verdict about a message.
type Opinion struct {
	Policy, Digest  string
	InForce, Shadow hook.Verdict
	Differs         bool
}

// actor represents a policy in a rehearsal.
type actor struct {
	policy   *policy
	version  *version // nil: the policy could not be loaded
	lines    *lineTaker
	failures uint64 // failures that were reported
}

var _ guest.Dynamic = (*Rehearsal)(nil)

// Rehearse begins a rehearsal of the loaded policies, and of a candidate if it is not nil. The candidate is tried as by [Host.Load]; Info
// describes it.
func (h *Host) Rehearse(c *Candidate) (*Rehearsal, error) {
	r := &Rehearsal{host: h, table: h.table.Load(), actors: map[*policy]*actor{}}
	r.begin()
	if c == nil {
		return r, nil
	}
	if err := r.cast(c); err != nil {
		r.Close()
		return nil, fmt.Errorf("policy %q: %w", c.Name, err)
	}
	r.beside = c.Beside
	return r, nil
}

// begin keeps the engine open: the broker may end while the guests of a rehearsal run, and they need their memory.
func (r *Rehearsal) begin() {
	r.host.mu.Lock()
	defer r.host.mu.Unlock()
	if r.engine = r.host.engine; r.engine != nil {
		r.engine.rehearsals++
	}
}

// cast makes an actor of the candidate.
func (r *Rehearsal) cast(c *Candidate) error {
	if c.Module == nil {
		p := r.table.policies[c.Name]
		if p == nil {
			return ErrUnknown
		}
		r.candidate = p
		return r.actor(p).loaded()
	}
	if err := errors.Join(checkName(c.Name), checkSize(c.Module), c.Options.check()); err != nil {
		return err
	}
	a := r.newActor(c.Name)
	r.host.loading.Lock()
	defer r.host.loading.Unlock()
	v, err := r.host.prepare(a.policy, source{slices.Clone(c.Module), c.Options})
	if err != nil {
		return err
	}
	a.put(v)
	r.candidate = a.policy
	r.actors[a.policy] = a
	return nil
}

// loaded returns why an actor cannot take part; nil = it can.
func (a *actor) loaded() error {
	if a.version != nil {
		return nil
	}
	return errors.New("it could not be loaded")
}

func (r *Rehearsal) newActor(name string) *actor {
	lines := &lineTaker{}
	report := newReport(slog.New(lines), name)
	report.trial = true
	a := &actor{policy: &policy{host: r.host, name: name, origin: Loaded, standIn: true, report: report}, lines: lines}
	r.inOrder = append(r.inOrder, a)
	return a
}

func (a *actor) put(v *version) {
	a.version = v
	a.policy.active.Store(v)
}

// actor returns the actor of a loaded policy. If it cannot have an instance, it decides like a policy that could not be loaded.
func (r *Rehearsal) actor(p *policy) *actor {
	if a := r.actors[p]; a != nil {
		return a
	}
	a := r.newActor(p.name)
	r.actors[p] = a
	v, err := r.understudy(a.policy, p)
	if err != nil {
		r.err = errors.Join(r.err, fmt.Errorf("policy %q: %w", p.name, err))
	}
	if v != nil {
		a.put(v)
	}
	return a
}

// understudy makes a version of the module in force, with an instance of its own; nil if there is none.
func (r *Rehearsal) understudy(into, p *policy) (*version, error) {
	now := p.active.Load()
	if r.engine == nil || now == nil {
		return nil, nil
	}
	c := r.engine.use(now.module.Digest)
	if c == nil { // it was unloaded in the meantime
		return nil, nil
	}
	v, err := newVersion(into, c, now.options)
	if err != nil {
		r.engine.release(c)
		return nil, err
	}
	return v, nil
}

// Close frees the instances. Further calls do nothing.
func (r *Rehearsal) Close() {
	r.host.mu.Lock()
	defer r.host.mu.Unlock()
	for _, a := range r.inOrder {
		r.host.release(a.version)
	}
	r.inOrder = nil
	e := r.engine
	if r.engine = nil; e == nil {
		return
	}
	if e.rehearsals--; e.rehearsals == 0 && r.host.engine != e { // the host was closed in the meantime
		_ = e.close() // the error no longer matters
	}
}

// Err returns why policies could not have instances; their on-error decided then.
func (r *Rehearsal) Err() error { return r.err }

// Info describes the candidate; false if there is none.
func (r *Rehearsal) Info() (Info, bool) {
	if r.candidate == nil {
		return Info{}, false
	}
	i := r.actors[r.candidate].policy.info()
	if r.beside != "" {
		i.Strategy = ""
	}
	return i, true
}

// Arguments implements [hook.Plugin].
func (*Rehearsal) Arguments() []hook.Argument { return nil }

// Strategies implements [hook.Strategist]. A candidate is a strategy, too.
func (r *Rehearsal) Strategies() []string {
	all := r.host.Strategies()
	if r.candidate != nil && r.beside == "" && !slices.Contains(all, prefix+r.candidate.name) {
		all = append(all, prefix+r.candidate.name)
	}
	return all
}

// DefaultStrategy implements [hook.Strategist].
func (*Rehearsal) DefaultStrategy() string { return "" }

// OnChange implements [guest.Dynamic]. Nothing changes in a rehearsal.
func (*Rehearsal) OnChange(func(string, bool)) {}

// Attach implements [hook.Plugin].
func (r *Rehearsal) Attach(q hook.Queue) hook.Hooks {
	strategy := q.Strategy()
	p, shadow := r.chosen(strategy), r.table.shadows[strategy]
	if r.candidate != nil && r.beside == strategy {
		shadow = r.candidate
	}
	if p == nil && shadow == nil {
		return hook.Hooks{}
	}
	var played, beside *policy
	if p != nil {
		played = r.actor(p).policy
	}
	if shadow != nil && shadow != p {
		beside = r.actor(shadow).policy
		beside.differences = &differences{}
		beside.observer = r.hear(beside)
	}
	if played == nil && beside == nil {
		return hook.Hooks{}
	}
	return bind(q, played, beside)
}

// chosen returns the policy that is the strategy; nil if the strategy belongs to another plugin.
func (r *Rehearsal) chosen(strategy string) *policy {
	if len(strategy) <= len(prefix) || strategy[:len(prefix)] != prefix {
		return nil
	}
	name := strategy[len(prefix):]
	if r.candidate != nil && r.beside == "" && r.candidate.name == name {
		return r.candidate
	}
	if p := r.table.policies[name]; p != nil && p.isStrategy() {
		return p
	}
	return nil
}

// hear returns an observer that records a shadow's opinions.
func (r *Rehearsal) hear(p *policy) func(inForce, shadow hook.Verdict, differs bool) {
	return func(inForce, shadow hook.Verdict, differs bool) {
		r.opinions = append(r.opinions, Opinion{Policy: p.name, Digest: p.digest(), InForce: inForce, Shadow: shadow, Differs: differs})
	}
}

// Opinions returns the opinions of shadows since the last call.
func (r *Rehearsal) Opinions() []Opinion {
	o := r.opinions
	r.opinions = nil
	return o
}

// Notes returns the log lines and failures of policies since the last call.
func (r *Rehearsal) Notes() []string {
	var all []string
	for _, a := range r.inOrder {
		all = append(all, a.notes()...)
	}
	return all
}

// notes returns an actor's lines, and its last failure if that is new.
func (a *actor) notes() []string {
	all := a.lines.take(a.policy.name)
	if a.version == nil {
		return all
	}
	failures := uint64(0)
	for k := range kinds {
		failures += a.version.stats.failures[k].Load()
	}
	if failures > a.failures {
		text := "it was not asked: no instance could be made"
		if f := a.version.stats.last.Load(); f != nil {
			text = f.Error()
		}
		all = append(all, a.policy.name+" failed: "+text)
	}
	a.failures = failures
	return all
}

// maxLines bounds the lines of a policy that are kept until they are taken.
const maxLines = 20

// lineTaker is a [slog.Handler] that keeps a policy's lines. Instances may be made on other goroutines.
type lineTaker struct {
	mu    sync.Mutex // guards lines
	lines []string
}

var _ slog.Handler = (*lineTaker)(nil)

func (*lineTaker) Enabled(context.Context, slog.Level) bool { return true }

func (l *lineTaker) WithAttrs([]slog.Attr) slog.Handler { return l }

func (l *lineTaker) WithGroup(string) slog.Handler { return l }

func (l *lineTaker) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) >= maxLines {
		return nil
	}
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "text" {
			text = a.Value.String()
		}
		return true
	})
	l.lines = append(l.lines, r.Level.String()+" "+text)
	return nil
}

func (l *lineTaker) take(policy string) (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.lines {
		all = append(all, policy+" says: "+s)
	}
	l.lines = nil
	return all
}
