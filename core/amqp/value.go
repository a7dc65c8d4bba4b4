package amqp

// TypeName returns RabbitMQ's name for the type of a table value, as used in its error texts; "" for values that a [Table] cannot hold.
func TypeName(v any) string {
	switch v.(type) {
	case bool:
		return "bool"
	case int8:
		return "byte"
	case uint8:
		return "unsignedbyte"
	case int16:
		return "short"
	case uint16:
		return "unsignedshort"
	case int32:
		return "signedint"
	case uint32:
		return "unsignedint"
	case int64:
		return "long"
	case float32:
		return "float"
	case float64:
		return "double"
	case Decimal:
		return "decimal"
	case Timestamp:
		return "timestamp"
	case string:
		return "longstr"
	case []byte:
		return "binary"
	case Array:
		return "array"
	case Table:
		return "table"
	case nil:
		return "void"
	}
	return ""
}

// Integer returns the value of a table field of any integer type; false for other types.
func Integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int8:
		return int64(v), true
	case uint8:
		return int64(v), true
	case int16:
		return int64(v), true
	case uint16:
		return int64(v), true
	case int32:
		return int64(v), true
	case uint32:
		return int64(v), true
	case int64:
		return v, true
	}
	return 0, false
}
