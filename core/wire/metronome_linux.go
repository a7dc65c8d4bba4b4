package wire

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// metronome ticks at short intervals. Timers of the Go runtime are up to a millisecond late while the process sleeps.
type metronome struct {
	fd   int
	file *os.File // of fd; reading it waits in the runtime's poller
	buf  [8]byte
}

func newMetronome() (*metronome, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	return &metronome{fd: fd, file: os.NewFile(uintptr(fd), "timerfd")}, nil
}

// tick sets the interval; 0 means no ticks.
func (m *metronome) tick(every time.Duration) error {
	t := unix.NsecToTimespec(int64(every))
	return os.NewSyscallError("timerfd_settime", unix.TimerfdSettime(m.fd, 0, &unix.ItimerSpec{Interval: t, Value: t}, nil))
}

// wait waits for the next tick. It returns at once if there was one since the previous call.
func (m *metronome) wait() error {
	_, err := m.file.Read(m.buf[:])
	return err
}

func (m *metronome) close() { m.file.Close() }

// setLowWater makes a socket readable only when there are n bytes to read.
func setLowWater(fd, n int) { _ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, n) }
