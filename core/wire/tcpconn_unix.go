//go:build unix

package wire

import "syscall"

// readsNow says that there is readNow.
const readsNow = true

// readNow reads what is there from a socket that does not wait.
func readNow(fd uintptr, p []byte) (int, error) { return syscall.Read(int(fd), p) }
