package mgmt

import (
	"maps"
	"slices"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/vhost"
)

// checker checks what the definitions of a plan need of each other and of what there is.
type checker struct {
	api       *API
	draft     *vhost.VHost // to check things with
	vhosts    map[string]bool
	users     map[string]bool
	exchanges map[[2]string]string // types, by vhost and name
	queues    map[[2]string]bool
	fresh     map[string]int // how many queues each vhost gets
}

// check refuses a plan that cannot be carried out. Bindings from or to what does not exist, as those of a queue that was
// exclusive, are taken out of it.
func (a *API) check(p *plan) error {
	k := &checker{
		api: a, draft: a.Store.Draft(), vhosts: map[string]bool{}, users: map[string]bool{}, exchanges: map[[2]string]string{}, queues: map[[2]string]bool{},
		fresh: map[string]int{},
	}
	for _, v := range a.Store.VHosts() {
		k.vhosts[v.Name()] = true
	}
	for _, v := range p.vhosts {
		k.vhosts[v.name] = true
	}
	for _, u := range a.users().List() {
		k.users[u.Name] = true
	}
	for _, u := range p.users {
		k.users[u.Name] = true
	}
	for _, step := range []func(*plan) error{k.permissions, k.settings, k.newExchanges, k.newQueues, k.newBindings, k.limits, k.bindingLimits, k.room} {
		if err := step(p); err != nil {
			return err
		}
	}
	return nil
}

// exists refuses what is said to be in a vhost that does not exist.
func (k *checker) exists(what, name, vhost string) error {
	if k.vhosts[vhost] {
		return nil
	}
	return badRequest("%s '%s': there is no vhost '%s'", what, name, vhost)
}

func (k *checker) permissions(p *plan) error {
	for _, g := range p.grants {
		if err := k.grantee("permissions of user", g.User, g.VHost); err != nil {
			return err
		}
	}
	for _, g := range p.topics {
		if err := k.grantee("topic permissions of user", g.User, g.VHost); err != nil {
			return err
		}
	}
	return nil
}

func (k *checker) grantee(what, user, vhost string) error {
	if !k.users[user] {
		return badRequest("%s '%s': there is no such user", what, user)
	}
	return k.exists(what, user, vhost)
}

func (k *checker) settings(p *plan) error {
	for _, it := range p.parameters {
		if err := k.exists("parameter", it.it.Name, it.vhost); err != nil {
			return err
		}
	}
	for _, it := range p.policies {
		if err := k.exists("policy", it.policy.Name, it.vhost); err != nil {
			return err
		}
	}
	return nil
}

func (k *checker) newExchanges(p *plan) error {
	for _, it := range p.exchanges {
		if err := k.exists("exchange", it.it.Name, it.vhost); err != nil {
			return err
		}
		place := [2]string{it.vhost, it.it.Name}
		if _, known := k.exchangeType(place); known {
			continue
		}
		if err := k.draft.CheckNewExchange(it.vhost, it.it); err != nil {
			return wrong("exchange", place, err)
		}
		k.exchanges[place] = it.it.Type
	}
	return nil
}

// wrong is the error of something in a vhost.
func wrong(what string, place [2]string, err error) error {
	return named(what, what, fields{"name": place[1], "vhost": place[0]}, err)
}

// exchangeType returns the type of an exchange that there is or will be.
func (k *checker) exchangeType(place [2]string) (string, bool) {
	if kind, ok := k.exchanges[place]; ok {
		return kind, true
	}
	v, ok := k.api.Store.VHost(place[0])
	if !ok {
		return vhost.PredeclaredType(place[1])
	}
	x, ok := v.Exchange(place[1])
	return x.Type, ok
}

func (k *checker) newQueues(p *plan) error {
	for _, it := range p.queues {
		if err := k.exists("queue", it.it.Name, it.vhost); err != nil {
			return err
		}
		place := [2]string{it.vhost, it.it.Name}
		if k.hasQueue(place) {
			continue
		}
		if err := k.draft.CheckNewQueue(it.vhost, it.it); err != nil {
			return wrong("queue", place, err)
		}
		k.queues[place] = true
		k.fresh[it.vhost]++
	}
	return nil
}

// hasQueue reports whether there is or will be a queue.
func (k *checker) hasQueue(place [2]string) bool {
	v, ok := k.api.Store.VHost(place[0])
	return k.queues[place] || ok && v.Mailbox(place[1]) != nil
}

func (k *checker) newBindings(p *plan) error {
	kept := p.bindings[:0]
	for _, it := range p.bindings {
		b := &it.it
		if err := k.exists("binding from", b.Source, it.vhost); err != nil {
			return err
		}
		kind, from := k.exchangeType([2]string{it.vhost, b.Source})
		if !from || !k.leads(it.vhost, b) {
			k.api.Log.Warn("import: a binding leads to or from nothing", "vhost", it.vhost, "source", b.Source, "destination", b.Destination)
			continue
		}
		if err := vhost.CheckNewBinding(kind, *b); err != nil {
			return wrong("binding from", [2]string{it.vhost, b.Source}, err)
		}
		kept = append(kept, it)
	}
	p.bindings = kept
	return nil
}

// leads reports whether there is or will be something at the far end of a binding.
func (k *checker) leads(in string, b *vhost.Binding) bool {
	place := [2]string{in, b.Destination}
	if !b.ToExchange {
		return k.hasQueue(place)
	}
	_, ok := k.exchangeType(place)
	return ok && b.Destination != ""
}

// limits refuses more queues than a vhost may have, as its limits will be.
func (k *checker) limits(p *plan) error {
	for name, n := range k.fresh {
		var most vhost.Limits
		if v, ok := k.api.Store.VHost(name); ok {
			most = v.Limits()
			n += v.Stats().Queues
		}
		for _, it := range p.parameters {
			if l, ok := vhost.LimitsOf(it.it); ok && it.vhost == name {
				most = l
			}
		}
		if most.Queues.Set() && int64(n) > most.Queues.N() {
			return badRequest("vhost '%s': %d queues: its limit is %d", name, n, most.Queues.N())
		}
	}
	return nil
}

// bindingLimits refuses more bindings than a vhost may have. Where it is close, those that there are, or that are planned twice, are
// taken out of the plan: as they are made in parallel, one might count twice.
func (k *checker) bindingLimits(p *plan) error {
	_, most := k.draft.Bound()
	if most == 0 {
		return nil
	}
	atMost := map[string]int{}
	for _, it := range p.bindings {
		atMost[it.vhost]++
	}
	for name := range atMost {
		atMost[name] += k.bound(name)
	}
	seen, kept := map[string]map[bindingIdentity]bool{}, p.bindings[:0]
	for _, it := range p.bindings {
		if atMost[it.vhost] <= most || k.isFresh(seen, it) {
			kept = append(kept, it)
		}
	}
	p.bindings = kept
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		if n := k.bound(name) + len(seen[name]); n > most {
			return badRequest("vhost '%s': %d bindings: limits.bindings is %d", name, n, most)
		}
	}
	return nil
}

type bindingIdentity struct {
	source, destination, key, args string
	toExchange                     bool
}

// bound is how many bindings a vhost has.
func (k *checker) bound(name string) (n int) {
	if v, ok := k.api.Store.VHost(name); ok {
		n, _ = v.Bound()
	}
	return n
}

// isFresh reports whether a binding is neither there nor among those that were seen of its vhost, and is from now on.
func (k *checker) isFresh(seen map[string]map[bindingIdentity]bool, it planned[vhost.Binding]) bool {
	b := &it.it
	if v, ok := k.api.Store.VHost(it.vhost); ok && v.Has(*b) {
		return false
	}
	if seen[it.vhost] == nil {
		seen[it.vhost] = map[bindingIdentity]bool{}
	}
	id := bindingIdentity{b.Source, b.Destination, b.Key, string(amqp.AppendTable(nil, b.Args)), b.ToExchange}
	if seen[it.vhost][id] {
		return false
	}
	seen[it.vhost][id] = true
	return true
}

// room refuses more parameters than there may be, or larger ones.
func (k *checker) room(p *plan) error {
	if err := store.CheckGlobalParameters(append(k.api.Store.GlobalParameters(), p.globals...)); err != nil {
		return err
	}
	planned := map[string][]vhost.Parameter{}
	for _, it := range p.parameters {
		planned[it.vhost] = append(planned[it.vhost], it.it)
	}
	for _, name := range slices.Sorted(maps.Keys(planned)) {
		all := planned[name]
		if v, ok := k.api.Store.VHost(name); ok {
			all = append(v.Parameters(), all...)
		}
		if err := vhost.CheckParameters(name, all); err != nil {
			return err
		}
	}
	return nil
}
