package wasm

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
)

// Carried is a policy with everything that another broker needs to load it.
type Carried struct {
	Name    string
	Module  []byte  // nil = the module cannot be read, or the file of a configured policy no longer contains the module in force
	Options Options // with the Digest of the module in force; "" = there is none
	Origin  Origin
}

// Carried returns all policies except shadows.
func (h *Host) Carried() []Carried {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.table.Load()
	var all []Carried
	for _, name := range slices.Sorted(maps.Keys(t.policies)) {
		if p := t.policies[name]; p.origin != Shadow {
			all = append(all, p.carried())
		}
	}
	return all
}

func (p *policy) carried() Carried {
	c := Carried{Name: p.name, Module: p.source.module, Options: p.source.options, Origin: p.origin}
	if p.origin == Configured {
		c.Module, _ = readModule(p.path) // nil if it cannot be read
	}
	sum := sha256.Sum256(c.Module)
	c.Options.Digest = hex.EncodeToString(sum[:])
	switch {
	case p.origin == Configured && p.digest() != c.Options.Digest:
		c.Module, c.Options.Digest = nil, p.digest()
	case len(c.Module) == 0:
		c.Module, c.Options.Digest = nil, ""
	}
	return c
}
