package amqp

import "unsafe"

// BytesOf returns a string's bytes without copying them: nobody may write to them.
func BytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }
