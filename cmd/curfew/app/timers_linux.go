package app

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// timerSlack is how much later than requested the system may wake the broker's threads. The
// Go runtime has a thread that sleeps for 20 µs at a time while others wait for disks and
// sockets, which a broker's always do; in a virtual machine each of these sleeps costs more
// than a message. Timers of the runtime are up to a millisecond late anyway; core/wire uses
// another kind where precision matters.
const timerSlack = time.Millisecond

// slackSet is set in the environment of a program that relaxTimers has started, so that it does not do that again.
const slackSet = "_TIMER_SLACK_SET"

// relaxTimers restarts the program, in the same process, with timerSlack for all its
// threads: each thread inherits it from the thread that creates it, and the runtime's
// threads exist already. It returns if the process has the slack already, or if the system
// does not support it.
func relaxTimers() {
	if _, done := os.LookupEnv(slackSet); done {
		os.Unsetenv(slackSet)
		// The system has named the process after the link through which it was started, and pgrep, top and systemd show that name.
		_ = os.WriteFile("/proc/self/comm", []byte(filepath.Base(os.Args[0])), 0) // without /proc the name stays
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil || slack >= int(timerSlack) || unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(timerSlack), 0, 0, 0) != nil {
		return
	}
	_ = syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), slackSet+"=1"))
}
