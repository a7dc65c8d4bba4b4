// Package access lets packages below sdk/hook reach fields of hook's types that are hidden from plugins.
package access

// Key is an argument of methods that only these packages can call.
type Key struct{}
