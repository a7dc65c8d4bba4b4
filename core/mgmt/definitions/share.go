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

// The steps, in order. Steps that check change nothing.
const (
	// CheckUnchosen, in a dry run only, checks that the policies that LoadModules would load decide about no messages at the node.
	CheckUnchosen Step = "check-unchosen"
	// LoadModules loads new expiry policies at the owner of the registry, because the definitions that are checked next may name them.
	LoadModules Step = "load-modules"
	// UnloadModules unloads the policies that LoadModules has loaded, after the import was refused. The file is a JSON list of their names.
	UnloadModules Step = "unload-modules"
	// CheckRegistry checks the definitions for the registry and for new vhosts.
	CheckRegistry Step = "check-registry"
	// CheckVHosts checks the definitions for the vhosts that the node serves.
	CheckVHosts Step = "check-vhosts"
	// ApplyRegistry creates users, vhosts, permissions and global parameters, and replaces expiry policies, at the owner of the registry.
	ApplyRegistry Step = "apply-registry"
	// ApplyVHosts creates the definitions in the vhosts that the node serves.
	ApplyVHosts Step = "apply-vhosts"
)

// Outcome is the result of a step.
type Outcome struct {
	Added    []string // names of expiry policies that the step has loaded anew
	Warnings []string
	VHosts   []string // vhosts of the file that were checked or applied, because the node serves them
}

// ImportStep carries out a step of an import into a cluster. All steps together do the same as [Definitions.Import]. known reports whether
// the cluster has a vhost, at any node.
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

// unhashed is the hash of passwords in steps that create no users.
func unhashed(string) (auth.Hash, error) { return auth.Hash{}, nil }

// unload unloads the expiry policies named by a JSON list.
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

// Sections returns the vhosts that definitions belong to, and whether the definitions have expiry policies.
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

// Counts returns how many definitions a file has in each section. An import into one vhost ignores vhosts, users, permissions and global
// parameters, so Counts leaves these out then.
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

// onlyHere removes from a plan the definitions in vhosts that this node does not serve, and returns which of the file's vhosts it serves.
func (d *Definitions) onlyHere(p *plan, b []byte, in string) (here []string, err error) {
	all, _, err := Sections(b, in)
	if err != nil {
		return nil, err
	}
	here = slices.DeleteFunc(all, func(vhost string) bool { return !d.here(vhost) }) // read once, because vhosts may move meanwhile
	p.only(func(vhost string) bool { return slices.Contains(here, vhost) }, false)
	return here, nil
}

// only removes the definitions in other vhosts from a plan and, unless registry is set, also the definitions in no vhost.
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

// ErrPartly says that a part of the request was carried out. A joined error that says that nothing was done is true only of its own part.
var ErrPartly = errors.New("a part is in force")

// partly says that a part of the definitions was applied.
func partly(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("import, of which %w: %w", ErrPartly, err)
}
