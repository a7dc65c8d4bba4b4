//go:build !unix

package wire

import "errors"

const readsNow = false

// readNow is not available. Neither noWait nor onIdle is used here.
func readNow(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }
