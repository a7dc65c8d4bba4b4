//go:build !unix

package wire

import "errors"

const readsNow = false

// readNow stands for a read that does not wait, for which there is another way here. No link is in haste or calls idle.
func readNow(uintptr, []byte) (int, error) { return 0, errors.ErrUnsupported }
