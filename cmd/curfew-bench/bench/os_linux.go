package bench

import (
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"
)

const clockMonotonic = 1

// timerFD sleeps on a timerfd through the runtime's poller. It is as precise as the
// kernel's timers (tens of microseconds), and unlike a blocking nanosleep does not occupy a
// processor that other goroutines could use.
type timerFD struct {
	fd   int
	file *os.File
	buf  [8]byte
}

func newPacer() (pacer, error) {
	fd, _, errno := syscall.Syscall(syscall.SYS_TIMERFD_CREATE, clockMonotonic, syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if errno != 0 {
		return nil, fmt.Errorf("timerfd_create: %w", errno)
	}
	return &timerFD{fd: int(fd), file: os.NewFile(fd, "timerfd")}, nil
}

func (t *timerFD) sleep(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	spec := [2]syscall.Timespec{1: syscall.NsecToTimespec(int64(d))} // {interval, value}
	_, _, errno := syscall.Syscall6(syscall.SYS_TIMERFD_SETTIME, uintptr(t.fd), 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("timerfd_settime: %w", errno)
	}
	if _, err := t.file.Read(t.buf[:]); err != nil {
		return fmt.Errorf("timerfd: %w", err)
	}
	return nil
}

func (t *timerFD) Close() error { return t.file.Close() }

// ownCPU returns the CPU time of this process, user plus system: the cost of the load generator.
func ownCPU() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// ownSession starts a process in its own session, and therefore in its own scheduling
// group.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// syncData makes the writes to a file durable.
func syncData(f *os.File) error {
	return os.NewSyscallError("fdatasync", syscall.Fdatasync(int(f.Fd())))
}
