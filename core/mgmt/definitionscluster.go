package mgmt

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/mgmt/definitions"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/replicas"
)

// exported is the scope of the definitions of all vhosts.
var exported = together("all nodes, merged", unchangedPart, func(c *request, e *endpoint) error {
	if _, err := c.api.nodes.gather(c, question{}); err != nil {
		return err
	}
	return e.do(c)
})

// addSections adds the vhosts of other nodes and their contents. It fails if a vhost is
// missing, because a restore would then lack it.
func (g *gathering) addSections(all []definitions.Section) error {
	merged := map[string][]definitions.Item{}
	for i := range g.parts {
		p, sections, err := &g.parts[i], all, error(nil)
		if !g.api.nodes.isSelf(&p.node) {
			sections, err = definitions.ReadSections(p.body)
		}
		if err != nil {
			g.drop(p.node, err)
			continue
		}
		lost := g.lostBy(p)
		for _, s := range sections {
			items := slices.DeleteFunc(s.Items, func(it definitions.Item) bool { return g.api.nodes.isIn(lost, it.VHost) })
			merged[s.Name] = append(merged[s.Name], items...)
		}
	}
	for k := range all {
		all[k].Items = merged[all[k].Name]
		slices.SortStableFunc(all[k].Items, func(x, y definitions.Item) int { return cmp.Compare(x.VHost, y.VHost) })
	}
	there := map[string]bool{}
	for _, it := range merged["vhosts"] {
		there[it.VHost] = true
	}
	for _, name := range g.api.nodes.placements.VHosts() {
		switch {
		case there[name]:
		case len(g.missing) > 0:
			return g.errUnreachable(g.missing, "; without that the definitions would lack "+vhostText(name))
		default:
			return g.errUnowned(vhostText(name))
		}
	}
	return nil
}

// An import into a cluster has steps. The registry's owner checks the definitions that are
// new in the registry, and the vhosts' owners check the definitions in their vhosts; only
// then does each owner apply its own. Every owner gets the whole file, so that errors name
// the file's lines.

// stepHeader names the step of an import that another node asks for.
const stepHeader = "Curfew-Import-Step"

var imported = together("the registry's owner, then the vhosts' owners", nil, func(c *request, _ *endpoint) error { return c.api.definitions.importAll(c) })

// clusterImport is an import under way.
type clusterImport struct {
	*request
	file     []byte
	in       string   // see [definitions.Definitions.Import]
	dry      bool     // nothing is put in force
	vhosts   []string // whose definitions the file has
	warnings []string
	added    []string // expiry policies that were loaded for it
	done     []string // vhosts that nodes have checked, or applied
}

// placedTime is how long an import waits until vhosts that it has made have owners.
const placedTime = 15 * time.Second

// importAll imports definitions into the cluster.
func (a *definitionHandlers) importAll(c *request) error {
	b, err := definitionsFile(c)
	if err != nil {
		return err
	}
	i := &clusterImport{request: c, file: b, in: c.vars["vhost"]}
	if i.dry, err = dryRun(c); err != nil {
		return err
	}
	modules := false
	if i.vhosts, modules, err = definitions.Sections(b, i.in); err != nil {
		return err
	}
	if err := i.steps(modules); err != nil {
		i.unload()
		return err
	}
	if i.dry {
		i.unload()
		return answerRehearsal(c, b, i.warnings)
	}
	for _, w := range i.warnings {
		a.log.Warn("import", "warning", w)
	}
	if len(i.warnings) > 0 {
		return c.warned(false, i.warnings)
	}
	return c.done(nil)
}

// steps does all steps or, in a dry run, only the checking ones.
func (i *clusterImport) steps(modules bool) error {
	a := i.api
	registrar, ok := a.nodes.memberOf(a.Placements.Registrar())
	if !ok {
		return i.errUnowned(registryText)
	}
	owners, err := i.owners(true)
	if err != nil {
		return err
	}
	if modules && i.dry {
		if err := i.checkUnchosen(); err != nil {
			return err
		}
	}
	if modules {
		if err := i.loadModules(registrar); err != nil {
			return err
		}
		i.freshen()
	}
	if i.in == "" {
		if err := i.step(registrar, definitions.CheckRegistry); err != nil {
			return err
		}
	}
	for _, n := range owners {
		if err := i.step(n, definitions.CheckVHosts); err != nil {
			return err
		}
	}
	for _, name := range i.vhosts {
		if a.nodes.knows(name) && !slices.Contains(i.done, name) {
			return i.errUnowned(vhostText(name))
		}
	}
	if i.dry {
		return nil
	}
	if err := i.r.Context().Err(); err != nil {
		return i.bodyError(err) // the client has gone, and nothing is changed yet
	}
	i.goOn()
	if i.in == "" || modules {
		if err := i.step(registrar, definitions.ApplyRegistry); err != nil {
			return err
		}
		i.added = nil // they stay from here on
		i.freshen()
	}
	return begun(i.apply())
}

// checkUnchosen refuses a dry run that would affect queues of any vhost, also of vhosts that the file does not mention.
func (i *clusterImport) checkUnchosen() error {
	everywhere := *i
	everywhere.vhosts = i.api.nodes.placements.VHosts()
	owners, err := everywhere.owners(true)
	if err != nil {
		return err
	}
	for _, n := range owners {
		if err := i.step(n, definitions.CheckUnchosen); err != nil {
			return err
		}
	}
	return nil
}

// loadModules loads the expiry policies of the file that are new. It does so even if the
// client has left, because they can be unloaded again only if the names of all loaded ones
// are known.
func (i *clusterImport) loadModules(registrar replicas.Node) error {
	loading := *i
	loading.goOn()
	err := loading.step(registrar, definitions.LoadModules)
	i.added, i.warnings = loading.added, loading.warnings
	return err
}

// goOn lets the import continue if the client leaves: it must not stop half way.
func (i *clusterImport) goOn() {
	own := *i.request
	own.r = own.r.WithContext(context.WithoutCancel(own.r.Context()))
	i.request = &own
}

// apply applies the definitions in vhosts, once new vhosts have owners.
func (i *clusterImport) apply() error {
	ctx, cancel := context.WithTimeout(i.r.Context(), placedTime)
	defer cancel()
	i.done = nil
	for {
		owners, err := i.owners(false)
		if err == nil {
			for _, n := range owners {
				if err := i.step(n, definitions.ApplyVHosts); err != nil {
					return err
				}
			}
			// An owner may have passed over a vhost that it does not serve yet, or no longer.
			i.vhosts = slices.DeleteFunc(i.vhosts, func(name string) bool { return slices.Contains(i.done, name) })
		}
		switch {
		case len(i.vhosts) == 0:
			return nil
		case ctx.Err() != nil:
			return cmp.Or(err, i.errUnowned(vhostText(i.vhosts[0])))
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// owners returns the nodes that own vhosts of the file. With some set, vhosts that do not exist yet may lack an owner.
func (i *clusterImport) owners(some bool) (all []replicas.Node, err error) {
	for _, name := range i.vhosts {
		owner, known := i.api.nodes.placements.OwnerOf(name)
		if !known && some {
			continue
		}
		n, ok := i.api.nodes.memberOf(owner)
		if !ok {
			return nil, i.errUnowned(vhostText(name))
		}
		if !slices.ContainsFunc(all, func(o replicas.Node) bool { return o.ID == n.ID }) {
			all = append(all, n)
		}
	}
	return all, nil
}

// step makes a node do a step.
func (i *clusterImport) step(n replicas.Node, step definitions.Step) error {
	if i.api.nodes.isSelf(&n) {
		o, err := i.api.definitions.importStep(i.request, step, i.file)
		i.note(o)
		return err
	}
	body, err := i.api.nodes.demand(i.request, n, i.file, step)
	if err != nil {
		return err
	}
	var o definitions.Outcome
	if json.Unmarshal(body, &o) == nil {
		i.note(o)
	}
	return nil
}

func (i *clusterImport) note(o definitions.Outcome) {
	i.added = append(i.added, o.Added...)
	i.done = append(i.done, o.VHosts...)
	i.warnings = append(i.warnings, o.Warnings...)
}

// demand sends a node a file for a step, and returns its answer. An error is the node's own.
func (ns *nodes) demand(c *request, n replicas.Node, body []byte, step definitions.Step) ([]byte, error) {
	c.takeTime(importTimeout)
	ctx, cancel := context.WithTimeout(c.r.Context(), importTimeout)
	defer cancel()
	r := ns.outgoing(ctx, c, http.MethodPost, c.r.URL, io.NopCloser(bytes.NewReader(body)))
	r.ContentLength = int64(len(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(stepHeader, string(step))
	answer, err := ns.peers.Do(ctx, n.ID, r)
	if err != nil {
		return nil, ns.unforwarded(c, n, importTimeout, err)
	}
	defer func() { _ = answer.Body.Close() }()                                         // the answer was read
	b, err := io.ReadAll(io.LimitReader(answer.Body, maxSmallBody+6*int64(len(body)))) // it may quote the whole file, escaped
	if err != nil {
		return nil, ns.unforwarded(c, n, importTimeout, err)
	}
	if answer.StatusCode < http.StatusMultipleChoices {
		return b, nil
	}
	o, err := jsonobj.ParseObject(b)
	if err != nil {
		return nil, ns.unforwarded(c, n, importTimeout, errStatus(answer.StatusCode))
	}
	code, _ := valueOf(o, "error").(string)
	return nil, failureThere(answer, code, valueOf(o, "reason"))
}

// unload unloads the expiry policies that were loaded for an import that was refused.
func (i *clusterImport) unload() {
	if len(i.added) == 0 {
		return
	}
	n, ok := i.api.nodes.memberOf(i.api.nodes.placements.Registrar())
	if !ok {
		i.api.Log.Warn("import: policies of definitions that were refused stay loaded", "policies", i.added)
		return
	}
	names := *i
	names.goOn()
	names.file = jsonobj.Append(nil, i.added)
	if err := names.step(n, definitions.UnloadModules); err != nil {
		i.api.Log.Warn("import: policies of definitions that were refused stay loaded", "policies", i.added, "error", err)
	}
}

// importStep does this node's step of an import.
func (a *definitionHandlers) importStep(c *request, step definitions.Step, b []byte) (definitions.Outcome, error) {
	if step == definitions.CheckVHosts || step == definitions.ApplyVHosts {
		if err := awaitModules(c, b, step); err != nil {
			return definitions.Outcome{}, err
		}
	}
	o, err := a.files.ImportStep(step, b, c.vars["vhost"], c.user.Name, a.nodes.knows)
	if err != nil {
		return o, failureOfModule(err)
	}
	return o, nil
}

// loadStep answers another node that asks for a step of an import.
func (a *definitionHandlers) loadStep(c *request, b []byte) error {
	o, err := a.importStep(c, definitions.Step(c.r.Header.Get(stepHeader)), b)
	if err != nil {
		return err
	}
	return c.reply(object{{"Added", definitions.Tags(o.Added)}, {"Warnings", definitions.Tags(o.Warnings)}, {"VHosts", definitions.Tags(o.VHosts)}})
}
