package amqp

import "unsafe"

// BytesOf returns the bytes of a string without copying them. They must not be written.
func BytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
