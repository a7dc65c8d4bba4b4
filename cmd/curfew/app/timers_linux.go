package app

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// timerSlack is how much later than asked for the system may wake the broker's threads. The Go runtime has a thread that sleeps for 20 µs at
// a time while others wait for disks and sockets, as a broker's do all the time; a virtual machine spends more on each of those sleeps than
// on a message. Timers of the runtime are up to a millisecond late anyway, and those of core/wire that must not be are of another kind.
const timerSlack = time.Millisecond

// slackSet is in the environment of a program that was started by relaxTimers, so that it does not do that again.
const slackSet = "_TIMER_SLACK_SET"

// relaxTimers starts the program anew, in the same process, with timerSlack for all its threads: each has it from the one that has made
// it, and the runtime's exist already. It returns if the process has it, or where the system has no such thing: then all is as it was.
func relaxTimers() {
	if _, done := os.LookupEnv(slackSet); done {
		os.Unsetenv(slackSet)
		// The system has named the process after the link that it was started through, and pgrep, top and systemd show that name.
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
