package amqp

// MaxArguments bounds the fields and elements in the arguments of a declaration, a binding or a consumer, and in the properties of a client.
// These are kept for as long as their object exists, and a field of two bytes takes sixteen times as much memory.
const MaxArguments = 1024

// Fields returns the number of fields and elements of a table, including those of nested tables and arrays.
func (t Table) Fields() int {
	n := len(t)
	for i := range t {
		n += inner(t[i].Value)
	}
	return n
}

func inner(v any) int {
	switch v := v.(type) {
	case Table:
		return v.Fields()
	case Array:
		n := len(v)
		for i := range v {
			n += inner(v[i])
		}
		return n
	}
	return 0
}
