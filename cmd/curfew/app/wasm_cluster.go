package app

import (
	"encoding/json"
	"fmt"

	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/plugins/wasm"
)

// clusterModules is the [wasm.Store] of a node of a cluster: the registry, which all nodes
// follow. Only the registry's owner saves and deletes.
type clusterModules struct {
	store func() (st *store.Store, ok bool)
}

var _ wasm.Store = clusterModules{}

func (c clusterModules) registry() *store.Registry {
	if st, ok := c.store(); ok {
		return st.Registry()
	}
	return nil
}

type moduleOptions struct {
	wasm.Options
	// Recompute is not stored by a single broker for its next start. Here other nodes have to act on it.
	Recompute bool `json:"recompute,omitempty"`
}

// Save implements [wasm.Store].
func (c clusterModules) Save(k wasm.StoredPolicy) error {
	r := c.registry()
	if r == nil {
		return wlog.ErrUnwritten
	}
	options, err := json.Marshal(moduleOptions{k.Options, k.Options.Recompute})
	if err != nil {
		return err
	}
	return r.SaveModule(k.Name, options, k.Module)
}

// Delete implements [wasm.Store].
func (c clusterModules) Delete(name string) error {
	r := c.registry()
	if r == nil {
		return wlog.ErrUnwritten
	}
	_, err := r.DeleteModule(name)
	return err
}

// LoadAll implements [wasm.Store]. It returns nothing, because the registry's modules are followed from the node's start on.
func (clusterModules) LoadAll() ([]wasm.StoredPolicy, error) { return nil, nil }

// Follow implements [broker.Policies].
func (p *policyHost) Follow(all []*store.Module) {
	p.host.Follow(func() []wasm.StoredPolicy {
		if r := (clusterModules{p.env.Store}).registry(); r != nil {
			all = r.Modules()
		}
		stored := make([]wasm.StoredPolicy, len(all))
		for i, m := range all {
			stored[i] = storedModule(m)
		}
		return stored
	})
}

// storedModule reads a module of the registry.
func storedModule(m *store.Module) wasm.StoredPolicy {
	var o moduleOptions
	if err := json.Unmarshal(m.Options, &o); err != nil {
		return wasm.StoredPolicy{Name: m.Name, Revision: m.Revision, Damage: fmt.Errorf("the settings of module %q: %w", m.Name, err)}
	}
	o.Options.Recompute = o.Recompute
	return wasm.StoredPolicy{Name: m.Name, Module: m.Bytes, Options: o.Options, Revision: m.Revision}
}
