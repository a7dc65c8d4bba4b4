package wasm

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/curfewmq/curfew/sdk/abi"
)

// Open loads the modules of the configuration and of the store. It is called once, before there are queues. If a configured module cannot
// be loaded, Open returns an error. If a stored one cannot be loaded, it raises an alarm instead: its strategy exists, and on-error decides
// about its messages. A damaged file in the store raises an alarm, and its strategy does not exist.
func (h *Host) Open(env Env) error {
	h.loading.Lock()
	defer h.loading.Unlock()
	if h.engine != nil {
		return errors.New("the host of policies is open already")
	}
	h.env = env
	e, err := newEngine(&h.config, cacheDir(env.CacheDir))
	if errors.Is(err, errInterpreter) && len(h.config.Modules) == 0 {
		return nil // loading a module later will report it
	}
	if err != nil {
		return err
	}
	h.mu.Lock()
	h.engine = e
	h.mu.Unlock()
	var errs []error
	t := h.table.Load()
	for _, name := range slices.Sorted(maps.Keys(t.policies)) {
		p := t.policies[name]
		p.report = newReport(env.Log, name)
		if err := h.activate(p, p.source); err != nil {
			errs = append(errs, fmt.Errorf("plugins.wasm.modules.%s: %w", name, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return errors.Join(err, h.closeEngine())
	}
	h.restore()
	return nil
}

// restore loads the modules of the store. A module that fails its trial stays in use: it passed the checks of the broker into which it was
// loaded, and queues depend on it. The caller holds loading.
func (h *Host) restore() {
	if h.env.Store == nil {
		return
	}
	stored, err := h.env.Store.LoadAll()
	if err != nil {
		newReport(h.env.Log, "").lost(err)
	}
	for _, k := range stored {
		if err := checkName(k.Name); err != nil {
			newReport(h.env.Log, k.Name).lost(err)
			continue
		}
		if other := h.table.Load().policies[k.Name]; other != nil {
			other.report.superseded()
			continue
		}
		h.addFollowed(k)
	}
}

// Close releases all resources. All queues must be closed. Rehearsals in progress keep their resources until they end.
func (h *Host) Close() error {
	h.loading.Lock()
	defer h.loading.Unlock()
	return h.closeEngine()
}

// closeEngine is Close for callers that hold loading.
func (h *Host) closeEngine() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.engine == nil {
		return nil
	}
	for _, p := range h.table.Load().policies {
		h.releaseAll(p)
	}
	e := h.engine
	h.engine = nil
	if e.rehearsals > 0 {
		return nil // the last rehearsal closes it: its guests may be running
	}
	return e.close()
}

// activate makes a version from a source and puts it in force. The caller holds
// loading.
func (h *Host) activate(p *policy, s source) error {
	v, err := h.prepare(p, s)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.replaceVersion(p, v)
	return nil
}

// activateStored is activate for a policy of the store. Such a policy may fail its trial.
func (h *Host) activateStored(p *policy) error {
	v, err := h.makeVersion(p, p.source)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.replaceVersion(p, v)
	return nil
}

// prepare makes a version that has passed its trial, without putting it in force.
// The caller holds loading.
func (h *Host) prepare(p *policy, s source) (*version, error) {
	v, err := h.makeVersion(p, s)
	if err == nil && h.env.Trial == Decisive && v.trial.failed != nil {
		h.release(v)
		return nil, v.trial.failed
	}
	return v, err
}

// makeVersion makes a version, and tries it. The caller holds loading.
func (h *Host) makeVersion(p *policy, s source) (*version, error) {
	if h.engine == nil {
		return nil, h.notOpen()
	}
	module := s.module
	if p.origin == Configured {
		var err error
		if module, err = readModule(p.path); err != nil {
			return nil, fmt.Errorf("path: %w", err)
		}
	}
	c, err := h.engine.compile(module, &s.options)
	if err != nil {
		return nil, err
	}
	v, err := h.tried(p, c, s.options)
	if err != nil {
		h.engine.release(c)
		return nil, err
	}
	v.source = s
	return v, nil
}

// tried makes a version of a module after trying it.
func (h *Host) tried(p *policy, c *compiled, o Options) (*version, error) {
	if h.env.Trial == Untried {
		return newVersion(p, c, o)
	}
	t, settings, err := tryOut(p, c, o)
	if err != nil {
		return nil, err
	}
	return newVersion(p, c, o, func(v *version) {
		v.trial, v.settings, v.warned = t, settings, t.failed == nil && !t.readsText
	})
}

func (h *Host) notOpen() error {
	if !compiles() && !h.config.Interpreter {
		return errInterpreter
	}
	return ErrNotOpen
}

// replaceVersion puts a version in force. The caller holds mu.
func (h *Host) replaceVersion(p *policy, v *version) {
	p.source = v.source
	for _, w := range v.warnings() {
		p.report.warned(v.module.Digest, w)
	}
	n := Notice{Change: PolicyReloaded, Digest: v.module.Digest, Previous: p.digest()}
	h.release(p.put(v))
	if n.Previous == "" {
		n.Change = PolicyLoaded
	}
	p.notify(n)
}

// release frees a version that is no longer called; nil does nothing. The caller holds mu.
func (h *Host) release(v *version) {
	if v == nil {
		return
	}
	v.pool.retire()
	v.engine.release(v.module)
}

// releaseAll frees all versions of a policy. The caller holds mu.
func (h *Host) releaseAll(p *policy) {
	for _, v := range p.take() {
		h.release(v)
	}
}

// CheckFiles reads the modules of the configuration, which Open loads.
func (h *Host) CheckFiles() error {
	var errs []error
	t := h.table.Load()
	for _, name := range slices.Sorted(maps.Keys(t.policies)) {
		if _, err := readModule(t.policies[name].path); err != nil {
			errs = append(errs, fmt.Errorf("plugins.wasm.modules.%s: path: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// readModule reads a file, up to the maximum size of a module.
func readModule(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	b, err := io.ReadAll(io.LimitReader(f, abi.MaxModule+1))
	if err != nil {
		return nil, err
	}
	return b, checkSize(b)
}

func checkSize(module []byte) error {
	if len(module) > abi.MaxModule {
		return fmt.Errorf("the module is too large; accepted are up to %s", Size(abi.MaxModule))
	}
	return nil
}

// Load makes a module a policy, or the next version of the policy of that name. Queued messages keep their deadlines unless o.Recompute is
// set. When Load returns, the queues of the policy use the version.
func (h *Host) Load(name string, module []byte, o Options) (Info, error) {
	p, err := h.load(name, source{slices.Clone(module), o})
	if err != nil {
		return Info{}, fmt.Errorf("policy %q: %w", name, err)
	}
	h.changed(prefix+name, p.review(o.Recompute))
	return p.info(), nil
}

func (h *Host) load(name string, s source) (*policy, error) {
	h.loading.Lock()
	defer h.loading.Unlock()
	p := h.table.Load().policies[name]
	if err := errors.Join(checkName(name), checkSize(s.module), s.options.check(), mayLoad(p)); err != nil {
		return nil, err
	}
	if p == nil {
		p = &policy{host: h, name: name, origin: Loaded, report: newReport(h.env.Log, name)}
	}
	v, err := h.prepare(p, s)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.persist(p, s); err != nil {
		h.release(v)
		return nil, err
	}
	h.replaceVersion(p, v)
	if h.table.Load().policies[name] != p { // it is new, or was unloaded in the meantime
		h.add(p)
	}
	return p, nil
}

func mayLoad(p *policy) error {
	switch {
	case p == nil || p.origin == Loaded:
		return nil
	case p.origin == Shadow:
		return fmt.Errorf("the name belongs to a shadow of %s: unload that first", p.beside)
	}
	return ErrConfigured
}

// persist saves a policy in the store.
func (h *Host) persist(p *policy, s source) error {
	if h.env.Store == nil {
		return nil
	}
	if err := h.env.Store.Save(StoredPolicy{Name: p.name, Module: s.module, Options: s.options}); err != nil {
		return fmt.Errorf("%w: %w", ErrNotStored, err)
	}
	return nil
}

// Reload loads a policy again from its source, which is the file for a configured one. Its
// counts start again at zero. With recompute, queued messages get new deadlines.
func (h *Host) Reload(name string, recompute bool) (Info, error) {
	p, err := h.reload(name)
	if err != nil {
		return Info{}, fmt.Errorf("policy %q: %w", name, err)
	}
	h.changed(p.chosenAs(), p.review(recompute))
	return p.info(), nil
}

func (h *Host) reload(name string) (*policy, error) {
	h.loading.Lock()
	defer h.loading.Unlock()
	p, s, err := h.sourceOf(name)
	if err != nil {
		return nil, err
	}
	v, err := h.prepare(p, s)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.table.Load().policies[name] != p { // it was unloaded in the meantime
		h.release(v)
		return nil, ErrUnknown
	}
	h.replaceVersion(p, v)
	return p, nil
}

// sourceOf returns a policy and the source from which to load it again.
func (h *Host) sourceOf(name string) (*policy, source, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.table.Load().policies[name]
	if p == nil {
		return nil, source{}, ErrUnknown
	}
	if damaged, why := p.loadState(); damaged {
		return nil, source{}, why
	}
	return p, p.source, nil
}

// Unload removes a policy. Unless force is set, it refuses if a queue has chosen the policy. With force, such queues have the default
// strategy until the policy is loaded again.
func (h *Host) Unload(name string, force bool) error {
	p, err := h.unload(name, force)
	if err != nil {
		return fmt.Errorf("policy %q: %w", name, err)
	}
	h.changed(p.chosenAs(), false)
	return nil
}

func (h *Host) unload(name string, force bool) (*policy, error) {
	if h.env.Shared { // otherwise a concurrent Follow would bring it back
		h.loading.Lock()
		defer h.loading.Unlock()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.table.Load().policies[name]
	switch {
	case p == nil:
		return nil, ErrUnknown
	case p.origin == Configured:
		return nil, ErrConfigured
	}
	if p.origin == Loaded {
		if err := h.forget(p, force); err != nil {
			return nil, err
		}
	}
	h.remove(p)
	p.notify(Notice{Change: PolicyUnloaded, Digest: p.digest()})
	h.releaseAll(p)
	return p, nil
}

// forget removes a policy from the store. Without force it refuses if queues have chosen the policy.
func (h *Host) forget(p *policy, force bool) error {
	if !force && h.env.Queues != nil {
		if n := h.env.Queues(prefix + p.name); n > 0 {
			return fmt.Errorf("%w: %d of them; force takes it from them", ErrInUse, n)
		}
	}
	if h.env.Store == nil {
		return nil
	}
	return h.env.Store.Delete(p.name)
}

// Shadow runs a module beside any strategy, and counts where its verdicts differ. The verdicts have no effect. It replaces a shadow of
// the same name and strategy. Shadows do not survive a restart.
func (h *Host) Shadow(name string, module []byte, o Options, strategy string) (Info, error) {
	p, err := h.shadow(name, source{slices.Clone(module), o}, strategy)
	if err != nil {
		return Info{}, fmt.Errorf("policy %q: %w", name, err)
	}
	h.changed(strategy, false)
	return p.info(), nil
}

func (h *Host) shadow(name string, s source, strategy string) (*policy, error) {
	h.loading.Lock()
	defer h.loading.Unlock()
	if err := errors.Join(checkName(name), checkSize(s.module), s.options.check(), h.table.Load().mayShadow(name, strategy)); err != nil {
		return nil, err
	}
	p := &policy{host: h, name: name, origin: Shadow, beside: strategy, report: newReport(h.env.Log, name), differences: &differences{}}
	if old := h.table.Load().policies[name]; old != nil {
		p.differences = old.differences // each difference records its module
	}
	if err := h.activate(p, s); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if old := h.table.Load().policies[name]; old != nil {
		h.remove(old)
		h.releaseAll(old)
	}
	h.add(p)
	return p, nil
}

func (t *table) mayShadow(name, strategy string) error {
	p, other := t.policies[name], t.shadows[strategy]
	switch {
	case strategy == "":
		return errors.New("a shadow needs the strategy that it is to run beside")
	case strategy == prefix+name:
		return errors.New("a policy cannot be its own shadow: give the shadow another name")
	case other != nil && other.name != name:
		return fmt.Errorf("%s has the shadow %s already: unload that first", strategy, other.name)
	case p != nil && (p.origin != Shadow || p.beside != strategy):
		return errors.New("there is a policy of that name already: give the shadow another one")
	}
	return nil
}

// finishRollBack completes a rollback that began in a queue's turn.
func (h *Host) finishRollBack(p *policy, v *version) {
	h.mu.Lock()
	if h.engine == nil { // closed, and v with it
		h.mu.Unlock()
		return
	}
	h.release(v)
	p.addEnteredFailed(v.stats.entered.Load())
	if now := p.active.Load(); now != nil {
		p.source = now.source
		if p.origin == Loaded && !h.env.Shared {
			if err := h.persist(p, now.source); err != nil {
				p.report.lost(err)
			}
		}
	}
	h.mu.Unlock()
	h.changed(p.chosenAs(), p.review(false))
}
