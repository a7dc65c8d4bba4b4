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
)

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
