package hook

// ExchangeTyper is a plugin that offers exchange types. One that does nothing else
// embeds [NoHooks].
type ExchangeTyper interface {
	Plugin
	// ExchangeTypes returns the types. It is called once, when the broker starts.
	ExchangeTypes() []ExchangeType
}

// ExchangeFilterer is a plugin that decides about messages before an exchange of
// any type routes them.
type ExchangeFilterer interface {
	Plugin
	// ExchangeArguments returns the arguments that exchanges of any type may have for
	// the filter. It is called once, when the broker starts.
	ExchangeArguments() []ExchangeArgument
	// Filter returns the filter of an exchange that is created, or found when the
	// broker starts; nil if it has none. It is called for all exchanges but the default
	// one. The arguments of one that is found are not checked again. If it panics, a
	// new exchange is refused, and one that is found refuses messages.
	Filter(x *Exchange) Filter
}

// Filter reports whether the exchange routes a message. Otherwise the exchange
// leads it nowhere, not even to its alternate exchange: it is unroutable, unless it
// came by another exchange that has queues for it. The rules of [Router.Route] apply,
// and messages to the exchange are asked about one by one, after all checks that
// precede routing, and in transactions when they are published.
//
// A dead letter that is not admitted is dropped, with the outcome "filtered". One that
// has to arrive at least once, was admitted, and did not arrive is published again
// without asking: a filter of duplicates would take it for one.
type Filter func(m *Publishing) bool

// ExchangeType is a type that exchanges can have. Exactly one of New and Schedule is
// set.
type ExchangeType struct {
	// Name is the type in declarations, such as "x-random".
	Name string
	// Aliases are other names that declarations may use for the type. The exchange then
	// is of the type Name, and is shown so.
	Aliases []string
	// Description is one sentence for lists of the types.
	Description string
	// Arguments are the arguments that exchanges of this type understand.
	// Declarations may have others, too, which mean nothing.
	Arguments []ExchangeArgument
	// Check refuses a declaration whose arguments are valid one by one. The text of
	// its error is that of the client's PRECONDITION_FAILED. nil accepts any.
	Check func(x *Exchange) error
	// CheckBinding refuses a binding of an exchange, in the same way. nil accepts any.
	CheckBinding func(x *Exchange, key string, args Args) error
	// New is called when an exchange is created, or found when the broker starts: then
	// the arguments are not checked again, and neither are those of its bindings. It is
	// called before the declaration is durable, and may be called for an exchange that
	// is not created after all. Afterwards the Router is told of each binding, but not
	// of the end of the exchange. If New panics or returns nil, a new exchange is
	// refused, and one that is found refuses messages.
	New func(x *Exchange) Router
	// Schedule is called as New is, and again when the policies of the exchange change.
	// If it panics, a new exchange is refused; one that is there keeps the Schedule that
	// it has, and one that is found holds what it has, and refuses messages.
	Schedule func(x *Exchange) Schedule
	// Volatile means that Route must be asked about each message. Otherwise the
	// broker asks only once about messages with the same routing keys while the
	// exchange keeps its bindings, if Route called no method of the message. A type that
	// looks at Publishing.Now, or remembers messages, is Volatile.
	Volatile bool
}

// ExchangeArgument is an argument of exchanges.
type ExchangeArgument struct {
	Name string
	// Check refuses invalid values. The text of its error is that of the client's
	// PRECONDITION_FAILED. nil accepts any.
	Check func(x *Exchange, v any) error
	// Compared means that a redeclaration must have the same value. RabbitMQ compares
	// no argument but the alternate exchange.
	Compared bool
	// Policy makes the argument a key of policies for exchanges, named like the argument
	// without its "x-", with which its name then starts. nil means that only declarations
	// can set the argument. QuorumArgument and QueueTypes mean nothing here.
	Policy *PolicyKey
}

// Exchange describes an exchange.
type Exchange struct {
	VHost, Name, Type string
	Args              Args

	// Types are the types that [Schedule.Inner] may name: the broker's own, and then those
	// of plugins that have no Schedule. The slice belongs to the broker.
	Types []string
	// Setting returns an effective setting by its name in policies, from the arguments
	// (without "x-") and the policies of the exchange. It is set for
	// [ExchangeType.Schedule] only.
	Setting func(name string) (any, bool)
}

// Schedule is how an exchange holds messages before it routes them. What is held
// belongs to the exchange: it is durable if the exchange is, and goes with it. A
// released message is routed as if it were published then, but is not held again by
// the same exchange. Functions are called from many goroutines at once; they must not
// block, retain m or read a clock.
type Schedule struct {
	// Inner is the type that routes what is released: one of the broker's own or another
	// plugin's, but none that has a Schedule.
	Inner string
	// Plan says whether a message that is published to the exchange is held. It may be
	// asked more than once: it is asked again when the message gets to where it is held,
	// with the time of then, if the message has an ID, is a dead letter, goes elsewhere,
	// too, or comes from a transaction. The text of its error is that of the client's
	// PRECONDITION_FAILED; a dead letter with an error is routed at once. A message that
	// was accepted before, under other settings, follows its Plan whatever the error:
	// in a transaction it gets to where it is held when that is committed. If Plan panics,
	// the message is refused: its publisher's channel is closed.
	Plan func(m *Publishing, p *Plan) error
	// Released is asked about a message whose time has come. nil means that it leaves.
	// If it panics, the message leaves, too.
	Released func(m *Publishing, r *Release)
	// Negates names the header whose number is negated in released messages; "" means
	// that they stay as they were. A number that is not signed becomes a signed one of
	// 64 bits, and so does text; what is no number stays.
	Negates string
	// MaxHeld limits the messages held: those beyond it are refused with basic.nack.
	MaxHeld Limit
}

// Plan is what becomes of a message. The zero value routes it at once.
type Plan struct {
	// Hold is when the message is released. An instant that has passed routes it at once:
	// Released is not asked, and no other message replaces or cancels it.
	Hold Instant
	// ID is unique among what the exchange holds: a message that waits with it is
	// replaced (reason cancelled), also by one that is routed at once. nil means none. It
	// is read before Plan is called again, and may lie in the message.
	ID []byte
	// Cancel means that the message only cancels the one that waits with ID. If there is
	// none and the message is mandatory, it is returned (312 NO_ROUTE).
	Cancel bool
}

// Release is about a held message that is due.
type Release struct {
	Due   Instant // when it was
	State int64   // the plugin's own, kept with the message; 0 at first
	// Hold, if it is set, holds the message again, until then. A copy is released.
	Hold Instant
	Skip bool // nothing is released this time
}

// Destination stands for the queue or exchange that a binding leads to, within one
// Router. It is the same for all bindings to it, as long as there is one.
type Destination int32

// Binding is a binding of an exchange. Destination, Key and Args together are its
// identity.
type Binding struct {
	Destination Destination
	Name        string // of the queue or exchange
	ToExchange  bool   // it leads to an exchange
	Key         string
	Args        Args // sorted by name
}

// Router has the bindings of one exchange, and matches messages against them. The
// broker calls Bind and Unbind alone, and Route from many goroutines at once but
// never while Bind or Unbind runs: a Router needs no lock for its bindings.
//
// When the broker starts, bindings come in any order. Where that matters, sort by
// their names, so that messages go where they went before.
type Router interface {
	// Bind adds a binding, which passed CheckBinding and is new. b is valid during the
	// call only; a copy of it may be retained.
	Bind(b *Binding)
	// Unbind removes a binding. b is equal to the one that Bind got, but another value.
	Unbind(b *Binding)
	// Route appends the destinations of m to dst. The broker ignores repeated ones.
	// Route must not block, retain m, start a goroutine or read a clock. If it panics,
	// the message is refused: its publisher's channel is closed.
	Route(m *Publishing, dst []Destination) []Destination
}

// Preparer is a Router that prepares for Route when its bindings have changed, so that
// many changes in a row, such as those when the broker starts, cost one preparation.
type Preparer interface {
	Router
	// Prepare is called before the first Route after Bind or Unbind, once for all
	// changes, and while no other method runs. If it panics, the exchange routes no
	// message until the broker is started again.
	Prepare()
}

// Publishing is a message on its way through an exchange. It is valid during the
// call only, and so are its keys: a plugin that retains them clones them.
type Publishing struct {
	Now  Instant
	Key  string   // its routing key
	More []string // further routing keys, of its CC and BCC headers

	// Again says that a Volatile type routed the message, or a filter admitted it, when
	// it was published before. It is a dead letter that has to arrive at least once, and
	// did not. A Router that remembers messages does not take it for its own duplicate.
	Again bool
	// Filtered, set by the Router of a Volatile type, says that it leads the message
	// nowhere because it drops it, as a Filter that does not admit it: the broker counts
	// it so, and does not publish a dead letter again. Unlike then, the alternate
	// exchange gets the message.
	Filtered bool

	source Source
	read   bool
}

// Bind ties a message to its source, at index 0; the broker and test kits call it.
func (m *Publishing) Bind(s Source) { m.source, m.read = s, false }

// Read reports whether more than the routing keys was read since Bind.
func (m *Publishing) Read() bool { return m.read }

// Part returns a part of the message; nil if it has none.
func (m *Publishing) Part(p Part) []byte {
	m.read = true
	return m.source.Part(0, p)
}

// Header returns the value of a header and whether the message has it.
func (m *Publishing) Header(name string) (any, bool) {
	m.read = true
	return m.source.Header(0, name)
}

// HeaderInt returns the value of a header that is a number, as [Message.HeaderInt].
func (m *Publishing) HeaderInt(name string) (int64, bool) {
	m.read = true
	return m.source.HeaderInt(0, name)
}

// HeaderText returns the value of a header that is a string or a binary. It does
// not allocate.
func (m *Publishing) HeaderText(name string) ([]byte, bool) {
	m.read = true
	return m.source.HeaderText(0, name)
}

// NoHooks is embedded by plugins that take no part in queues.
type NoHooks struct{}

// Arguments implements [Plugin].
func (NoHooks) Arguments() []Argument { return nil }

// Attach implements [Plugin].
func (NoHooks) Attach(Queue) Hooks { return Hooks{Shared: true} }
