package dedup

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/curfewmq/curfew/sdk/hook"
)

// The arguments of exchanges. The first and the last one are also arguments of queues.
const (
	dedupArgument       = "x-message-deduplication"
	sizeArgument        = "x-cache-size"
	ttlArgument         = "x-cache-ttl"
	persistenceArgument = "x-cache-persistence"
	headerArgument      = "x-deduplication-header"
)

const (
	exchangeType = "x-message-deduplication"

	// defaultHeader is the header whose values are compared.
	defaultHeader = "x-deduplication-header"
	// ttlHeader says how long a message's key is remembered, in milliseconds.
	ttlHeader = "x-cache-ttl"
	// defaultSize is LavinMQ's size of a cache. Exchanges of the type dedup must set their own.
	defaultSize = 128
	// maxHeader is the maximum length of a header's name.
	maxHeader = 255
)

var (
	_ hook.ExchangeTyper    = (*plugin)(nil)
	_ hook.ExchangeFilterer = (*plugin)(nil)
)

// ExchangeTypes implements [hook.ExchangeTyper].
func (p *plugin) ExchangeTypes() []hook.ExchangeType {
	return []hook.ExchangeType{{
		Name:        exchangeType,
		Description: "Message Deduplication Exchange.", // as the plugin for RabbitMQ has it
		Check:       p.checkType,
		New:         func(x *hook.Exchange) hook.Router { return &router{checker: p.newChecker(x)} },
		Volatile:    true,
	}}
}

// ExchangeArguments implements [hook.ExchangeFilterer]. The exchange type has the same arguments. As in RabbitMQ, none is compared when
// an exchange is declared again.
func (p *plugin) ExchangeArguments() []hook.ExchangeArgument {
	return []hook.ExchangeArgument{
		{Name: dedupArgument, Check: checkEnabled},
		{Name: sizeArgument, Check: whereUsed(p.checkSize)},
		{Name: ttlArgument, Check: whereUsed(checkTTL)},
		{Name: persistenceArgument, Check: whereUsed(checkPersistence)},
		{Name: headerArgument, Check: whereUsed(checkHeader)},
	}
}

// Filter implements [hook.ExchangeFilterer].
func (p *plugin) Filter(x *hook.Exchange) hook.Filter {
	if x.Type == exchangeType || !enabled(x) {
		return nil
	}
	return p.newChecker(x).admits
}

// enabled reports whether the exchange has the argument that makes it drop duplicates.
func enabled(x *hook.Exchange) bool {
	v, _ := x.Args.Lookup(dedupArgument)
	on, _ := v.(bool)
	return on
}

func checkEnabled(_ *hook.Exchange, v any) error {
	if _, ok := v.(bool); !ok {
		return fmt.Errorf("Invalid argument, '%s' must be a boolean", dedupArgument) //nolint:staticcheck // in the style of the others
	}
	return nil
}

// whereUsed returns a check that applies only to exchanges that drop duplicates. For others the arguments have no meaning here, and may
// belong to another plugin.
func whereUsed(check func(v any) error) func(*hook.Exchange, any) error {
	return func(x *hook.Exchange, v any) error {
		if x.Type != exchangeType && !enabled(x) {
			return nil
		}
		return check(v)
	}
}

// The texts of RabbitMQ's plugin.
var (
	errSize = errors.New("Missing or invalid argument, 'x-cache-size' must be an integer greater than 0") //nolint:staticcheck // its text
	errTTL  = errors.New("Invalid argument, 'x-cache-ttl' must be an integer greater than 0")             //nolint:staticcheck // its text
)

// checkType refuses an exchange of the type without a size.
func (p *plugin) checkType(x *hook.Exchange) error {
	if _, ok := x.Args.Lookup(sizeArgument); !ok {
		return errSize
	}
	return nil
}

func (p *plugin) checkSize(v any) error {
	switch n, ok := positive(v); {
	case !ok:
		return errSize
	case n > int64(p.config.MaxCacheSize):
		return fmt.Errorf("Invalid argument, '%s' must be an integer from 1 to %d, got %d", sizeArgument, p.config.MaxCacheSize, n) //nolint:staticcheck // in the style of the others
	}
	return nil
}

func checkTTL(v any) error {
	if _, ok := positive(v); !ok {
		return errTTL
	}
	return nil
}

func checkPersistence(v any) error {
	if v != "memory" {
		return fmt.Errorf("Invalid argument, '%s' must be 'memory': caches are not kept on disk", persistenceArgument) //nolint:staticcheck // in the style of the others
	}
	return nil
}

func checkHeader(v any) error {
	if s, ok := v.(string); !ok || s == "" || len(s) > maxHeader {
		return fmt.Errorf("Invalid argument, '%s' must be a string of 1 to %d bytes", headerArgument, maxHeader) //nolint:staticcheck // in the style of the others
	}
	return nil
}

// positive returns an argument as an integer greater than 0. As in RabbitMQ, a string of decimal digits is accepted, too.
func positive(v any) (int64, bool) {
	n, ok := hook.Int(v)
	if s, isString := v.(string); isString {
		parsed, err := strconv.ParseInt(s, 10, 64)
		n, ok = parsed, err == nil
	}
	return n, ok && n > 0
}

// checker finds duplicates among the messages of an exchange. Any goroutine may use it.
type checker struct {
	seeds  *seeds
	cache  *cache
	header string
	ttl    hook.Limit // milliseconds
}

func (p *plugin) newChecker(x *hook.Exchange) *checker {
	c := &checker{seeds: &p.seeds, header: defaultHeader}
	size := int64(defaultSize)
	for _, a := range x.Args {
		switch a.Name {
		case sizeArgument:
			if n, ok := positive(a.Value); ok {
				size = n
			}
		case ttlArgument:
			if n, ok := positive(a.Value); ok {
				c.ttl = hook.LimitOf(n)
			}
		case headerArgument:
			if s, ok := a.Value.(string); ok {
				c.header = s
			}
		}
	}
	c.cache = p.budget.newCache(int(min(size, int64(p.config.MaxCacheSize)))) // the limit may have been lowered since
	return c
}

// admits reports whether a message is not a duplicate, and remembers it.
func (c *checker) admits(m *hook.Publishing) bool {
	k, ok := keyOf(c.seeds, m, c.header)
	return !ok || c.cache.admit(m.Now, k, c.expires(m))
}

// expires returns until when a message is remembered; 0 = for ever.
func (c *checker) expires(m *hook.Publishing) hook.Instant {
	if ms, ok := readTTL(m); ok {
		return max(m.Now.AddMillis(max(ms, 0)), 1)
	}
	if c.ttl.Set() {
		return m.Now.AddMillis(c.ttl.N())
	}
	return 0
}

// readTTL returns how long a message asks to be remembered, in milliseconds.
func readTTL(m *hook.Publishing) (ms int64, ok bool) {
	if ms, ok = m.HeaderInt(ttlHeader); !ok {
		return 0, false
	}
	v, _ := m.Header(ttlHeader)
	switch hook.TypeName(v) { // HeaderInt reads these types, too, but they are not numbers of milliseconds
	case "bool", "timestamp":
		return 0, false
	}
	return ms, true
}

// router routes each message that is not a duplicate to all destinations, whatever its keys
// are. A duplicate matches nothing, so that it goes to the alternate exchange, as in
// RabbitMQ. It implements [hook.Router].
type router struct {
	*checker
	bindings []int32            // by destination
	all      []hook.Destination // destinations with bindings
}

var _ hook.Router = (*router)(nil)

func (r *router) Bind(b *hook.Binding) {
	d := b.Destination
	for int(d) >= len(r.bindings) {
		r.bindings = append(r.bindings, 0)
	}
	if r.bindings[d]++; r.bindings[d] == 1 {
		r.all = append(r.all, d)
	}
}

func (r *router) Unbind(b *hook.Binding) {
	d := b.Destination
	if r.bindings[d]--; r.bindings[d] > 0 {
		return
	}
	for i := range r.all {
		if r.all[i] == d {
			r.all = append(r.all[:i], r.all[i+1:]...)
			return
		}
	}
}

func (r *router) Route(m *hook.Publishing, dst []hook.Destination) []hook.Destination {
	if !m.Again && !r.admits(m) {
		m.Filtered = true
		return dst
	}
	return append(dst, r.all...)
}
