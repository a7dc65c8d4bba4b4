//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package vfs

import "os"

// lock does nothing: this system has no lock that ends with the process.
func lock(*os.File) error { return nil }

// syncDir does nothing: directories cannot be synced here.
func syncDir(*os.File) error { return nil }
