// Package route decides where messages go: it has the bindings of an exchange, and matches routing keys and headers against
// them.
//
// It does no I/O and reads no clock. A destination is any comparable value: a queue, an exchange, a tagged union of both.
package route

// Kind is an exchange type.
type Kind uint8

// The exchange types [AMQP 3.1.3].
const (
	Direct Kind = iota
	Fanout
	Topic
	Headers
)

var kinds = [...]string{"direct", "fanout", "topic", "headers"}

// String returns the name of the type in exchange.declare.
func (k Kind) String() string { return kinds[k] }

// ParseKind returns the exchange type of this name. ok is false if there is none.
func ParseKind(name string) (Kind, bool) {
	for k, n := range kinds {
		if n == name {
			return Kind(k), true
		}
	}
	return 0, false
}
