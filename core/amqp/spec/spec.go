// Package spec holds the AMQP 0-9-1 protocol as a table and generates Go code from it.
//
// The table (protocol.table) is the single definition of classes, methods, fields, content properties and reply codes.
// [Load] reads it, [Generate] turns it into the file methods_gen.go of package amqp, and the command in gen
// runs both. The broker itself does not import this package.
package spec

// Protocol is the whole table, in the order it was written.
type Protocol struct {
	Classes []Class
	Replies []Reply
}

// Class is an AMQP class. Properties, in flag order, is empty for classes without content.
type Class struct {
	Name       string
	ID         uint16
	Methods    []Method
	Properties []Field
}

// Method is one method of a class. Sync means that its sender waits for an answer, Content that content frames follow.
type Method struct {
	Name    string
	ID      uint16
	Sync    bool
	Content bool
	Fields  []Field
}

// Field is an argument of a method or a content property.
type Field struct {
	Name string
	Type Type
}

// Reply is a reply code. Soft closes the channel, Hard the connection, neither is not an error.
type Reply struct {
	Name string
	Code uint16
	Soft bool
	Hard bool
}

// Type is a field type of the protocol [AMQP 4.2.1].
type Type string

// The field types.
const (
	Bit       Type = "bit"
	Octet     Type = "octet"
	Short     Type = "short"
	Long      Type = "long"
	LongLong  Type = "longlong"
	ShortStr  Type = "shortstr"
	LongStr   Type = "longstr"
	Timestamp Type = "timestamp"
	Table     Type = "table"
)

func (t Type) known() bool {
	switch t {
	case Bit, Octet, Short, Long, LongLong, ShortStr, LongStr, Timestamp, Table:
		return true
	}
	return false
}
