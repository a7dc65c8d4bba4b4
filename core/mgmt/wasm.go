package mgmt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/mgmt/definitions"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
)

// Modules are the expiry policies in WebAssembly, which a plugin runs. Any goroutine may use them. Errors that a client has caused
// are [*ModuleError].
type Modules interface {
	// List describes all policies, each as a JSON object that has the member name.
	List() []json.RawMessage
	// Load makes a module a policy, or the next version of one. It reports whether the name is new, and warns of possible errors in a
	// module that works.
	Load(m Module) (created bool, warnings []string, err error)
	// Reload loads a policy again from its source. It returns the same warnings as Load.
	Reload(name string, recompute bool) (warnings []string, err error)
	// Unload takes a policy away, with force even from queues that have chosen it.
	Unload(name string, force bool) error
	// Alarms names the policies that cannot be asked.
	Alarms() []string
}

// Module is a policy as it is uploaded.
type Module = definitions.Module

// ModuleProblem is the kind of a [ModuleError].
type ModuleProblem uint8

// The kinds.
const (
	ModuleRefused ModuleProblem = iota // the module, its settings or its name are invalid
	NoModule                           // there is no policy of that name
	ModuleInUse                        // the policy cannot be replaced or unloaded
)

// ModuleError says why a policy stays unchanged.
type ModuleError struct {
	Kind ModuleProblem
	Text string
}

func (e *ModuleError) Error() string { return e.Text }

// failureOfModule returns the answer for an error of [Modules].
func failureOfModule(err error) error {
	e, ok := errors.AsType[*ModuleError](err)
	switch {
	case !ok:
		return err
	case e.Kind == NoModule:
		return &failure{http.StatusNotFound, "not_found", e.Text}
	case e.Kind == ModuleInUse:
		return &failure{http.StatusConflict, "conflict", e.Text}
	}
	return badRequest("%s", e.Text)
}

var errNoWASM = &failure{http.StatusNotFound, "not_found", "the plugin wasm is not in plugins.chain"}

// moduleHandlers show and change expiry policies.
type moduleHandlers struct {
	modules Modules // nil = the plugin is not there
	lab     Lab     // nil = decisions are unknown
}

// withModules is a handler that needs the plugin for policies in WebAssembly.
func (a *moduleHandlers) withModules(do func(*request, Modules) error) handler {
	return func(c *request) error {
		if a.modules == nil {
			return errNoWASM
		}
		return do(c, a.modules)
	}
}

func listModules(c *request, m Modules) error {
	all, err := describeModules(m)
	if err != nil {
		return err
	}
	return listObjects(c, all)
}

func describeModules(m Modules) ([]object, error) {
	var all []object
	for _, raw := range m.List() {
		v, err := jsonobj.Parse(raw)
		if err != nil {
			return nil, err
		}
		o, _ := jsonobj.FromParsed(v).(object)
		all = append(all, o)
	}
	return all, nil
}

func oneModule(c *request, m Modules) error {
	all, err := describeModules(m)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(o object) bool { return nameOf(o) == c.vars["name"] })
	if i < 0 {
		return errNotFound
	}
	return c.reply(all[i])
}

// moduleTimeout is how long the work on a module may take: compiling a large module of Go's can take a minute.
const moduleTimeout = 10 * time.Minute

// maxModuleBody is enough for the largest module, 8 MiB, in base64, and its settings.
const maxModuleBody = 12 << 20

func putModule(c *request, m Modules) error {
	r := c.jsonBody(maxModuleBody)
	upload := readModule(r, c.vars["name"])
	if err := r.Err(); err != nil {
		return err
	}
	c.takeTime(moduleTimeout)
	created, warnings, err := m.Load(upload)
	if err != nil {
		return failureOfModule(err)
	}
	c.api.definitions.files.Keep(upload.Name)
	c.api.Log.Info("a policy was loaded", "policy", upload.Name, "user", c.user.Name, "bytes", len(upload.Module))
	if len(warnings) == 0 {
		return c.created(created, nil)
	}
	return c.warned(created, warnings)
}

// warned answers a change that was made with warnings.
func (c *request) warned(created bool, warnings []string) error {
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	writeObject(c.w, status, object{{"warnings", warnings}})
	return nil
}

func readModule(r *jsonobj.Reader, name string) Module {
	r.Only("module", "digest", "config", "grants", "fuel", "on_error", "recompute", "shadow")
	r.Need("module")
	return definitions.ReadModule(r, name)
}

func reloadModule(c *request, m Modules) error { return changeVersion(c, m.Reload) }

// activate puts a shadow in force.
func (a *moduleHandlers) activate(c *request) error {
	if a.modules == nil || a.lab == nil {
		return errNoWASM
	}
	return changeVersion(c, a.lab.Activate)
}

// back puts the version before in force.
func (a *moduleHandlers) back(c *request) error {
	if a.modules == nil || a.lab == nil {
		return errNoWASM
	}
	return changeVersion(c, a.lab.Back)
}

// changeVersion answers a change of the version of the policy that the path names.
func changeVersion(c *request, change func(name string, recompute bool) (warnings []string, err error)) error {
	r := c.body()
	recompute := r.Flag("recompute")
	if err := r.Err(); err != nil {
		return err
	}
	c.takeTime(moduleTimeout)
	warnings, err := change(c.vars["name"], recompute)
	if err != nil {
		return failureOfModule(err)
	}
	c.api.Log.Info("the version of a policy was changed", "policy", c.vars["name"], "user", c.user.Name)
	if len(warnings) == 0 {
		return c.done(nil)
	}
	return c.warned(false, warnings)
}

func deleteModule(c *request, m Modules) error {
	if err := m.Unload(c.vars["name"], c.query.raw.Get("force") == "true"); err != nil {
		return failureOfModule(err)
	}
	c.api.Log.Info("a policy was unloaded", "policy", c.vars["name"], "user", c.user.Name)
	return c.done(nil)
}

// checkModules fails while a policy is not asked. The broker raises no alarm for it: the policy's settings say what happens to messages
// meanwhile.
func checkModules(c *request, m Modules) error {
	if names := m.Alarms(); len(names) > 0 {
		return c.failed("Policies that are not asked", member{"policies", names})
	}
	return c.passed()
}

// someQueues is how many queues of a strategy are named.
const someQueues = 20

// strategyUse counts the queues with a strategy, among the queues that the user may see.
type strategyUse struct {
	queues int
	some   []object
}

func (a *moduleHandlers) strategies(c *request) error { return listObjects(c, a.strategiesFor(c)) }

// strategiesFor returns the expiry strategies that queues can choose, each with the number of queues that have it, among the queues that
// the user may see.
func (a *moduleHandlers) strategiesFor(c *request) []object {
	var names []string
	standard := ""
	if a.lab != nil {
		names, standard = a.lab.Strategies()
	}
	used := map[string]*strategyUse{}
	for _, v := range c.visible() {
		for _, m := range v.Queues() {
			cfg := m.Config()
			u := used[cfg.Strategy]
			if u == nil {
				u = &strategyUse{}
				used[cfg.Strategy] = u
			}
			if u.queues++; len(u.some) < someQueues {
				u.some = append(u.some, object{{"vhost", cfg.VHost}, {"name", cfg.Name}})
			}
		}
	}
	all := []object{}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		u := used[name]
		if u == nil {
			u = &strategyUse{}
		}
		all = append(all, object{{"name", name}, {"default", name == standard}, {"queues", u.queues}, {"some", u.some}})
	}
	return all
}

// unloaded is the scope of unloading an expiry policy. The registry's owner does it, but
// knows the queues of its own vhosts only; so the asked node first counts the queues of all
// nodes.
var unloaded = together(atRegistry.name, nil, func(c *request, e *endpoint) error {
	if c.query.raw.Get("force") != "true" {
		if err := checkUnused(c, c.vars["name"]); err != nil {
			return err
		}
	}
	return forwardToRegistrar(c, e)
})

// checkUnused refuses to go on if queues of any node have chosen an expiry policy, or may have.
func checkUnused(c *request, name string) error {
	asking := *c
	asking.r = c.r.Clone(c.r.Context())
	asking.r.Method, asking.r.Body, asking.r.ContentLength = http.MethodGet, http.NoBody, 0
	asking.r.URL = &url.URL{Path: root + "expiry-strategies"}
	asking.holding = nil
	defer func() { asking.api.nodes.hold(&asking).end() }()
	g, err := asking.api.nodes.gather(&asking, question{})
	if err != nil {
		return err
	}
	queues := int64(0)
	for _, o := range g.strategies(g.lists(c.api.modules.strategiesFor(c))) {
		if nameOf(o) == definitions.StrategyOf(name) {
			queues += intOf(valueOf(o, "queues"))
		}
	}
	switch {
	case queues > 0:
		return conflict("policy %q: queues have chosen it: %d of them; force takes it from them", name, queues)
	case len(g.missing) > 0 && len(g.unserved) > 0:
		return c.errUnreachable(g.missing, "; queues there may have chosen the policy: force takes it from them")
	case len(g.unserved) > 0:
		return c.errUnowned(vhostText(g.unserved[0]))
	}
	return nil
}

// modulesTime is how long a step of an import waits for the expiry policies of the file:
// compiling a large module of Go's can take a minute.
const modulesTime = 2 * time.Minute

// loadedModule is a policy as the list of policies shows it.
type loadedModule struct {
	Name, Origin, Digest, Fuel string
	Config                     json.RawMessage
	Grants                     []string
	OnError                    string `json:"on_error"`
	RolledBack                 string `json:"rolled_back"` // digest of a version that failed here
}

// is reports whether a policy is as in a file, or never will be, because this node's
// configuration has a policy of that name, or the file's version has failed here.
func (m *loadedModule) is(want *definitions.Module) bool {
	have := definitions.Module{Digest: m.Digest, Config: m.Config, Grants: m.Grants, Fuel: m.Fuel, OnError: m.OnError}
	version := want.Digest
	return have.Same(want) || m.Origin == configured || m.RolledBack == version
}

// Origins of policies: one that the configuration names, and one that is no strategy.
const (
	configured = "configuration"
	shadow     = "shadow"
)

// awaitModules waits until this node has loaded the expiry policies of a file, which the
// registry's owner has loaded. While definitions are checked, other policies of the same
// names will do, because the import replaces them: this node tries the new modules itself,
// so that the import is refused as a whole if one does not work here. Before definitions
// are applied, modules and settings have to be the file's.
func awaitModules(c *request, file []byte, step definitions.Step) error {
	wanted := c.api.definitions.files.ModulesIn(file) // errors in the file are reported where it is checked
	if len(wanted) == 0 || c.api.Modules == nil {
		return nil
	}
	c.freshen()
	ctx, cancel := context.WithTimeout(c.r.Context(), modulesTime)
	defer cancel()
	for {
		there := map[string]*loadedModule{}
		for _, raw := range c.api.Modules.List() {
			m := &loadedModule{}
			if json.Unmarshal(raw, m) == nil && m.Origin != shadow {
				there[m.Name] = m
			}
		}
		i := slices.IndexFunc(wanted, func(w definitions.Module) bool {
			m := there[w.Name]
			return m == nil || step == definitions.ApplyVHosts && !m.is(&w)
		})
		switch {
		case i < 0 && step == definitions.CheckVHosts:
			return tryModules(c, slices.DeleteFunc(wanted, func(w definitions.Module) bool { return there[w.Name].is(&w) }))
		case i < 0:
			return nil
		}
		if ctx.Err() != nil {
			return &failure{http.StatusServiceUnavailable, "not_loaded", "the expiry policy '" + wanted[i].Name + "' is not loaded at " + c.api.Node + " yet: import again"}
		}
		pause(ctx, 50*time.Millisecond)
	}
}

// tryModules loads expiry policies without putting them in force.
func tryModules(c *request, all []definitions.Module) error {
	if c.api.Lab == nil {
		return nil
	}
	for i := range all {
		r, err := c.api.Lab.Rehearse(&all[i])
		if f, ok := errors.AsType[*failure](failureOfModule(err)); ok {
			return &failure{f.status, f.code, fmt.Sprintf("at %s: %v", c.api.Node, f.reason)}
		}
		if err != nil {
			return err
		}
		r.Close()
	}
	return nil
}
