package vhost

import (
	"log/slog"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/core/route"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/policies"
)

// Exchange describes an exchange.
type Exchange struct {
	Name       string
	Type       string
	Durable    bool
	AutoDelete bool // it is deleted with the last binding it is the source of
	Internal   bool // clients may not publish to it
	Args       amqp.Table
}

const argAlternate = "alternate-exchange"

// predeclared are the exchanges of every vhost. Clients can neither create nor delete them.
var predeclared = []Exchange{
	{Name: "", Type: "direct", Durable: true},
	{Name: "amq.direct", Type: "direct", Durable: true},
	{Name: "amq.fanout", Type: "fanout", Durable: true},
	{Name: "amq.topic", Type: "topic", Durable: true},
	{Name: "amq.headers", Type: "headers", Durable: true},
	{Name: "amq.match", Type: "headers", Durable: true},
	{Name: TraceExchange, Type: "topic", Durable: true, Internal: true},
}

// Predeclared returns the type of an exchange that every vhost has. ok is false if name is none.
func Predeclared(name string) (kind string, ok bool) {
	i := slices.IndexFunc(predeclared, func(x Exchange) bool { return x.Name == name })
	if i < 0 {
		return "", false
	}
	return predeclared[i].Type, true
}

// exchange is an exchange in the topology, guarded by the vhost's mutex. Its description never changes.
type exchange struct {
	Exchange
	alternate    string
	hasAlternate bool
	policies     policies.Applied

	table   *route.Table[destination] // always empty for the default exchange, to which every queue is bound by its name
	sources []*exchange               // exchanges with bindings to this one
	// deletionLogged means that the exchange is about to be deleted: no other definition of
	// it may be logged.
	deletionLogged bool
	pluginPart
}

// exchanges makes and deletes the exchanges and bindings in the topology, and logs the
// durable ones.
type exchanges struct {
	*rules
	topology  *topology
	changes   *changes
	policies  *policyTable
	maker     *exchangeMaker
	log       *slog.Logger
	telemetry *telemetry.Recorder

	maxBindings     int // 0 means no limit
	pendingBindings int // that are being made durable; the topology's lock guards it
}

func (x *exchange) isDefault() bool { return x.Name == "" }

// isUnused reports whether an exchange that just lost a binding is deleted.
func (x *exchange) isUnused() bool { return x.AutoDelete && x.table.Len() == 0 && !x.keeps() }

// CheckExchange is the passive declaration.
func (xs *exchanges) CheckExchange(name string) error {
	name = rabbit.Sanitise(name)
	if name == "" {
		return errDefaultExchange
	}
	if err := xs.topology.life.checkMoved(); err != nil {
		return err
	}
	if _, ok := xs.topology.Exchange(name); !ok {
		return xs.topology.life.noExchange(name)
	}
	return nil
}

// DeclareExchange creates an exchange, or checks that the existing one is equivalent. allow, if not nil, is asked before an
// exchange with an alternate is created; its error is returned as it is.
func (xs *exchanges) DeclareExchange(d Exchange, allow func(alternate string) error) error {
	d.Name, d.Type = rabbit.Sanitise(d.Name), xs.chain.TypeName(d.Type)
	if err := xs.checkExchangeType(d.Type); err != nil {
		return err
	}
	if d.Name == "" {
		return errDefaultExchange
	}
	if err := xs.topology.life.checkMoved(); err != nil {
		return err
	}
	current, ok := xs.topology.Exchange(d.Name)
	if !ok {
		err := checkFields(xs.exchangeName(d.Name), d.Args)
		if err == nil {
			err = xs.checkNewExchange(d, allow)
		}
		if err != nil {
			return err
		}
		if current, err = xs.add(d); err != nil {
			return err
		}
	}
	return xs.checkEquivalentExchange(current, d)
}

// add creates an exchange, unless another caller just did, and returns the one that exists.
func (xs *exchanges) add(d Exchange) (Exchange, error) {
	mode := additive // also for a transient exchange, because a durable one must not get the same name meanwhile
	if d.Durable {
		mode = exclusive
	}
	storage, err := xs.maker.storageFor(&d)
	if err != nil {
		return d, err
	}
	err = xs.changes.make(fixedMode(mode), func() (apply func(), err error) {
		if x := xs.topology.exchange(d.Name); x != nil {
			d = x.Exchange
			return nil, nil
		}
		x, err := xs.maker.make(d, storage)
		if err != nil {
			return nil, refuse(Precondition, "%v", err)
		}
		if xs.changes.isLogged(x) {
			xs.changes.add(xs.changes.defineExchange(x))
		}
		return func() {
			xs.maker.applyPolicies(x, xs.policies.Policies())
			xs.topology.addExchange(x)
			xs.topology.invalidateRoutes()
		}, nil
	})
	return d, err
}

// DeleteExchange deletes an exchange and all bindings from and to it. It need not exist.
func (xs *exchanges) DeleteExchange(name string, ifUnused bool) error {
	name = rabbit.Sanitise(name)
	if name == "" {
		return errDefaultExchange
	}
	if strings.HasPrefix(name, rabbit.ReservedPrefix) {
		return refuse(AccessRefused, "deletion of system %s not allowed", xs.exchangeName(name))
	}
	resume, err := xs.settleReleases(name)
	if err != nil {
		return err
	}
	defer resume()
	return xs.changes.make(xs.modeFor(name, exclusive), func() (apply func(), err error) {
		x := xs.topology.exchange(name)
		if x == nil {
			return nil, nil
		}
		if ifUnused && (x.table.Len() > 0 || x.holds()) {
			return nil, refuse(Precondition, "%s in use", xs.exchangeName(name))
		}
		logged := xs.logDeletions(x)
		return func() {
			if xs.topology.exchange(name) == x { // otherwise it was deleted as an auto-delete exchange meanwhile
				xs.remove(x, logged)
			}
		}, nil
	})
}

// exchangeSet is a set of exchanges. nil is empty.
type exchangeSet map[*exchange]struct{}

func (s exchangeSet) has(x *exchange) bool {
	_, ok := s[x]
	return ok
}

// logDeletions logs the deletion of x and of every auto-delete exchange whose bindings all
// lead to deleted exchanges. It returns all of them. The caller holds mu: thousands of
// exchanges may be deleted, so it looks at each of their bindings once.
func (xs *exchanges) logDeletions(x *exchange) exchangeSet {
	list, deleted := []*exchange{x}, exchangeSet{x: {}}
	lost := map[*exchange]int{} // bindings to exchanges in list
	for i := 0; i < len(list); i++ {
		to := destination{exchange: list[i]}
		for _, source := range list[i].sources {
			if !source.AutoDelete || deleted.has(source) {
				continue
			}
			for range source.table.Of(to) {
				lost[source]++
			}
			if lost[source] == source.table.Len() && !source.keeps() {
				list, deleted[source] = append(list, source), struct{}{}
			}
		}
	}
	for _, x := range list {
		xs.logDeletion(x)
	}
	return deleted
}

func (xs *exchanges) logDeletion(x *exchange) {
	if xs.changes.isLogged(x) {
		x.deletionLogged = true
		xs.changes.add(xs.changes.defineName(opDeleteExchange, x.Name))
	}
}

// remove removes x, and then every auto-delete exchange that thereby lost its last binding.
// It logs the deletions, except of exchanges in logged. The caller holds mu.
func (xs *exchanges) remove(x *exchange, logged exchangeSet) {
	unused := []*exchange{x}
	for len(unused) > 0 {
		x, unused = unused[len(unused)-1], unused[:len(unused)-1]
		if !logged.has(x) {
			xs.logDeletion(x)
		}
		xs.topology.removeExchange(x)
		xs.dropHeld(x)
		for _, source := range x.sources {
			if source != x {
				xs.topology.removeBindings(source, destination{exchange: x})
			}
			if source.isUnused() || source.table.Len() == 0 && logged.has(source) {
				unused = append(unused, source)
			}
			xs.noteLastBinding(source)
		}
	}
	xs.topology.invalidateRoutes()
}

// loseDestination removes the bindings of x to a destination that was removed, and x if
// those were its last. The caller holds mu.
func (xs *exchanges) loseDestination(x *exchange, to destination) {
	xs.topology.removeBindings(x, to)
	xs.noteLastBinding(x)
	if x.isUnused() {
		xs.remove(x, nil)
	}
}

// modeFor returns the mode of a change of an exchange or of its bindings. A transient
// exchange counts as durable while other exchanges have bindings to it, because they may be
// deleted with it.
func (xs *exchanges) modeFor(exchange string, m changeMode) func() changeMode {
	return func() changeMode {
		if x := xs.topology.exchange(exchange); x != nil && (x.Durable || len(x.sources) > 0) {
			return m
		}
		return notDurableChange
	}
}

// definers returns functions that append the definitions of the durable exchanges. Callers
// of definers and of these functions hold mu.
func (xs *exchanges) definers() (all []definitionAppender) {
	for x := range xs.topology.eachExchange() {
		if _, always := Predeclared(x.Name); x.Durable && !always {
			all = append(all, func(b []byte) []byte { return xs.appendDefinition(b, x) })
		}
	}
	return all
}

// bindingDefiners returns functions that append the definitions of the durable bindings to
// exchanges. Callers of bindingDefiners and of these functions hold mu.
func (xs *exchanges) bindingDefiners() (all []definitionAppender) {
	for x := range xs.topology.eachExchange() {
		if x.Durable {
			all = append(all, func(b []byte) []byte { return xs.appendBindings(b, destination{exchange: x}) })
		}
	}
	return all
}

func (xs *exchanges) appendDefinition(b []byte, x *exchange) []byte {
	if xs.topology.exchange(x.Name) != x {
		return b
	}
	b = amqp.AppendTable(b, xs.changes.defineExchange(x))
	if x.AutoDelete && x.schedule != nil && x.schedule.unbound {
		b = amqp.AppendTable(b, xs.changes.defineUnbound(x))
	}
	return b
}

// appendBindings appends the durable bindings to a destination, unless it was deleted.
func (xs *exchanges) appendBindings(b []byte, to destination) []byte {
	if to.exchange != nil && xs.topology.exchange(to.exchange.Name) != to.exchange {
		return b
	}
	sources := xs.topology.sourcesOf(to)
	if sources == nil {
		return b
	}
	for _, x := range *sources {
		if !xs.changes.isBindingLogged(x, to) {
			continue
		}
		for r := range x.table.Of(to) {
			of := bindingOf(x, r)
			b = amqp.AppendTable(b, xs.changes.define(opBind, of.fields()...))
		}
	}
	return b
}
