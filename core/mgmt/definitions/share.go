package definitions

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
)

// Step is a part of an import into a cluster. Several nodes get the whole file, each for another step.
type Step string

// The steps, in order. Those that check change nothing.
const (
	// CheckUnchosen, in a dry run only, checks that what LoadModules would load decides about no messages at the node.
	CheckUnchosen Step = "check-unchosen"
	// LoadModules loads expiry policies that are new, at the owner of the registry: what is checked next may name them.
	LoadModules Step = "load-modules"
	// UnloadModules unloads policies whose names are the file, a JSON list: the import that they were loaded for is refused.
	UnloadModules Step = "unload-modules"
	// CheckRegistry checks what goes into the registry, and what goes into vhosts that are new.
	CheckRegistry Step = "check-registry"
	// CheckVHosts checks what goes into the vhosts that live at the node.
	CheckVHosts Step = "check-vhosts"
	// ApplyRegistry makes users, vhosts, permissions and global parameters, and replaces expiry policies, at the owner of the registry.
	ApplyRegistry Step = "apply-registry"
	// ApplyVHosts makes what goes into the vhosts that live at the node.
	ApplyVHosts Step = "apply-vhosts"
)

// Outcome is what came of a step.
type Outcome struct {
	Added    []string // names of expiry policies that were loaded, and were not there before
	Warnings []string
	VHosts   []string // of those that the file is about: they were checked, or applied, because they are served by the node
}

// ImportStep does a step of an import into a cluster, which otherwise is [Definitions.Import]. known reports whether the cluster has a vhost,
// at whichever node.
func (d *Definitions) ImportStep(step Step, b []byte, in, user string, known func(vhost string) bool) (o Outcome, err error) {
	if step == UnloadModules {
		return o, d.unload(b)
	}
	r, err := readFile(b)
	if err != nil {
		return o, err
	}
	d.importing.Lock()
	defer d.importing.Unlock()
	switch step {
	case CheckUnchosen:
		return o, d.checkUnchosen(r)
	case LoadModules:
		m, err := d.readModules(r, in)
		if err != nil {
			return o, err
		}
		return Outcome{Added: m.added, Warnings: m.warnings}, nil
	}
	hash := unhashed
	if step == ApplyRegistry {
		hash = d.Hash
	}
	p := d.read(r, in, hash)
	switch step {
	case CheckRegistry:
		p.only(func(vhost string) bool { return !known(vhost) }, true)
		err := d.check(p, known)
		return Outcome{Warnings: p.warnings()}, err
	case CheckVHosts:
		o.VHosts, err = d.onlyHere(p, b, in)
		err = cmp.Or(err, d.check(p, known))
		o.Warnings = p.warnings()
		return o, err
	case ApplyRegistry:
		return d.applyRegistry(r, p, in, user)
	case ApplyVHosts:
		o.VHosts, err = d.onlyHere(p, b, in)
		if err = cmp.Or(err, d.check(p, known)); err == nil {
			err = partly(d.apply(p, user))
		}
		return o, err
	}
	return o, jsonobj.Errorf("import: the step %q is unknown", string(step))
}

// unhashed is the hash of passwords for the steps that make no users.
func unhashed(string) (auth.Hash, error) { return auth.Hash{}, nil }

// unload unloads expiry policies whose names are a JSON list.
func (d *Definitions) unload(names []byte) error {
	var m moduleImport
	if json.Unmarshal(names, &m.added) != nil {
		return jsonobj.Errorf("the names of expiry policies are expected")
	}
	if m.Definitions = d; d.Modules != nil {
		m.undo()
	}
	return nil
}

// Sections are the vhosts that definitions are about, and whether they have expiry policies.
func Sections(b []byte, in string) (vhosts []string, modules bool, err error) {
	r, err := readFile(b)
	if err != nil {
		return nil, false, err
	}
	all := map[string]bool{}
	for _, section := range []string{"permissions", "topic_permissions", "parameters", "policies", "exchanges", "queues", "bindings"} {
		items, _ := r.Value(section).([]any)
		for _, it := range items {
			o, _ := it.(map[string]any)
			if name, ok := o["vhost"].(string); ok {
				all[name] = true
			}
		}
	}
	if in != "" {
		all = map[string]bool{in: true}
	}
	for name := range all {
		vhosts = append(vhosts, name)
	}
	slices.Sort(vhosts)
	return vhosts, r.Has(modulesSection), nil
}

// Counts returns how many definitions a file has in each of its sections. An import into one vhost passes over those that are not in vhosts.
func Counts(b []byte, in string) (jsonobj.Object, error) {
	r, err := readFile(b)
	if err != nil {
		return nil, err
	}
	counts := object{}
	for _, section := range []string{
		"vhosts", "users", "permissions", "topic_permissions", "global_parameters", "parameters", "policies", "exchanges", "queues", "bindings", modulesSection,
	} {
		ofBroker := section == "vhosts" || section == "users" || strings.HasSuffix(section, "permissions") || section == "global_parameters"
		if items, ok := r.Value(section).([]any); ok && (in == "" || !ofBroker) {
			counts.Add(section, len(items))
		}
	}
	return counts, nil
}

// readFile reads the JSON of a file.
func readFile(b []byte) (*reader, error) {
	r := jsonobj.Read(b, nil)
	if errors.Is(r.Err(), jsonobj.ErrNotJSON) {
		_, where, _ := strings.Cut(r.Err().Error(), jsonobj.ErrNotJSON.Text())
		return nil, jsonobj.Errorf("failed_to_parse_json%s", where)
	}
	return r, r.Err()
}

func (d *Definitions) here(vhost string) bool {
	_, ok := d.Store.VHost(vhost)
	return ok
}

// onlyHere takes out of a plan what is not in vhosts that are here, and returns which of the file's vhosts are.
func (d *Definitions) onlyHere(p *plan, b []byte, in string) (here []string, err error) {
	all, _, err := Sections(b, in)
	if err != nil {
		return nil, err
	}
	here = slices.DeleteFunc(all, func(vhost string) bool { return !d.here(vhost) }) // once: they may come and go
	p.only(func(vhost string) bool { return slices.Contains(here, vhost) }, false)
	return here, nil
}

// only takes out of a plan what is in other vhosts and, without registry, what is in none.
func (p *plan) only(in func(vhost string) bool, registry bool) {
	p.parameters, p.policies = filtered(p.parameters, in), filtered(p.policies, in)
	p.exchanges, p.queues, p.bindings = filtered(p.exchanges, in), filtered(p.queues, in), filtered(p.bindings, in)
	if !registry {
		p.vhosts, p.users, p.grants, p.topics, p.globals = nil, nil, nil, nil, nil
	}
}

func filtered[T any](all []scoped[T], in func(vhost string) bool) []scoped[T] {
	return slices.DeleteFunc(all, func(s scoped[T]) bool { return !in(s.vhost) })
}

// applyRegistry makes what goes into the registry.
func (d *Definitions) applyRegistry(r *reader, p *plan, in, user string) (o Outcome, err error) {
	if err := p.problems.all(); err != nil {
		return o, err
	}
	m, err := d.readModules(r, in)
	if err != nil {
		return o, err
	}
	if err := m.replace(); err != nil {
		return o, err
	}
	m.keep()
	p.only(func(string) bool { return false }, true)
	return Outcome{Added: m.added, Warnings: m.warnings}, partly(d.apply(p, user))
}

// ErrPartly says that a part of what was asked for is in force. What the rest says of itself, that nothing was done, is not true of the whole.
var ErrPartly = errors.New("a part is in force")

// partly says that a part of the definitions is in force.
func partly(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("import, of which %w: %w", ErrPartly, err)
}
