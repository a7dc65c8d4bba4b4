package wasm

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ErrNoPrevious means that a policy has had no other version since the broker started, or that the previous version is no longer kept.
var ErrNoPrevious = errors.New("there is no version before the present one")

// Activate turns a shadow's module into a policy: into the next version of the policy that it runs beside or, if it runs beside another
// plugin's strategy, into a policy of its own name. The shadow is removed. With recompute, queued messages get new deadlines.
func (h *Host) Activate(name string, recompute bool) (Info, error) {
	p := h.table.Load().policies[name]
	switch {
	case p == nil:
		return Info{}, fmt.Errorf("policy %q: %w", name, ErrUnknown)
	case p.origin != Shadow:
		return Info{}, fmt.Errorf("policy %q: %w", name, ErrNotShadow)
	}
	h.mu.Lock()
	s := p.source
	h.mu.Unlock()
	s.options.Recompute = recompute
	if as, ok := strings.CutPrefix(p.beside, prefix); ok {
		i, err := h.Load(as, s.module, s.options)
		if err == nil {
			err = h.Unload(name, false)
		}
		return i, err
	}
	if err := h.Unload(name, false); err != nil { // the name is needed
		return Info{}, err
	}
	i, err := h.Load(name, s.module, s.options)
	if err != nil {
		_, again := h.Shadow(name, s.module, s.options, p.beside)
		err = errors.Join(err, again)
	}
	return i, err
}

// Back puts the previous version of a loaded policy in force again. The present version becomes the previous one.
func (h *Host) Back(name string, recompute bool) (Info, error) {
	p := h.table.Load().policies[name]
	if p == nil {
		return Info{}, fmt.Errorf("policy %q: %w", name, ErrUnknown)
	}
	p.mu.Lock()
	before := p.previous
	p.mu.Unlock()
	switch {
	case p.origin == Configured:
		return Info{}, fmt.Errorf("policy %q: %w", name, ErrConfigured)
	case p.origin == Shadow || before == nil:
		return Info{}, fmt.Errorf("policy %q: %w", name, ErrNoPrevious)
	}
	s := before.source
	s.options.Recompute = recompute
	return h.Load(name, s.module, s.options)
}

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
