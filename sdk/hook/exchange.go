package hook

// ExchangeTyper is a plugin that offers exchange types. A plugin that does nothing else embeds [NoHooks].
type ExchangeTyper interface {
	Plugin
	// ExchangeTypes returns the types. It is called once, when the broker starts.
	ExchangeTypes() []ExchangeType
}

// ExchangeFilterer is a plugin that decides about messages before an exchange of any type routes them.
type ExchangeFilterer interface {
	Plugin
	// ExchangeArguments returns the arguments of exchanges, of any type, that configure the
	// filter. It is called once, when the broker starts.
	ExchangeArguments() []ExchangeArgument
	// Filter returns the filter of an exchange that is created, or that exists when the
	// broker starts; nil means no filter. It is called for all exchanges except the default
	// one. The arguments of an existing exchange are not checked again. If Filter panics, a
	// new exchange is refused, and an existing one refuses messages.
	Filter(x *Exchange) Filter
}

// Filter reports whether the exchange routes a message. Otherwise the exchange routes it nowhere, not even to its alternate exchange: the
// message is unroutable, unless it came through another exchange that has queues for it. The rules of [Router.Route] apply. The filter is
// called for each message to the exchange, after all checks that precede routing, and in transactions when the message is published.
//
// A dead letter that is not admitted is dropped, with the outcome "filtered". A dead letter with at-least-once that was admitted, and did
// not arrive, is published again without calling the filter: a filter of duplicates would take it for one.
type Filter func(m *Publishing) bool

// ExchangeType is a type that exchanges can have. Exactly one of New and Schedule is set.
type ExchangeType struct {
	// Name is the type in declarations, such as "x-random".
	Name string
	// Aliases are other names that declarations may use for the type. The type of such an exchange is Name, and shown as that.
	Aliases []string
	// Description is one sentence for lists of exchange types.
	Description string
	// Arguments are the arguments that exchanges of this type support. Declarations may contain others, which have no effect.
	Arguments []ExchangeArgument
	// Check refuses a declaration whose arguments are valid individually but not together. The text of its error becomes the text of the
	// client's PRECONDITION_FAILED. nil accepts every declaration.
	Check func(x *Exchange) error
	// CheckBinding refuses a binding of an exchange, in the same way. nil accepts every binding.
	CheckBinding func(x *Exchange, key string, args Args) error
	// New is called when an exchange is created, or for an exchange that exists when the
	// broker starts. In the latter case neither its arguments nor those of its bindings are
	// checked again. New is called before the declaration is durable, and possibly for an
	// exchange that is not created in the end. Afterwards the broker calls the Router for
	// each binding, but does not report the end of the exchange. If New panics or returns
	// nil, a new exchange is refused, and an existing one refuses messages.
	New func(x *Exchange) Router
	// Schedule is called like New, and again when the policies of the exchange change. If
	// it panics, a new exchange is refused. After a change of policies the exchange keeps
	// its present Schedule. An exchange that exists when the broker starts keeps the
	// messages that it holds, and refuses new ones.
	Schedule func(x *Exchange) Schedule
	// Volatile means that Route must be called for each message. Otherwise the broker
	// caches the result for messages with the same routing keys, as long as the exchange's
	// bindings do not change, provided that Route called no method of the message. A type
	// that uses Publishing.Now, or remembers messages, is Volatile.
	Volatile bool
}

// ExchangeArgument is an argument of exchanges.
type ExchangeArgument struct {
	Name string
	// Check refuses invalid values. The text of its error becomes the text of the client's PRECONDITION_FAILED. nil accepts any value.
	Check func(x *Exchange, v any) error
	// Compared means that a redeclaration must have the same value. RabbitMQ compares no argument except the alternate exchange.
	Compared bool
	// Policy makes the argument a key of policies for exchanges. The key is the argument's
	// name without its prefix "x-", which the name must have. nil means that only
	// declarations can set the argument. QuorumArgument and QueueTypes have no meaning
	// here.
	Policy *PolicyKey
}

// Exchange describes an exchange.
type Exchange struct {
	VHost, Name, Type string
	Args              Args

	// Types are the types that [Schedule.Inner] may name: the broker's own, followed by
	// plugins' types without a Schedule. The slice belongs to the broker.
	Types []string
	// Setting returns an effective setting by its name in policies, from the arguments
	// (without "x-") and the policies of the exchange. It is set only for
	// [ExchangeType.Schedule].
	Setting func(name string) (any, bool)
}

// Schedule describes how an exchange holds messages before it routes them. Held messages belong to the exchange: they are durable if the
// exchange is, and deleted with it. A released message is routed as if it were published at that moment, but the same exchange does not
// hold it again. The functions are called from many goroutines at once; they must not block, retain m or read a clock.
type Schedule struct {
	// Inner is the type that routes released messages: one of the broker's own, or another plugin's type without a Schedule.
	Inner string
	// Plan decides whether to hold a message that is published to the exchange. It may be
	// called more than once: when the message reaches the place where it is held, Plan is
	// called again, with the time at that moment, if the message has an ID, is a dead
	// letter, also goes elsewhere, or comes from a transaction. The text of its error
	// becomes the text of the client's PRECONDITION_FAILED; a dead letter with an error is
	// routed at once. A message that was accepted earlier, under other settings, follows
	// its Plan in spite of an error; in a transaction, for example, it reaches its place at
	// the commit. If Plan panics, the message is refused: its publisher's channel is
	// closed.
	Plan func(m *Publishing, p *Plan) error
	// Released is called for a message whose time has come. nil means that the message leaves. If it panics, the message leaves, too.
	Released func(m *Publishing, r *Release)
	// Negates names the header whose number is negated in released messages; "" means that no header changes. An unsigned number becomes a
	// signed one of 64 bits, and so does text; other values stay as they are.
	Negates string
	// MaxHeld limits the number of held messages: messages beyond it are refused with basic.nack.
	MaxHeld Limit
}

// Plan says how to handle a message. The zero value routes it at once.
type Plan struct {
	// Hold is when to release the message. If it is in the past, the message is routed at
	// once: Released is not called, and no other message can replace or cancel it.
	Hold Instant
	// ID is unique among the messages that the exchange holds: a held message with the same
	// ID is replaced (reason cancelled), even by a message that is routed at once. nil
	// means none. ID is read before Plan is called again, and may lie in the message.
	ID []byte
	// Cancel means that the message only cancels the held message with the same ID. If there is none and the message is mandatory, it is
	// returned (312 NO_ROUTE).
	Cancel bool
}

// Release describes a held message that is due.
type Release struct {
	Due   Instant // when it was due
	State int64   // for use by the plugin, stored with the message; 0 at first
	// Hold, if set, holds the message again, until then. A copy is released.
	Hold Instant
	Skip bool // release nothing this time
}

// Destination identifies the queue or exchange of a binding within one Router. It is the same for all bindings to it, as long as there
// is one.
type Destination int32

// Binding is a binding of an exchange. Destination, Key and Args together identify it.
type Binding struct {
	Destination Destination
	Name        string // of the queue or exchange
	ToExchange  bool   // the destination is an exchange
	Key         string
	Args        Args // sorted by name
}

// Router has the bindings of one exchange, and matches messages against them. The broker
// calls Bind and Unbind one at a time. It calls Route from many goroutines at once, but
// never while Bind or Unbind runs: a Router needs no lock for its bindings.
//
// When the broker starts, bindings come in any order. If the order matters, sort the bindings by name, so that a restart does not change
// where messages go.
type Router interface {
	// Bind adds a new binding that has passed CheckBinding. b is valid only during the call; a copy of it may be retained.
	Bind(b *Binding)
	// Unbind removes a binding. b equals the value that Bind got, but is another value.
	Unbind(b *Binding)
	// Route appends the destinations of m to dst. The broker ignores repeated ones. Route
	// must not block, retain m, start a goroutine or read a clock. If it panics, the
	// message is refused: its publisher's channel is closed.
	Route(m *Publishing, dst []Destination) []Destination
}

// Preparer is a Router that prepares for Route after its bindings have changed, so that
// many changes in a row, such as those when the broker starts, cost a single preparation.
type Preparer interface {
	Router
	// Prepare is called before the first Route after Bind or Unbind, once for all changes,
	// while no other method runs. If it panics, the exchange routes no message until the
	// broker is restarted.
	Prepare()
}

// Publishing is a message on its way through an exchange. The message and its keys are valid only during the call: a plugin that retains a
// key must clone it.
type Publishing struct {
	Now  Instant
	Key  string   // its routing key
	More []string // further routing keys, from its CC and BCC headers

	// Again means that a Volatile type has routed the message before, or that a filter has
	// admitted it. It is a dead letter with at-least-once that did not arrive. A Router
	// that remembers messages must not take it for its own duplicate.
	Again bool
	// Filtered is set by the Router of a Volatile type when it routes the message nowhere because it drops it, like a Filter that does not
	// admit it. The broker counts it as filtered, and does not publish a dead letter again. Unlike with a Filter, the alternate exchange
	// gets the message.
	Filtered bool

	source Source
	read   bool
}

// Bind connects a message to its source, at index 0; the broker and test kits call it.
func (m *Publishing) Bind(s Source) { m.source, m.read = s, false }

// Read reports whether more than the routing keys has been read since Bind.
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

// HeaderInt returns the value of a header that is a number; see [Message.HeaderInt].
func (m *Publishing) HeaderInt(name string) (int64, bool) {
	m.read = true
	return m.source.HeaderInt(0, name)
}

// HeaderText returns the value of a header that is a string or a binary. It does not allocate.
func (m *Publishing) HeaderText(name string) ([]byte, bool) {
	m.read = true
	return m.source.HeaderText(0, name)
}

// NoHooks is embedded by plugins that do nothing in queues.
type NoHooks struct{}

// Arguments implements [Plugin].
func (NoHooks) Arguments() []Argument { return nil }

// Attach implements [Plugin].
func (NoHooks) Attach(Queue) Hooks { return Hooks{Shared: true} }
