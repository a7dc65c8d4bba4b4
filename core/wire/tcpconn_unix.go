//go:build unix

package wire

import "syscall"

// readsNow reports that readNow is available.
const readsNow = true

// readNow reads from a non-blocking socket.
func readNow(fd uintptr, p []byte) (int, error) { return syscall.Read(int(fd), p) }
