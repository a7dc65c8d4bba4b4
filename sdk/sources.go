// Package sdk has the source files of the SDKs for expiry policies, for tools
// that put them into a user's project.
package sdk

import "embed"

// Sources are the files of the SDKs, by their paths in this folder. Those of the
// Go SDK are a package and the one it imports.
//
//go:embed c/policy.h cpp/policy.hpp rust/policy.rs rust/testing.rs zig/policy.zig assemblyscript/policy.ts abi/abi.go abi/functions.go
//go:embed go/policy/batch.go go/policy/elsewhere.go go/policy/guest.go go/policy/host.go go/policy/policy.go
var Sources embed.FS
