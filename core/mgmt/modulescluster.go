package mgmt

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/mgmt/definitions"
)

// unloaded is the scope of unloading an expiry policy: the registry's owner, which knows the queues of its own vhosts only. So the node that
// is asked counts those of all nodes first.
var unloaded = scope{name: atRegistry.name, answer: func(c *request, e *endpoint) error {
	if c.query.raw.Get("force") != "true" {
		if err := c.checkUnused(c.vars["name"]); err != nil {
			return err
		}
	}
	return c.forwardToRegistrar(e)
}}

// checkUnused refuses to go on if queues of any node have chosen an expiry policy, or may have.
func (c *request) checkUnused(name string) error {
	asking := *c
	asking.holding = nil
	defer func() {
		if asking.holding != nil {
			asking.holding.end()
		}
	}()
	asking.r = c.r.Clone(c.r.Context())
	asking.r.Method, asking.r.Body, asking.r.ContentLength = http.MethodGet, http.NoBody, 0
	asking.r.URL = &url.URL{Path: root + "expiry-strategies"}
	asking.query = query{raw: url.Values{}}
	rt, vars := c.api.router.find("expiry-strategies")
	asking.vars = vars
	w := &ownPart{header: http.Header{}}
	asking.w = w
	g, ok, err := asking.gather(rt.endpoint(http.MethodGet), question{})
	if err != nil {
		return err
	}
	if !ok {
		return errStatus(w.status)
	}
	queues := int64(0)
	for _, o := range g.strategies(g.lists()) {
		if nameOf(o) == definitions.StrategyOf(name) {
			queues += intOf(parsedNumber(valueOf(o, "queues")))
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

// modulesTime is how long a step of an import waits for the expiry policies of the file: a large one of Go's can be compiled for a minute.
const modulesTime = 2 * time.Minute

// carriedModule is an expiry policy in a file with definitions.
type carriedModule struct {
	Name   string
	Module []byte
}

// digest returns what lists of policies say of the module.
func (m *carriedModule) digest() string {
	sum := sha256.Sum256(m.Module)
	return hex.EncodeToString(sum[:])
}

// awaitModules waits until this node has loaded the expiry policies of a file with definitions, which were loaded at the registry's owner:
// those modules, not others that had their names before.
func (c *request) awaitModules(file []byte) error {
	var d struct {
		Policies []carriedModule `json:"wasm_policies"`
	}
	if json.Unmarshal(file, &d) != nil || len(d.Policies) == 0 || c.api.Modules == nil {
		return nil // what is wrong with the file is said by those who read it
	}
	c.freshen()
	ctx, cancel := context.WithTimeout(c.r.Context(), modulesTime)
	defer cancel()
	for {
		there := map[string]string{} // digests by name
		for _, raw := range c.api.Modules.List() {
			var m struct{ Name, Digest string }
			if json.Unmarshal(raw, &m) == nil {
				there[m.Name] = m.Digest
			}
		}
		i := slices.IndexFunc(d.Policies, func(p carriedModule) bool { return there[p.Name] != p.digest() })
		if i < 0 {
			return nil
		}
		if ctx.Err() != nil {
			return &failure{http.StatusServiceUnavailable, "not_loaded", "the expiry policy '" + d.Policies[i].Name + "' is not loaded at " + c.api.Node + " yet: import again"}
		}
		pause(ctx, 50*time.Millisecond)
	}
}
