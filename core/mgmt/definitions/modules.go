package definitions

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/policies"
)

// Module is an expiry policy as it is uploaded.
type Module struct {
	Name    string
	Module  []byte
	Digest  string // required SHA-256 of the module, in hexadecimal; "" = any
	Config  json.RawMessage
	Grants  []string
	Fuel    string
	OnError string
	// Recompute restamps queued messages.
	Recompute bool
	// Shadow is the strategy beside which the policy runs without effect; "" = the policy becomes a strategy itself.
	Shadow string
}

// Modules are the expiry policies of a broker. Any goroutine may use them.
type Modules interface {
	// Carried returns the policies except shadows, each with everything that is needed to load it elsewhere. A policy whose module cannot
	// be read has no module here.
	Carried() []Carried
	// Load makes a module a policy, or the next version of one. It reports whether the name
	// is new, and warns of possible errors in a module that works.
	Load(m Module) (created bool, warnings []string, err error)
	// Unload unloads a policy; force unloads it even if queues have chosen it.
	Unload(name string, force bool) error
	// Canonical returns a policy with its settings in the form that Carried and descriptions use, if they are valid.
	Canonical(m Module) Module
}

// Carried is a policy of a broker.
type Carried struct {
	Module
	Fixed bool // the policy is in the configuration, and cannot be replaced
}

// Same reports whether loading other would change nothing.
func (m *Module) Same(other *Module) bool {
	return m.Digest == other.Digest && m.Fuel == other.Fuel && m.OnError == other.OnError && slices.Equal(m.Grants, other.Grants) &&
		sameJSON(m.Config, other.Config)
}

func sameJSON(a, b json.RawMessage) bool {
	x, errX := jsonobj.Parse(a)
	y, errY := jsonobj.Parse(b)
	if errX != nil || errY != nil {
		return len(a) == len(b) && len(a) == 0
	}
	return string(jsonobj.Marshal(x)) == string(jsonobj.Marshal(y))
}

// modulesSection is the member of definitions with expiry policies. RabbitMQ ignores it.
const modulesSection = "wasm_policies"

// strategyPrefix begins the names of strategies that are expiry policies.
const strategyPrefix = "wasm/"

// StrategyOf returns the name of an expiry policy as a strategy.
func StrategyOf(policy string) string { return strategyPrefix + policy }

func describeModule(m Carried) object {
	o := object{{"name", m.Name}, {"digest", m.Digest}, {"fuel", m.Fuel}, {"on_error", m.OnError}, {"grants", Tags(m.Grants)}}
	if len(m.Config) > 0 {
		o.Add("config", m.Config)
	}
	return append(o, member{"module", base64.StdEncoding.EncodeToString(m.Module.Module)})
}

// carried returns the policies that are exported with the definitions of the whole broker or, unless v is nil, of one vhost. Policies whose
// module cannot be read are left out.
func (d *Definitions) carried(v *vhost.VHost) []Carried {
	if d.Modules == nil {
		return nil
	}
	all := slices.DeleteFunc(d.Modules.Carried(), func(m Carried) bool { return len(m.Module.Module) == 0 })
	if v == nil {
		return all
	}
	named := strategiesOf(v)
	return slices.DeleteFunc(all, func(m Carried) bool { return !named[strategyPrefix+m.Name] })
}

// strategiesOf returns the expiry strategies that queues and policies of a vhost name.
func strategiesOf(v *vhost.VHost) map[string]bool {
	named := map[string]bool{}
	for _, q := range v.Queues() {
		named[q.Config().Strategy] = true
	}
	for _, kind := range []policies.Kind{policies.User, policies.Operator} {
		for _, p := range v.Policies().List(kind) {
			for _, e := range p.Definition {
				if s, ok := e.Value.(string); ok && e.Key == strategyKey {
					named[s] = true
				}
			}
		}
	}
	return named
}

// ReadModule reads a policy from an object, which may have other members, too.
func ReadModule(r *reader, name string) Module {
	m := Module{
		Name: name, Digest: textOrNumber(r, "digest"), Fuel: textOrNumber(r, "fuel"), OnError: textOrNumber(r, "on_error"),
		Shadow: textOrNumber(r, "shadow"), Recompute: r.Flag("recompute"), Grants: r.Texts("grants"),
	}
	if config := r.Object("config"); !config.Empty() {
		m.Config = config.Raw()
	}
	b, err := base64.StdEncoding.DecodeString(r.Text("module"))
	if err != nil {
		r.Fail(jsonobj.Errorf("module is not base64: %s", err.Error()))
	}
	m.Module = b
	return m
}

// textOrNumber returns a string, or a number as it was written.
func textOrNumber(r *reader, key string) string {
	if n, ok := r.Value(key).(json.Number); ok {
		return n.String()
	}
	return r.Text(key)
}

// module reads a policy of a file.
func (p *planner) module(r *reader) {
	r.Need("name", "module")
	m := ReadModule(r, r.Name("name"))
	m.Recompute, m.Shadow, m.Fuel, m.OnError = false, "", cmp.Or(m.Fuel, "default"), cmp.Or(m.OnError, "builtin")
	if p.named[m.Name] {
		r.Fail(jsonobj.Errorf("is there twice"))
	}
	p.named[m.Name] = true
	sum := sha256.Sum256(m.Module)
	digest := hex.EncodeToString(sum[:])
	if given := strings.TrimPrefix(m.Digest, "sha256:"); given != "" && !strings.EqualFold(given, digest) {
		r.Fail(jsonobj.Errorf("digest: the module's is %s", digest))
	}
	m.Digest = digest
	if p.Modules != nil {
		m = p.Modules.Canonical(m)
	}
	p.modules = append(p.modules, m)
}

// readModulesSection reads the expiry policies of a file.
func (d *Definitions) readModulesSection(r *reader) ([]Module, error) {
	p := &planner{Definitions: d, named: map[string]bool{}, plan: plan{unread: map[unreadName]bool{}}}
	p.each(r, modulesSection, "expiry policy", p.module)
	return p.modules, p.problems.all()
}

// ModulesIn returns the expiry policies of a file with definitions, with defaults for missing settings. For a file that is refused it
// returns none.
func (d *Definitions) ModulesIn(file []byte) []Module {
	r, err := readFile(file)
	if err != nil {
		return nil
	}
	all, err := d.readModulesSection(r)
	if err != nil {
		return nil
	}
	return all
}

// checkUnchosen refuses a dry run that would have to load a missing policy which queues here have chosen: the policy would decide about
// their messages while the file is checked.
func (d *Definitions) checkUnchosen(r *reader) error {
	all, err := d.readModulesSection(r)
	if err != nil || d.Modules == nil {
		return err
	}
	absent := map[string]int{}
	for _, m := range all {
		absent[StrategyOf(m.Name)] = 0
	}
	for _, m := range d.Modules.Carried() {
		delete(absent, StrategyOf(m.Name))
	}
	if len(absent) == 0 {
		return nil
	}
	for _, v := range d.Store.VHosts() {
		for _, q := range v.Queues() {
			chosen, _ := q.Config().Settings(strategyKey)
			name, _ := chosen.(string)
			if n, is := absent[name]; is {
				absent[name] = n + 1
			}
		}
	}
	for _, m := range all {
		if n := absent[StrategyOf(m.Name)]; n > 0 {
			return jsonobj.Errorf("expiry policy '%s': queues have chosen it, which is not loaded: %d of them. It would decide about their messages while the file is checked, so there is no dry run: "+
				"leave the policy out of the file, or load it first", m.Name, n)
		}
	}
	return nil
}

// moduleImport is the import of a file's policies.
type moduleImport struct {
	*Definitions
	all      []Module // policies of the file
	replaced []Module // policies to load with the other definitions, in place of another version
	before   []Module // the versions that replaced replaces, in its order
	added    []string // names of policies that this import has loaded anew
	warnings []string
}

// loadModules loads the new policies of a file, so that definitions that name them can be checked.
func (d *Definitions) loadModules(all []Module) (*moduleImport, error) {
	i := &moduleImport{Definitions: d, all: all}
	if d.Modules == nil {
		if len(all) > 0 {
			i.warnings = append(i.warnings, modulesSection+": none is loaded, because the plugin wasm is not in plugins.chain")
		}
		return i, nil
	}
	there := d.Modules.Carried()
	for _, m := range all {
		at := slices.IndexFunc(there, func(o Carried) bool { return o.Name == m.Name })
		switch {
		case at < 0:
			if err := i.load(m); err != nil {
				i.undo()
				return nil, err
			}
			i.added = append(i.added, m.Name)
			d.provide(m.Name)
		case there[at].Module.Same(&m):
		case there[at].Fixed:
			i.warnings = append(i.warnings, fmt.Sprintf("%s%s: stays as the configuration has it, which is not as in the file", strategyPrefix, m.Name))
		default:
			i.replaced, i.before = append(i.replaced, m), append(i.before, there[at].Module)
		}
	}
	return i, nil
}

func (i *moduleImport) load(m Module) error {
	_, warnings, err := i.Modules.Load(m)
	for _, w := range warnings {
		i.warnings = append(i.warnings, fmt.Sprintf("%s%s: %s", strategyPrefix, m.Name, w))
	}
	return err
}

// replace loads the policies that the broker has in another version. If one is refused, all policies are as before the import.
func (i *moduleImport) replace() error {
	for n, m := range i.replaced {
		if err := i.load(m); err != nil {
			i.putBack(i.before[:n])
			i.undo()
			return err
		}
	}
	return nil
}

// putBack loads versions that were replaced.
func (i *moduleImport) putBack(all []Module) {
	for _, m := range all {
		if _, _, err := i.Modules.Load(m); err != nil {
			i.Log.Warn("import: a policy stays as in definitions that were refused", "policy", m.Name, "error", err)
		}
	}
}

// undo unloads the added policies, except for policies that were kept meanwhile.
func (i *moduleImport) undo() {
	for _, name := range i.added {
		if !i.Keep(name) {
			continue
		}
		if err := i.Modules.Unload(name, true); err != nil {
			i.Log.Warn("import: a policy of definitions that were refused stays loaded", "policy", name, "error", err)
		}
	}
}

// provide notes that a policy will be unloaded again unless it is kept.
func (d *Definitions) provide(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.provisional[name] = struct{}{}
}

// Keep notes that a policy stays, however it was loaded. It reports whether the policy would have been unloaded.
func (d *Definitions) Keep(name string) (provisional bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, provisional = d.provisional[name]
	delete(d.provisional, name)
	return provisional
}

// keep keeps the policies of a file whose definitions are applied.
func (i *moduleImport) keep() {
	for _, m := range i.all {
		i.Keep(m.Name)
	}
}

// The members of definitions that name an expiry strategy.
const (
	strategyKey      = "expiry-strategy"
	strategyArgument = "x-" + strategyKey
)

// wanting collects the expiry policies that definitions name.
type wanting struct {
	in string // see planner
	by map[string]string
}

// add notes that a definition names a strategy.
func (w *wanting) add(what string, o map[string]any, strategy any) {
	name, ok := strategy.(string)
	if !ok || !strings.HasPrefix(name, strategyPrefix) || w.by[name] != "" {
		return
	}
	in, _ := o["vhost"].(string)
	if w.in != "" {
		in = w.in
	}
	w.by[name] = fmt.Sprintf("%s '%.64v' in vhost '%.64s'", what, o["name"], in)
}

// each calls do for the objects of a section.
func (w *wanting) each(r *reader, section string, do func(o map[string]any)) {
	items, _ := r.Value(section).([]any)
	for _, it := range items {
		if o, ok := it.(map[string]any); ok {
			do(o)
		}
	}
}

// checkStrategies refuses definitions that name missing expiry policies, and lists all of these.
func (d *Definitions) checkStrategies(r *reader, in string, modules []Module) error {
	w := &wanting{in: in, by: map[string]string{}}
	inner := func(o map[string]any, key string) map[string]any {
		m, _ := o[key].(map[string]any)
		return m
	}
	w.each(r, "queues", func(o map[string]any) { w.add("queue", o, inner(o, "arguments")[strategyArgument]) })
	w.each(r, "policies", func(o map[string]any) { w.add("policy", o, inner(o, "definition")[strategyKey]) })
	w.each(r, "parameters", func(o map[string]any) { w.add("parameter", o, inner(inner(o, "value"), "definition")[strategyKey]) })
	if d.Modules != nil {
		for _, m := range modules {
			delete(w.by, strategyPrefix+m.Name)
		}
		for _, m := range d.Modules.Carried() {
			delete(w.by, strategyPrefix+m.Name)
		}
	}
	if len(w.by) == 0 {
		return nil
	}
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(w.by)) {
		missing = append(missing, fmt.Sprintf("%.80s, which %s names", name, w.by[name]))
	}
	const most = 20
	if n := len(missing); n > most {
		missing = append(missing[:most], fmt.Sprintf("and %d more", n-most))
	}
	how := "load them first, or export the definitions with them"
	if d.Modules == nil {
		how = "the plugin wasm is not in plugins.chain"
	}
	return jsonobj.Errorf("missing expiry policies: %s; %s", strings.Join(missing, ", "), how)
}
