package vhost

import "fmt"

// Kind is what is wrong with a request, as far as a client's next step depends on it. A session makes a reply code of it.
type Kind uint8

// The kinds of errors.
const (
	NotFound       Kind = iota + 1 // no such queue or exchange
	AccessRefused                  // not permitted on this object, whoever asks
	Locked                         // an exclusive queue of another connection
	Precondition                   // arguments or state do not allow it
	NotImplemented                 // meaningful, and not offered
	NotAllowed                     // a limit is reached, or a connection asks for what is not there for it
	Stopped                        // what is needed for it cannot be written to the disk any more
)

// Error is a refused request. Text is what the client reads after the name of the reply code; for what RabbitMQ refuses
// too it is RabbitMQ's, to the letter.
type Error struct {
	Kind Kind
	Text string

	cause error // nil, or what went wrong in the broker
}

func (e *Error) Error() string { return e.Text }

func (e *Error) Unwrap() error { return e.cause }

func refuse(kind Kind, layout string, args ...any) *Error {
	return &Error{Kind: kind, Text: fmt.Sprintf(layout, args...)}
}

// queueName is how error texts name a queue.
func (v *VHost) queueName(name string) string {
	return "queue '" + name + "' in vhost '" + v.name + "'"
}

func (v *VHost) exchangeName(name string) string {
	return "exchange '" + name + "' in vhost '" + v.name + "'"
}

// NoQueue is the error for a queue that does not exist, or not any more: what a shell that is gone means to a client.
func (v *VHost) NoQueue(name string) *Error {
	return &Error{Kind: NotFound, Text: "no " + v.queueName(name)}
}

// noExchange is the error for an exchange that does not exist.
func (v *VHost) noExchange(name string) *Error {
	return &Error{Kind: NotFound, Text: "no " + v.exchangeName(name)}
}

func (v *VHost) locked(queue string) *Error {
	return refuse(Locked, "cannot obtain exclusive access to locked %s. It could be originally declared on another connection or "+
		"the exclusive property value does not match that of the original declaration.", v.queueName(queue))
}

var errDefaultExchange = &Error{Kind: AccessRefused, Text: "operation not permitted on the default exchange"}
