package chain

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/curfewmq/curfew/sdk/hook"
)

// ownTypes are the exchange types that the broker has without plugins.
var ownTypes = []string{"direct", "fanout", "topic", "headers"}

// alternateArgument is the argument that exchanges of all types have without plugins.
const alternateArgument = "alternate-exchange"

// maxTypeName is the longest name of an exchange type that a client can send, bytes.
const maxTypeName = 255

// ExchangeType is an exchange type of a plugin. Its methods contain panics.
type ExchangeType struct {
	hook.ExchangeType
	plugin *pluginEntry
}

// filterer is a plugin that filters the messages of exchanges.
type filterer struct {
	plugin    *pluginEntry
	arguments []hook.ExchangeArgument
}

// exchanges holds the plugins' exchange types, filters and exchange arguments.
type exchanges struct {
	types        []*ExchangeType // in the order of the chain
	innerTypes   []string
	filterers    []filterer
	exchangeKeys []hook.Argument         // see ExchangeKeys
	keyOwners    map[string]*pluginEntry // of exchangeKeys, by argument
}

// addExchanges adds the exchange types and the filters of a plugin.
func (c *Chain) addExchanges(p *pluginEntry) error {
	var errs []error
	if t, ok := p.plugin.(hook.ExchangeTyper); ok {
		for _, of := range t.ExchangeTypes() {
			errs = append(errs, c.addExchangeType(p, of))
		}
	}
	if f, ok := p.plugin.(hook.ExchangeFilterer); ok {
		c.filterers = append(c.filterers, filterer{p, f.ExchangeArguments()})
	}
	return errors.Join(errs...)
}

func (c *Chain) addExchangeType(p *pluginEntry, t hook.ExchangeType) error {
	for i, name := range append([]string{t.Name}, t.Aliases...) {
		if err := c.checkTypeName(p, name); err != nil {
			return err
		}
		if i > 0 && (name == t.Name || slices.Contains(t.Aliases[:i-1], name)) {
			return fmt.Errorf("plugins.%s: the exchange type %q has the alias %q twice", p.name, t.Name, name)
		}
	}
	switch {
	case t.New == nil && t.Schedule == nil:
		return fmt.Errorf("plugins.%s: the exchange type %q has no New", p.name, t.Name)
	case t.New != nil && t.Schedule != nil:
		return fmt.Errorf("plugins.%s: the exchange type %q has both New and Schedule", p.name, t.Name)
	}
	c.types = append(c.types, &ExchangeType{t, p})
	return nil
}

// checkTypeName refuses names of exchange types that are ambiguous or cannot be sent.
func (c *Chain) checkTypeName(p *pluginEntry, name string) error {
	switch other := c.ExchangeType(c.TypeName(name)); {
	case other != nil:
		return fmt.Errorf("plugins.%s: %s already offers the exchange type %q", p.name, other.plugin.name, name)
	case slices.Contains(ownTypes, name):
		return fmt.Errorf("plugins.%s: %q is an exchange type of the broker itself", p.name, name)
	case name == "" || len(name) > maxTypeName:
		return fmt.Errorf("plugins.%s: the name of an exchange type has %d bytes, expected 1 to %d", p.name, len(name), maxTypeName)
	}
	return nil
}

// ExchangeKeys returns the arguments of exchanges that are also keys of policies, as arguments of a queue type "exchange", in the form
// that [policies.NewRules] takes.
func (c *Chain) ExchangeKeys() []hook.Argument { return c.exchangeKeys }

// addExchangeKeys adds the arguments of exchanges that are also keys of policies. Several types of one plugin may share a key.
func (c *Chain) addExchangeKeys(p *pluginEntry, arguments []hook.ExchangeArgument, reserved []string) error {
	var errs []error
	for _, a := range arguments {
		if a.Policy == nil {
			continue
		}
		key := *a.Policy
		key.QueueTypes = nil
		of := hook.Argument{Name: a.Name, Policy: &key}
		owner := c.keyOwners[a.Name]
		switch err := checkDeclared(&of); {
		case err != nil:
			errs = append(errs, fmt.Errorf("plugins.%s: the exchange argument %q %w", p.name, a.Name, err))
		case owner == p:
		case owner != nil || c.argumentOwners[a.Name] != "" || slices.Contains(reserved, a.Name):
			errs = append(errs, fmt.Errorf("plugins.%s: the exchange argument %q cannot be a key of policies: the key already has a meaning", p.name, a.Name))
		default:
			of = p.contained(of)
			of.QueueTypes = []string{exchangeKind}
			c.keyOwners[a.Name] = p
			c.exchangeKeys = append(c.exchangeKeys, of)
		}
	}
	return errors.Join(errs...)
}

// exchangeKind is the name for exchanges among the types of objects that policies apply to.
const exchangeKind = "exchange"

// checkExchangeArguments refuses arguments with two meanings: each exchange may have the arguments of its type and of all filters.
func (c *Chain) checkExchangeArguments() error {
	var errs []error
	taken := []string{alternateArgument}
	add := func(p *pluginEntry, taken *[]string, arguments []hook.ExchangeArgument) {
		for _, a := range arguments {
			if a.Name == "" || slices.Contains(*taken, a.Name) {
				errs = append(errs, fmt.Errorf("plugins.%s: the exchange argument %q already has a meaning", p.name, a.Name))
				continue
			}
			*taken = append(*taken, a.Name)
		}
	}
	for _, f := range c.filterers {
		add(f.plugin, &taken, f.arguments)
	}
	for _, t := range c.types {
		own := slices.Clone(taken)
		add(t.plugin, &own, t.Arguments)
	}
	return errors.Join(errs...)
}

// ExchangeTypes returns the plugins' exchange types, in the order of the chain. The slice belongs to the chain.
func (c *Chain) ExchangeTypes() []*ExchangeType { return c.types }

// ExchangeType returns a plugin's exchange type; nil if no plugin offers it.
func (c *Chain) ExchangeType(name string) *ExchangeType {
	i := slices.IndexFunc(c.types, func(t *ExchangeType) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return c.types[i]
}

// TypeName resolves an alias of an exchange type, as used in a declaration. Other names are returned unchanged.
func (c *Chain) TypeName(declared string) string {
	for _, t := range c.types {
		if slices.Contains(t.Aliases, declared) {
			return t.Name
		}
	}
	return declared
}

// InnerTypes returns the types that can route for a type with a schedule: the broker's own and those of plugins without one. The
// slice belongs to the chain.
func (c *Chain) InnerTypes() []string { return c.innerTypes }

func (c *Chain) listInnerTypes() {
	c.innerTypes = slices.Clone(ownTypes)
	for _, t := range c.types {
		if t.ExchangeType.Schedule == nil {
			c.innerTypes = append(c.innerTypes, t.Name)
		}
	}
}

// CheckExchange refuses an exchange whose arguments are invalid for its type or for a filter.
func (c *Chain) CheckExchange(x *hook.Exchange) error {
	t := c.ExchangeType(x.Type)
	if t != nil {
		if err := t.plugin.checkArguments(x, t.Arguments); err != nil {
			return err
		}
	}
	for i := range c.filterers {
		f := &c.filterers[i]
		if err := f.plugin.checkArguments(x, f.arguments); err != nil {
			return err
		}
	}
	if t != nil && t.ExchangeType.Check != nil {
		if err := t.plugin.check("exchange type "+t.Name, func() error { return t.ExchangeType.Check(x) }); err != nil {
			return err
		}
	}
	if t == nil || t.Schedule == nil {
		return nil
	}
	s, err := c.NewSchedule(x)
	if err != nil {
		return err
	}
	return c.checkInner(s.Inner(), x)
}

// checkInner refuses an exchange whose arguments are invalid for the type that routes the messages its schedule releases.
func (c *Chain) checkInner(inner string, x *hook.Exchange) error {
	t := c.ExchangeType(inner)
	if t == nil {
		return nil
	}
	routed := *x
	routed.Type = inner
	if err := t.plugin.checkArguments(&routed, t.Arguments); err != nil || t.ExchangeType.Check == nil {
		return err
	}
	return t.plugin.check("exchange type "+t.Name, func() error { return t.ExchangeType.Check(&routed) })
}

// ComparedArguments returns the names of the arguments that a redeclaration of an exchange of a type must repeat.
func (c *Chain) ComparedArguments(exchangeType string) (names []string) {
	add := func(arguments []hook.ExchangeArgument) {
		for _, a := range arguments {
			if a.Compared {
				names = append(names, a.Name)
			}
		}
	}
	if t := c.ExchangeType(exchangeType); t != nil {
		add(t.Arguments)
	}
	for _, f := range c.filterers {
		add(f.arguments)
	}
	return names
}

func (p *pluginEntry) checkArguments(x *hook.Exchange, arguments []hook.ExchangeArgument) error {
	for i := range arguments {
		a := &arguments[i]
		v, ok := x.Args.Lookup(a.Name)
		if !ok || a.Check == nil {
			continue
		}
		if err := p.check("argument "+a.Name, func() error { return a.Check(x, v) }); err != nil {
			return err
		}
	}
	return nil
}

// check calls a check of the plugin. If it panics, the checked value is refused.
func (p *pluginEntry) check(what string, check func() error) (err error) {
	defer p.contain(onCheck)
	err = fmt.Errorf("the plugin '%s' failed to check the %s", p.name, what)
	return check()
}

// CheckBinding refuses a binding of an exchange of this type.
func (t *ExchangeType) CheckBinding(x *hook.Exchange, key string, args hook.Args) error {
	if t.ExchangeType.CheckBinding == nil {
		return nil
	}
	return t.plugin.check("binding", func() error { return t.ExchangeType.CheckBinding(x, key, args) })
}

// NewRouter returns the router of an exchange of this type. An error means that the plugin failed; the router is then broken.
func (t *ExchangeType) NewRouter(x *hook.Exchange) (*Router, error) {
	r := &Router{Volatile: t.Volatile, plugin: t.plugin}
	r.router = t.plugin.newRouter(t.New, x)
	r.preparer, _ = r.router.(hook.Preparer)
	if r.router == nil {
		r.broken.Store(true)
		return r, fmt.Errorf("the plugin '%s' failed to create the exchange", t.plugin.name)
	}
	return r, nil
}

func (p *pluginEntry) newRouter(create func(*hook.Exchange) hook.Router, x *hook.Exchange) hook.Router {
	defer p.contain(onNew)
	return create(x)
}

// Router is a plugin's router of one exchange. It contains panics. The rules of [hook.Router] say which methods may run at once.
type Router struct {
	Volatile bool // see [hook.ExchangeType]

	router   hook.Router
	preparer hook.Preparer // router, if it is one
	plugin   *pluginEntry
	broken   atomic.Bool // the plugin may have missed a binding, or failed to prepare

	stale     atomic.Bool // bindings changed since the preparer was last called
	preparing sync.Mutex  // held while the preparer is called
}

// Plugin returns the plugin's name.
func (r *Router) Plugin() string { return r.plugin.name }

// Broken reports whether the plugin failed on the exchange or one of its bindings. It is not called again.
func (r *Router) Broken() bool { return r.broken.Load() }

// Bind adds a binding. A panic breaks the router; broke reports that once.
func (r *Router) Bind(b *hook.Binding) (broke bool) {
	if r.Broken() || r.bind(b) {
		return false
	}
	r.broken.Store(true)
	return true
}

func (r *Router) bind(b *hook.Binding) (returned bool) {
	defer r.plugin.contain(onBind)
	r.stale.Store(true)
	r.router.Bind(b)
	return true
}

// Unbind removes a binding, with the same result.
func (r *Router) Unbind(b *hook.Binding) (broke bool) {
	if r.Broken() || r.unbind(b) {
		return false
	}
	r.broken.Store(true)
	return true
}

func (r *Router) unbind(b *hook.Binding) (returned bool) {
	defer r.plugin.contain(onUnbind)
	r.stale.Store(true)
	r.router.Unbind(b)
	return true
}

// Route appends the destinations of m to dst. ok is false after a panic.
func (r *Router) Route(m *hook.Publishing, dst []hook.Destination) (_ []hook.Destination, ok bool) {
	if r.preparer != nil && r.stale.Load() && !r.prepare() {
		return dst, false
	}
	return r.route(m, dst)
}

func (r *Router) route(m *hook.Publishing, dst []hook.Destination) (_ []hook.Destination, ok bool) {
	defer r.plugin.contain(onRoute)
	return r.router.Route(m, dst), true
}

// prepare lets the plugin prepare for Route after bindings changed. One of several callers does it, while no other is in Route: all callers
// that come after the change wait here.
func (r *Router) prepare() (ok bool) {
	r.preparing.Lock()
	defer r.preparing.Unlock()
	if r.stale.Load() && !r.Broken() {
		ok := r.callPreparer()
		r.broken.Store(!ok)
		r.stale.Store(!ok) // stays stale: callers that have not noticed the failure come here again
	}
	return !r.Broken()
}

func (r *Router) callPreparer() (returned bool) {
	defer r.plugin.contain(onPrepare)
	r.preparer.Prepare()
	return true
}

// CountInvalid counts nonexistent destinations that the plugin named.
func (r *Router) CountInvalid(n int) { r.plugin.invalid[onRoute].Add(uint64(n)) }

// CountFiltered counts a message that the plugin dropped.
func (r *Router) CountFiltered() { r.plugin.filtered.Add(1) }

// Filters are the plugins' filters of one exchange, in the order of the chain. nil means none.
type Filters []filter

type filter struct {
	admits hook.Filter
	plugin *pluginEntry
}

// NewFilters returns the filters of an exchange. An error means that a plugin failed; the filters then refuse every message.
func (c *Chain) NewFilters(x *hook.Exchange) (fs Filters, err error) {
	for i := range c.filterers {
		p := c.filterers[i].plugin
		admits, ok := p.newFilter(x)
		if !ok {
			err = errors.Join(err, fmt.Errorf("the plugin '%s' failed to create the exchange", p.name))
			admits = nil
		}
		if admits != nil || !ok {
			fs = append(fs, filter{admits, p})
		}
	}
	return fs, err
}

func (p *pluginEntry) newFilter(x *hook.Exchange) (_ hook.Filter, ok bool) {
	defer p.contain(onFilter)
	return p.plugin.(hook.ExchangeFilterer).Filter(x), true //nolint:forcetypeassert // called for filterers only
}

// Admit asks the filters about a message, up to the first one that does not admit it. failed is the name of a plugin that panicked;
// "" means that none did.
func (fs Filters) Admit(m *hook.Publishing) (admitted bool, failed string) {
	for i := range fs {
		f := &fs[i]
		admitted, ok := f.ask(m)
		switch {
		case !ok:
			return false, f.plugin.name
		case !admitted:
			f.plugin.filtered.Add(1)
			return false, ""
		}
	}
	return true, ""
}

func (f *filter) ask(m *hook.Publishing) (admitted, ok bool) {
	if f.admits == nil { // the plugin failed when the exchange was created
		return false, false
	}
	defer f.plugin.contain(onFilter)
	return f.admits(m), true
}

// Filtered returns how many messages the filters and exchange types of each plugin dropped since the start. It omits plugins that dropped
// none.
func (c *Chain) Filtered() map[string]uint64 {
	counts := map[string]uint64{}
	add := func(p *pluginEntry) {
		if n := p.filtered.Load(); n > 0 {
			counts[p.name] = n
		}
	}
	for i := range c.filterers {
		add(c.filterers[i].plugin)
	}
	for _, t := range c.types {
		add(t.plugin)
	}
	return counts
}
