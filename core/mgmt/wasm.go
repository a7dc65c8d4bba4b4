package mgmt

import (
	"encoding/json"
	"errors"
	"net/http"
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
