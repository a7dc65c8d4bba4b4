package amqp

// MaxArguments is how many fields and elements the arguments of a declaration, a binding or a consumer may have, and the properties of a client,
// which are kept as long as what they are of. A field of two bytes takes sixteen times as much memory.
const MaxArguments = 1024

// Fields returns how many fields and elements a table has, with those of tables and arrays in it.
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
