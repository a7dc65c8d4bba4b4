package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/tests/process"
)

// The broker's threads need not be woken to the microsecond, which costs virtual machines more than messages do. It has started itself
// anew for that: its arguments, its streams and its number are those that it was given.
func TestTimersAreRelaxed(t *testing.T) {
	p := process.StartStrictly(t)
	slack, err := os.ReadFile(fmt.Sprintf("/proc/%d/timerslack_ns", p.ID()))
	if errors.Is(err, fs.ErrPermission) {
		t.Skip("only who may set the timers of other processes may read them:", err)
	}
	if got := strings.TrimSpace(string(slack)); err != nil || got != "1000000" {
		t.Errorf("timer slack: %s ns, %v; want a millisecond", got, err)
	}
	p.Stop()
}

// The broker starts itself anew through a link named exe, and the system took that for the name of the process: pgrep -x curfew found
// nothing, and top showed exe.
func TestProcessHasTheProgramsName(t *testing.T) {
	p := process.StartStrictly(t)
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.ID()))
	if got := strings.TrimSpace(string(name)); err != nil || got != filepath.Base(process.Binary(t)) {
		t.Errorf("the process is called %q, %v", got, err)
	}
	p.Stop()
}
