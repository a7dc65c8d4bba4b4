package wasm

import (
	"bytes"
	"errors"
	"maps"
	"reflect"
	"slices"

	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
	"github.com/curfewmq/curfew/sdk/hook/guest"
)

// Follow adopts the policies of a store that several brokers share, see [Env.Shared], which were loaded while the brokers ran. list
// returns them. It is called while loading is locked, so that its result includes what this host has saved before.
//
// As at a start, a policy that cannot be loaded raises an alarm; its strategy exists, and on-error decides about its messages. Queues
// are asked to recompute if a policy was replaced by one with Options.Recompute.
func (h *Host) Follow(list func() []StoredPolicy) {
	for _, c := range h.follow(list) {
		h.changed(prefix+c.name, c.recompute)
	}
}

// followed is a policy that was changed by following.
type followed struct {
	name      string
	recompute bool
}

func (h *Host) follow(list func() []StoredPolicy) (all []followed) {
	h.loading.Lock()
	defer h.loading.Unlock()
	stored := map[string]StoredPolicy{}
	for _, k := range list() {
		stored[k.Name] = k
	}
	for _, name := range h.loaded() {
		if _, ok := stored[name]; !ok {
			h.dropFollowed(name)
			all = append(all, followed{name: name})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(stored)) {
		if c, ok := h.followOne(stored[name]); ok {
			all = append(all, c)
		}
	}
	return all
}

// loaded returns the names of policies that were loaded while the broker ran.
func (h *Host) loaded() (names []string) {
	t := h.table.Load()
	for _, name := range slices.Sorted(maps.Keys(t.policies)) {
		if t.policies[name].origin == Loaded {
			names = append(names, name)
		}
	}
	return names
}

// dropFollowed removes a policy that is no longer in the store. The caller holds loading.
func (h *Host) dropFollowed(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.table.Load().policies[name]
	if p == nil {
		return
	}
	h.remove(p)
	p.notify(Notice{Change: PolicyUnloaded, Digest: p.digest()})
	h.releaseAll(p)
}

// followOne loads a policy of the store, unless the host has it already. changed is false if queues need not be attached again. The caller
// holds loading.
func (h *Host) followOne(k StoredPolicy) (c followed, changed bool) {
	p := h.table.Load().policies[k.Name]
	if err := checkName(k.Name); err != nil {
		newReport(h.env.Log, k.Name).lost(err)
		return c, false
	}
	switch {
	case p == nil:
	case p.origin == Configured:
		p.report.superseded()
		return c, false
	case p.origin == Shadow:
		h.dropFollowed(k.Name) // its name is needed; it had no effect
		p = nil
	case h.follows(p, k):
		return c, false
	}
	if p != nil && h.replaceFollowed(p, k) {
		return followed{k.Name, p.review(k.Options.Recompute)}, true
	}
	if p != nil {
		h.dropFollowed(k.Name)
	}
	p = h.addFollowed(k)
	return followed{k.Name, p.active.Load() != nil && p.review(false)}, true
}

// follows reports whether a policy equals the one in the store, because it was loaded here
// or followed before. A version that was rolled back here is not tried again.
func (h *Host) follows(p *policy, k StoredPolicy) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p.revision == k.Revision {
		return true
	}
	if _, why := p.loadState(); why != nil || k.Damage != nil {
		return false
	}
	is, was := k.Options, p.source.options
	is.Recompute, was.Recompute, is.Digest, was.Digest = false, false, "", ""
	same := bytes.Equal(p.source.module, k.Module) && reflect.DeepEqual(is, was)
	if same {
		p.revision = k.Revision
	}
	return same
}

// replaceFollowed makes the stored module the next version of a policy. It returns false if the module cannot be loaded.
func (h *Host) replaceFollowed(p *policy, k StoredPolicy) bool {
	if errors.Join(k.Damage, k.Options.check()) != nil {
		return false
	}
	v, err := h.makeVersion(p, source{k.Module, k.Options})
	if err != nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.replaceVersion(p, v)
	p.revision = k.Revision
	return true
}

// addFollowed adds a policy that is new here, or replaces one that was removed. Queues may choose it at once, before its module
// is compiled: on-error decides about their messages until then. The caller holds loading.
func (h *Host) addFollowed(k StoredPolicy) *policy {
	p := &policy{name: k.Name, origin: Loaded, absentAs: k.Options.OnError, source: source{k.Module, k.Options}, revision: k.Revision}
	h.addNow(p)
	if err := errors.Join(k.Damage, k.Options.check()); err != nil {
		p.setLoadError(err, true)
	} else if err := h.activateStored(p); err != nil {
		p.setLoadError(err, false)
	}
	return p
}

// watch collects the facts of a call for its traced messages. nil means that none of them is traced, as in nearly all calls.
type watch struct {
	hook       abi.Hook
	began      hook.Instant
	fuel       int64
	failures   map[int]string   // of invalid verdicts, by message
	attributes map[int][]string // alternating names and values, by message
}

// maxAttributes bounds the attributes of a message in one call.
const maxAttributes = 32

// watch returns nil unless a message is traced. A shadow's call is never watched, because its verdicts have no effect.
func (c *call) watch(v *version, h abi.Hook) *watch {
	if c.shadowing {
		return nil
	}
	for i := range c.ms {
		if c.ms[i].Traced {
			return &watch{hook: h, began: v.policy.host.time()}
		}
	}
	return nil
}

// time returns the time; 0 without a clock.
func (h *Host) time() hook.Instant {
	if h.env.Clock == nil {
		return 0
	}
	return h.env.Clock()
}

// next begins the next call, if each message has its own.
func (w *watch) next(v *version) { *w = watch{hook: w.hook, began: v.policy.host.time()} }

// failed records an invalid verdict.
func (w *watch) failed(i int, why mistake, a *verdict) {
	if w == nil {
		return
	}
	if w.failures == nil {
		w.failures = map[int]string{}
	}
	w.failures[i] = mistakes{what: why, verdict: *a}.String()
}

// attribute records a guest's attribute of a message. It returns false if the message is not traced.
func (w *watch) attribute(i int, m *hook.Message, name, value string) bool {
	if w == nil || !m.Traced {
		return false
	}
	if w.attributes == nil {
		w.attributes = map[int][]string{}
	}
	if len(w.attributes[i]) < 2*maxAttributes {
		w.attributes[i] = append(w.attributes[i], name, value)
	}
	return true
}

// report passes the decisions about the traced messages to the broker. failure is why the whole call failed, with its kind; "" = it did
// not.
func (w *watch) report(c *call, v *version, k kind, failure string) {
	if w == nil {
		return
	}
	took, digest := v.policy.host.time().Sub(w.began), v.digestLabel()
	for i := range c.ms {
		if !c.ms[i].Traced {
			continue
		}
		d := guest.Decision{
			Policy: v.policy.name, Digest: digest, Hook: w.hook.String(), Took: took, Batch: len(c.ms), Fuel: w.fuel,
			Verdict: c.vs[i], Failure: failure, Attributes: w.attributes[i],
		}
		if failure == "" {
			k, d.Failure = invalidVerdict, w.failures[i]
		}
		if d.Failure != "" {
			d.FailureKind = k.String()
		}
		guest.Decided(&c.ms[i], &d)
	}
}

// digestLabel returns the digest of the version's module; "" if there is none.
func (v *version) digestLabel() string {
	if v.module == nil {
		return ""
	}
	return "sha256:" + v.module.Digest
}
