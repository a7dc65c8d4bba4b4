package mgmt

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
)

// Modules are the expiry policies in WebAssembly, which a plugin runs. Any goroutine may use them. Errors that whoever asks has
// caused are [*ModuleError].
type Modules interface {
	// List describes all policies, each as a JSON object that has the member name.
	List() []json.RawMessage
	// Load makes a module a policy, or the next version of one. It reports whether there was none of that name.
	Load(m Module) (fresh bool, err error)
	// Reload loads a policy again from where it came from.
	Reload(name string, recompute bool) error
	// Unload takes a policy away, with force even from queues that have chosen it.
	Unload(name string, force bool) error
	// Alarms names the policies that do not do their work.
	Alarms() []string
}

// Module is a policy as it is uploaded.
type Module struct {
	Name    string
	Module  []byte
	Digest  string // SHA-256 that it must have, in hexadecimal; "" = any
	Config  json.RawMessage
	Grants  []string
	Fuel    string
	OnError string
	// Recompute asks for the deadlines of messages that are there.
	Recompute bool
	// Shadow is the strategy that it is to run beside, unheard; "" = it becomes one itself.
	Shadow string
}

// ModuleProblem says what kind of error a [ModuleError] is.
type ModuleProblem uint8

// The kinds.
const (
	ModuleRefused ModuleProblem = iota // the module, its settings or its name will not do
	NoModule                           // there is no policy of that name
	ModuleInUse                        // it cannot be replaced or taken away
)

// ModuleError is why a policy stays as it is.
type ModuleError struct {
	Kind ModuleProblem
	Text string
}

func (e *ModuleError) Error() string { return e.Text }

func ofModule(err error) error {
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

// withModules is an endpoint that is there if the plugin is.
func (a *API) withModules(do func(*request, Modules) error) func(*request) error {
	return func(c *request) error {
		if a.Modules == nil {
			return errNoWASM
		}
		return do(c, a.Modules)
	}
}

func listModules(c *request, m Modules) error {
	all, err := describeModules(m)
	if err != nil {
		return err
	}
	return list(c, listing[object]{items: all, object: func(o object) object { return o }, name: moduleName})
}

func moduleName(o object) string {
	v, _ := o.at("name")
	name, _ := v.(string)
	return name
}

func describeModules(m Modules) ([]object, error) {
	var all []object
	for _, raw := range m.List() {
		v, err := parseJSON(raw)
		if err != nil {
			return nil, err
		}
		o, _ := jsonValue(v).(object)
		all = append(all, o)
	}
	return all, nil
}

func oneModule(c *request, m Modules) error {
	all, err := describeModules(m)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(o object) bool { return moduleName(o) == c.vars["name"] })
	if i < 0 {
		return errNotFound
	}
	return c.reply(all[i])
}

// maxModuleBody is room for the largest module there may be, 8 MiB, in base64, and its settings.
const maxModuleBody = 12 << 20

func putModule(c *request, m Modules) error {
	b, err := c.read(min(maxModuleBody, c.api.BodyMax))
	if err != nil {
		return err
	}
	f, err := parseObject(b)
	if err != nil {
		return err
	}
	upload, err := f.module(c.vars["name"])
	if err != nil {
		return err
	}
	fresh, err := m.Load(upload)
	if err != nil {
		return ofModule(err)
	}
	c.api.Log.Info("a policy was loaded", "policy", upload.Name, "user", c.user.Name, "bytes", len(upload.Module))
	return c.created(fresh)
}

// moduleMembers are the members of an upload.
var moduleMembers = []string{"module", "digest", "config", "grants", "fuel", "on_error", "recompute", "shadow"}

func (f fields) module(name string) (m Module, err error) {
	for member := range f {
		if !slices.Contains(moduleMembers, member) {
			return m, badRequest("unknown member %q; accepted are %s", member, strings.Join(moduleMembers, ", "))
		}
	}
	if err := f.need("module"); err != nil {
		return m, err
	}
	m.Name = name
	for _, s := range []struct {
		key  string
		into *string
	}{{"digest", &m.Digest}, {"fuel", &m.Fuel}, {"on_error", &m.OnError}, {"shadow", &m.Shadow}} {
		if *s.into, err = f.word(s.key); err != nil {
			return m, err
		}
	}
	if m.Recompute, err = f.flag("recompute", false); err != nil {
		return m, err
	}
	if m.Grants, err = f.words("grants"); err != nil {
		return m, err
	}
	if m.Config, err = f.raw("config"); err != nil {
		return m, err
	}
	m.Module, err = f.base64("module")
	return m, err
}

// word returns a string, or a number as it was written.
func (f fields) word(key string) (string, error) {
	if n, ok := f[key].(json.Number); ok {
		return n.String(), nil
	}
	return f.text(key)
}

// words returns a list of strings; absent and null are empty.
func (f fields) words(key string) ([]string, error) {
	list, ok := f[key].([]any)
	if !ok && f[key] != nil {
		return nil, badTerm("not_list", key)
	}
	var all []string
	for _, v := range list {
		s, ok := v.(string)
		if !ok {
			return nil, badTerm("not_string", key)
		}
		all = append(all, s)
	}
	return all, nil
}

// raw returns an object as JSON; nil if it is absent or empty.
func (f fields) raw(key string) (json.RawMessage, error) {
	o, err := f.object(key)
	if err != nil || len(o) == 0 {
		return nil, err
	}
	return marshal(map[string]any(o)), nil
}

func (f fields) base64(key string) ([]byte, error) {
	s, err := f.text(key)
	if err != nil {
		return nil, err
	}
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return nil, badRequest("%s is not base64: %s", key, err.Error())
	}
	return b, nil
}

func reloadModule(c *request, m Modules) error {
	f, err := c.body()
	if err != nil {
		return err
	}
	recompute, err := f.flag("recompute", false)
	if err != nil {
		return err
	}
	if err := m.Reload(c.vars["name"], recompute); err != nil {
		return ofModule(err)
	}
	return c.done()
}

func deleteModule(c *request, m Modules) error {
	force := c.query.raw.Get("force") == "true"
	if err := m.Unload(c.vars["name"], force); err != nil {
		return ofModule(err)
	}
	c.api.Log.Info("a policy was unloaded", "policy", c.vars["name"], "user", c.user.Name)
	return c.done()
}

// checkModules fails while a policy does not do its work. Messages get what its settings say for that, and so it is no alarm
// of the broker's.
func checkModules(c *request, m Modules) error {
	if names := m.Alarms(); len(names) > 0 {
		return c.failed("Policies that are not asked", member{"policies", names})
	}
	return c.reply(object{{"status", "ok"}})
}
