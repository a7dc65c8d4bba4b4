//go:build linux

package packaging

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/curfewmq/curfew/core/logtest"
	"github.com/curfewmq/curfew/tests/process"
	"github.com/curfewmq/curfew/tests/tools"
)

// machine is a systemd with this machine's files and a network of its own; see testdata/boot. It ends with the test.
type machine struct{ pid string }

// cloneNewCgroup is CLONE_NEWCGROUP of clone(2), which package syscall lacks.
const cloneNewCgroup = 0x02000000

// boot starts a machine. Where that is impossible, the test is skipped, or fails.
func boot(t *testing.T) machine {
	t.Helper()
	tools.Need(t, "ip", "dpkg", "nsenter", "chroot", "mount")
	if os.Getuid() != 0 {
		tools.Missing(t, "root", "only root makes the namespaces that systemd runs in")
	}
	if _, err := os.Stat("/lib/systemd/systemd"); err != nil {
		tools.Missing(t, "systemd", "%v", err)
	}
	var said logtest.Log
	pid := startMachine(t, &said)
	m := machine{pid: strconv.Itoa(pid)}
	var state string
	up := process.Poll(func() bool {
		state, _ = m.try(t, "systemctl is-system-running --wait")
		return state == "running" || state == "degraded" || syscall.Kill(pid, 0) != nil
	})
	if state != "running" && state != "degraded" {
		tools.Missing(t, "systemd", "it does not run in namespaces here: state %q (in time: %t)\n%s", state, up, said.String())
	}
	return m
}

func startMachine(t *testing.T, said io.Writer) (pid int) {
	t.Helper()
	script, err := filepath.Abs("testdata/boot")
	must(t, err)
	ready := make(chan error, 1)
	ended, done := make(chan struct{}), make(chan struct{})
	cmd := exec.Command("bash", script, t.TempDir())
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | cloneNewCgroup,
		Pdeathsig:  syscall.SIGKILL, // of the thread that starts it, which therefore must not end before
	}
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		ready <- cmd.Start()
		if cmd.Process == nil {
			return
		}
		<-done
		_ = cmd.Process.Kill() // and with it all its processes
		_ = cmd.Wait()         // which says that it was killed
	}()
	if err := <-ready; err != nil {
		close(done)
		<-ended
		tools.Missing(t, "systemd", "no namespaces: %v", err)
	}
	t.Cleanup(func() {
		close(done)
		<-ended
	})
	return cmd.Process.Pid
}

// try runs a script in the machine, in the folder /tmp, and returns what it prints.
func (m machine) try(t *testing.T, script string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "nsenter", "--target", m.pid, "--mount", "--pid", "--net", "--cgroup", "--root",
		"/usr/bin/env", "--chdir=/tmp", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8", "HOME=/root",
		"/bin/bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = "/" // a working directory outside of the machine has no name in it
	out, err := cmd.CombinedOutput()
	return strings.TrimRight(string(out), "\n"), err
}

// run is try for a script that must succeed.
func (m machine) run(t *testing.T, script string) string {
	t.Helper()
	out, err := m.try(t, script)
	if err != nil {
		t.Fatalf("in the machine: %v\n%s\nsays\n%s\nand the journal\n%s", err, script, out, m.journal(t))
	}
	return out
}

// expect runs a script and compares what it prints.
func (m machine) expect(t *testing.T, script, want string) {
	t.Helper()
	if got := m.run(t, script); got != want {
		t.Errorf("in the machine %q says %q, want %q; the journal:\n%s", script, got, want, m.journal(t))
	}
}

func (m machine) journal(t *testing.T) string {
	t.Helper()
	out, _ := m.try(t, "journalctl --no-pager --unit curfew --lines 40") // best effort: it explains a failure
	return out
}

// awaitJournal waits until the service's journal has a line that matches.
func (m machine) awaitJournal(t *testing.T, pattern string) {
	t.Helper()
	line := regexp.MustCompile(pattern)
	if !process.Poll(func() bool { return line.MatchString(m.journal(t)) }) {
		t.Fatalf("the journal has no %s:\n%s", pattern, m.journal(t))
	}
}

// put copies a file to the machine's /tmp.
func (m machine) put(t *testing.T, file string) {
	t.Helper()
	f, err := os.Open(file)
	must(t, err)
	defer f.Close()
	cmd := exec.CommandContext(t.Context(), "nsenter", "--target", m.pid, "--mount", "--root", "/usr/bin/tee", "/tmp/"+filepath.Base(file))
	cmd.Stdin, cmd.Dir = f, "/"
	if err := cmd.Run(); err != nil {
		t.Fatal(errors.Join(err, errors.New("putting "+file)))
	}
}
