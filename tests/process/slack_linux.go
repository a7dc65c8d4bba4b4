package process

import (
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// startRelaxed starts a command whose process inherits the timer slack that the broker wants. A broker without it starts its program a second
// time, which is a third of what a start costs.
func startRelaxed(cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	had, _, failed := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_GET_TIMERSLACK, 0, 0)
	if failed == 0 {
		slack := func(ns uintptr) { _, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_TIMERSLACK, ns, 0) }
		slack(uintptr(time.Millisecond))
		defer slack(had)
	}
	return cmd.Start()
}
