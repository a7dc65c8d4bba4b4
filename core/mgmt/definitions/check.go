package definitions

import (
	"fmt"
	"maps"
	"slices"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/vhost"
)

// checker checks the definitions of a plan against each other and against the broker's.
type checker struct {
	*Definitions
	*plan
	validator *vhost.Validator
	known     map[string]bool // planned vhosts
	exists    func(vhost string) bool
	accounts  map[string]bool           // existing and planned users
	declared  map[entity]vhost.Exchange // planned exchanges
	planned   map[entity]bool           // planned queues
}

type entity struct{ vhost, name string }

// check refuses a plan that has problems or cannot be applied, and names all reasons. It removes bindings from the plan whose source or
// destination does not exist, such as those of a queue that was exclusive. known reports whether a vhost exists, here or at another node.
func (d *Definitions) check(p *plan, known func(vhost string) bool) error {
	k := &checker{
		Definitions: d, plan: p, validator: d.Store.Validator(), known: map[string]bool{}, exists: known, accounts: map[string]bool{}, declared: map[entity]vhost.Exchange{}, planned: map[entity]bool{},
	}
	for _, v := range p.vhosts {
		k.known[v.vhost] = true
	}
	for _, u := range append(d.Store.Users().List(), p.users...) {
		k.accounts[u.Name] = true
	}
	for s := range p.unread {
		switch s.section {
		case "vhosts":
			k.known[s.name] = true
		case "users":
			k.accounts[s.name] = true
		}
	}
	k.checkOwners()
	k.checkExchanges()
	k.checkQueues()
	k.checkBindings()
	k.checkQueueLimits()
	k.checkBindingLimits()
	k.checkParameters()
	return p.problems.all()
}

// inVHost refuses a definition in a vhost that does not exist.
func (k *checker) inVHost(what, name, vhost string) error {
	if k.known[vhost] || k.exists(vhost) {
		return nil
	}
	return jsonobj.Errorf("%s '%s': there is no vhost '%s'", what, name, vhost)
}

// checkOwners refuses permissions of users that do not exist, and permissions and settings in vhosts that do not exist.
func (k *checker) checkOwners() {
	for _, g := range k.grants {
		k.add(k.grantee("permissions of user", g.User, g.VHost))
	}
	for _, g := range k.topics {
		k.add(k.grantee("topic permissions of user", g.User, g.VHost))
	}
	for _, p := range k.parameters {
		k.add(k.inVHost("parameter", p.it.Name, p.vhost))
	}
	for _, p := range k.policies {
		k.add(k.inVHost("policy", p.it.Name, p.vhost))
	}
}

// firstError calls do for the items in order until it fails.
func firstError[T any](items []T, do func(T) error) error {
	for _, it := range items {
		if err := do(it); err != nil {
			return err
		}
	}
	return nil
}

func (k *checker) grantee(what, user, vhost string) error {
	if !k.accounts[user] {
		return jsonobj.Errorf("%s '%s': there is no such user", what, user)
	}
	return k.inVHost(what, user, vhost)
}

func (k *checker) checkExchanges() {
	for _, x := range k.exchanges {
		e := entity{x.vhost, x.it.Name}
		if err := k.inVHost("exchange", e.name, e.vhost); err != nil {
			k.add(err)
			continue
		}
		if _, again := k.declared[e]; again {
			k.repeated("exchange", e)
			continue
		}
		if _, known := k.exchange(e); known {
			k.compare("exchange", e.vhost, func(v *vhost.VHost) error { return v.CompareExchange(x.it) })
			continue
		}
		if err := k.validator.Exchange(e.vhost, x.it); err != nil {
			k.add(e.wrong("exchange", err))
		}
		k.declared[e] = x.it
	}
}

// wrong adds the entity to an error.
func (e entity) wrong(what string, err error) error {
	return named(what, what, map[string]any{"name": e.name, "vhost": e.vhost}, err)
}

// exchange returns an existing or planned exchange.
func (k *checker) exchange(e entity) (vhost.Exchange, bool) {
	if x, ok := k.declared[e]; ok {
		return x, true
	}
	if v, ok := k.Store.VHost(e.vhost); ok {
		return v.Exchange(e.name)
	}
	kind, ok := vhost.Predeclared(e.name)
	return vhost.Exchange{Name: e.name, Type: kind}, ok
}

// checkQueues also removes repeated queues from the plan: queues are declared in parallel, and two different ones of the same name would
// end the import half way.
func (k *checker) checkQueues() {
	first := k.queues[:0]
	for _, q := range k.queues {
		e := entity{q.vhost, q.it.Name}
		if err := k.inVHost("queue", e.name, e.vhost); err != nil {
			k.add(err)
			continue
		}
		if k.planned[e] {
			k.repeated("queue", e)
			continue
		}
		first = append(first, q)
		if k.hasQueue(e) {
			k.compare("queue", e.vhost, func(v *vhost.VHost) error { return v.CompareQueue(q.it) })
			continue
		}
		declared := q.it
		declared.ApplyDefaultType(k.defaultType(e.vhost))
		if err := k.validator.Queue(e.vhost, declared); err != nil {
			k.add(e.wrong("queue", err))
		}
		k.planned[e] = true
	}
	k.queues = first
}

// repeated adds a warning about a definition that was in the file before.
func (k *checker) repeated(what string, e entity) {
	k.differing.add(fmt.Sprintf("%s '%s' in vhost '%s': the file has it more than once, and the first one counts", what, e.name, e.vhost))
}

// compare adds a warning if a definition of the file differs from the existing exchange or queue, which an import leaves as it is.
func (k *checker) compare(what, name string, compare func(v *vhost.VHost) error) {
	v, exists := k.Store.VHost(name)
	if !exists {
		return
	}
	if err := compare(v); err != nil {
		k.differing.add(fmt.Sprintf("%v; the %s stays as it is", err, what))
	}
}

// defaultType returns the default queue type that a vhost will have.
func (k *checker) defaultType(vhost string) string {
	if t, planned := k.queueTypes[vhost]; planned {
		return t
	}
	if v, ok := k.Store.VHost(vhost); ok {
		return v.Metadata().DefaultQueueType
	}
	return ""
}

// hasQueue reports whether a queue exists or is planned.
func (k *checker) hasQueue(e entity) bool {
	v, ok := k.Store.VHost(e.vhost)
	return k.planned[e] || ok && v.Mailbox(e.name) != nil
}

func (k *checker) checkBindings() {
	kept := k.bindings[:0]
	for _, p := range k.bindings {
		from := entity{p.vhost, p.it.Source}
		if err := k.inVHost("binding from", from.name, from.vhost); err != nil {
			k.add(err)
			continue
		}
		x, exists := k.exchange(from)
		if !exists || !k.hasDestination(p) {
			if len(k.found) == 0 { // the source or destination may be a refused definition
				k.lost.add(k.leftOut(p, exists))
			}
			continue
		}
		if err := k.validator.Binding(p.vhost, x, p.it); err != nil {
			k.add(from.wrong("binding from", err))
		}
		kept = append(kept, p)
	}
	k.bindings = kept
}

// leftOut describes a binding that is left out because its source or destination is missing.
func (k *checker) leftOut(b scoped[vhost.Binding], hasSource bool) string {
	missing, name := "exchange", b.it.Source
	if hasSource {
		name = b.it.Destination
		if !b.it.ToExchange {
			missing = "queue"
		}
	}
	return fmt.Sprintf("binding from '%s' to '%s' in vhost '%s': left out, because there is no %s '%s'", b.it.Source, b.it.Destination, b.vhost, missing, name)
}

// hasDestination reports whether the destination of a binding exists or is planned.
func (k *checker) hasDestination(b scoped[vhost.Binding]) bool {
	e := entity{b.vhost, b.it.Destination}
	if !b.it.ToExchange {
		return k.hasQueue(e)
	}
	_, ok := k.exchange(e)
	return ok && e.name != ""
}

// checkQueueLimits refuses more queues than the planned limits of a vhost allow.
func (k *checker) checkQueueLimits() {
	planned := map[string]int{}
	for e := range k.planned {
		planned[e.vhost]++
	}
	for _, name := range slices.Sorted(maps.Keys(planned)) {
		n := planned[name]
		var limits vhost.Limits
		if v, ok := k.Store.VHost(name); ok {
			limits = v.Parameters().Limits()
			n += v.Stats().Queues
		}
		for _, p := range k.parameters {
			if l, ok := p.it.Limits(); ok && p.vhost == name {
				limits = l
			}
		}
		if limits.Queues.Set() && int64(n) > limits.Queues.N() {
			k.add(jsonobj.Errorf("vhost '%s': %d queues: its limit is %d", name, n, limits.Queues.N()))
		}
	}
}

// checkBindingLimits refuses more bindings than a vhost may have. Near the limit it removes bindings from the plan that exist already or
// are planned twice: bindings are made in parallel, and such a binding could count twice for a moment.
func (k *checker) checkBindingLimits() {
	limit := k.Store.MaxBindings()
	if limit == 0 {
		return
	}
	atMost := map[string]int{}
	for _, p := range k.bindings {
		atMost[p.vhost]++
	}
	for name := range atMost {
		atMost[name] += k.bound(name)
	}
	seen, added := map[bindingIdentity]bool{}, map[string]int{}
	k.bindings = slices.DeleteFunc(k.bindings, func(p scoped[vhost.Binding]) bool {
		if atMost[p.vhost] <= limit {
			return false
		}
		id := identityOf(p)
		if v, ok := k.Store.VHost(p.vhost); ok && v.HasBinding(p.it) || seen[id] {
			return true
		}
		seen[id] = true
		added[p.vhost]++
		return false
	})
	for _, name := range slices.Sorted(maps.Keys(added)) {
		if n := k.bound(name) + added[name]; n > limit {
			k.add(jsonobj.Errorf("vhost '%s': %d bindings: limits.bindings is %d", name, n, limit))
		}
	}
}

// bindingIdentity distinguishes a binding from all others.
type bindingIdentity struct {
	vhost, source, destination, key, args string
	toExchange                            bool
}

func identityOf(p scoped[vhost.Binding]) bindingIdentity {
	b := &p.it
	return bindingIdentity{p.vhost, b.Source, b.Destination, b.Key, string(amqp.AppendTable(nil, b.Args)), b.ToExchange}
}

// bound returns how many bindings a vhost has.
func (k *checker) bound(name string) (n int) {
	if v, ok := k.Store.VHost(name); ok {
		n = v.BindingCount()
	}
	return n
}

// checkParameters refuses too many or too large parameters.
func (k *checker) checkParameters() {
	k.add(store.CheckGlobalParameters(append(k.Store.GlobalParameters(), k.globals...)))
	planned := map[string][]vhost.Parameter{}
	for _, p := range k.parameters {
		planned[p.vhost] = append(planned[p.vhost], p.it)
	}
	for _, name := range slices.Sorted(maps.Keys(planned)) {
		all := planned[name]
		if v, ok := k.Store.VHost(name); ok {
			all = append(v.Parameters().All(), all...)
		}
		k.add(k.validator.Parameters(name, all))
	}
}
