// Package process builds the broker and runs it as users do: as a separate process, in an empty folder, on loopback ports that the
// system picks. Tests of the whole broker use it.
package process

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Record is a line of the broker's log.
type Record map[string]any

// Process is a running broker. At the end of the test it is stopped and its log checked.
type Process struct {
	AMQP, AMQPS   string // addresses; "" where it does not listen
	Management    string
	ManagementTLS string
	Metrics       string
	Dir           string // its working directory

	t      *testing.T
	cmd    *exec.Cmd
	group  bool // signals go to the command's process group
	strict bool // without timer slack
	log    io.Closer
	ended  chan struct{} // closed when it has exited and its output was read
	status int           // exit status, valid when ended is closed
	excuse []string      // messages of log level ERROR that are expected

	mu      sync.Mutex // guards what follows
	records []Record
	garbage []string      // lines that are not records: panics, reports of the race detector
	changed chan struct{} // closed and replaced when a line is added, and when the process has ended
}

// Start runs "curfew serve" with the configuration yaml, "" for none, and waits until it is ready. Later args override the
// random ports.
func Start(t *testing.T, yaml string, args ...string) *Process {
	t.Helper()
	return StartProgram(t, Binary(t), yaml, args...)
}

// StartProgram is Start for another program than the one that Binary builds.
func StartProgram(t *testing.T, program, yaml string, args ...string) *Process {
	t.Helper()
	p := launch(t, &Process{Dir: t.TempDir()}, nil, program, yaml, args)
	p.AwaitReady()
	return p
}

// StartStrictly is Start where the system wakes processes to the microsecond, as it does outside of tests: the broker starts itself anew.
func StartStrictly(t *testing.T) *Process {
	t.Helper()
	p := launch(t, &Process{Dir: t.TempDir(), strict: true}, nil, Binary(t), "", nil)
	p.AwaitReady()
	return p
}

// Launch is Start without waiting, for a broker that may refuse to start.
func Launch(t *testing.T, yaml string, args ...string) *Process {
	t.Helper()
	return launch(t, &Process{Dir: t.TempDir()}, nil, Binary(t), yaml, args)
}

// LaunchThrough is Launch for any program, by a command that becomes the one behind it, such as "ip netns exec NAME".
func LaunchThrough(t *testing.T, through []string, program, yaml string, args ...string) *Process {
	t.Helper()
	return launch(t, &Process{Dir: t.TempDir()}, through, program, yaml, args)
}

// Run starts the broker by a command of a page, which may start it through another program, such as "go run", and waits until it is
// ready. At the end of the test all its processes get a SIGINT, as from Ctrl-C in a terminal.
func Run(t *testing.T, cmd *exec.Cmd) *Process {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p := &Process{Dir: t.TempDir(), group: true}
	p.run(t, cmd)
	p.AwaitReady()
	return p
}

func launch(t *testing.T, p *Process, through []string, program, yaml string, args []string) *Process {
	t.Helper()
	all := []string{program, "serve", "--amqp", "127.0.0.1:0", "--management", "127.0.0.1:0"}
	if yaml != "" {
		p.t = t
		p.Configure(yaml)
		all = append(all, "--config", "curfew.yaml")
	}
	all = slices.Concat(through, all, args)
	cmd := exec.Command(all[0], all[1:]...)
	cmd.Dir = p.Dir
	if !strings.Contains(yaml, "handshake-timeout") { // the password's check is the longest part, with the race detector seconds of it
		cmd.Env = append(os.Environ(), "CURFEW_LIMITS__HANDSHAKE_TIMEOUT=1m")
	}
	p.run(t, cmd)
	return p
}

func (p *Process) run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	p.t, p.cmd = t, cmd
	p.ended, p.changed = make(chan struct{}), make(chan struct{})
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := os.Create(p.stdout())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stdout.Close() }() // the process has its own copy
	cmd.Stdout = stdout
	start := startRelaxed
	if p.strict {
		start = (*exec.Cmd).Start
	}
	if err := start(cmd); err != nil {
		t.Fatal(err)
	}
	p.log = stderr
	go p.collect(stderr)
	t.Cleanup(p.finish)
}

// AwaitReady waits until the broker serves, and takes its addresses from the log.
func (p *Process) AwaitReady() {
	p.t.Helper()
	p.Await("ready")
	p.AMQP, p.AMQPS = p.address("listen.amqp"), p.address("listen.amqps")
	p.Management, p.ManagementTLS = p.address("listen.management"), p.address("listen.management-tls")
	p.Metrics = p.address("listen.metrics")
}

// LeaveLog closes the pipe of the broker's log, as if the log's reader had ended.
func (p *Process) LeaveLog() {
	p.t.Helper()
	if err := p.log.Close(); err != nil {
		p.t.Fatal(err)
	}
}

// Configure replaces the configuration file of a process started with one.
func (p *Process) Configure(yaml string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.Dir, "curfew.yaml"), []byte(yaml), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p *Process) stdout() string { return filepath.Join(p.Dir, "stdout") }

// Output returns the broker's standard output so far.
func (p *Process) Output() string {
	p.t.Helper()
	out, err := os.ReadFile(p.stdout())
	if err != nil {
		p.t.Fatal(err)
	}
	return string(out)
}

// collect reads the log until the process ends.
func (p *Process) collect(stderr io.Reader) {
	lines := bufio.NewScanner(stderr)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		p.add(lines.Bytes())
	}
	var exit *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		p.add([]byte(err.Error()))
	}
	p.status = p.cmd.ProcessState.ExitCode()
	close(p.ended)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.change()
}

func (p *Process) add(line []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var r Record
	if json.Unmarshal(line, &r) == nil {
		p.records = append(p.records, r)
	} else {
		p.garbage = append(p.garbage, string(line))
	}
	p.change()
}

// change wakes the goroutines that wait for a change. The caller holds mu.
func (p *Process) change() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// Await waits for a record with the message msg, which may be in the log already, and returns the last one.
func (p *Process) Await(msg string) Record {
	p.t.Helper()
	late := time.After(2 * Patience) // a broker that goes on logging other things is not waited for without end
	for inTime := true; inTime; {
		ended := p.Ended()
		found, changed := p.find(msg)
		if found != nil {
			return found
		}
		if ended {
			p.t.Fatalf("the broker ended, status %d, without logging %q", p.status, msg)
		}
		select {
		case <-late:
			inTime = false
		default:
			_, _, inTime = Receive(changed)
		}
	}
	p.t.Fatalf("the broker did not log %q", msg)
	return nil
}

// Logged reports whether there is a record with the message msg.
func (p *Process) Logged(msg string) bool {
	found, _ := p.find(msg)
	return found != nil
}

// Times returns how many records with the message msg there are.
func (p *Process) Times(msg string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.records {
		if r["msg"] == msg {
			n++
		}
	}
	return n
}

// Ended reports whether the process has, by itself or not.
func (p *Process) Ended() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

func (p *Process) find(msg string) (last Record, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.records {
		if r["msg"] == msg {
			last = r
		}
	}
	return last, p.changed
}

func (p *Process) address(key string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.records {
		if address, ok := r["address"].(string); ok && r["key"] == key {
			return address
		}
	}
	return ""
}

// URL is the clients' URL.
func (p *Process) URL() string { return "amqp://guest:guest@" + p.AMQP }

// ID returns the process's number.
func (p *Process) ID() int { return p.cmd.Process.Pid }

// Signal sends the process a signal.
func (p *Process) Signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.signal(s); err != nil {
		p.t.Fatalf("%v: %v", s, err)
	}
}

// Kill kills the process, if it has not ended already.
func (p *Process) Kill() {
	_ = p.signal(syscall.SIGKILL) // an error means that it has ended
	<-p.ended
}

func (p *Process) signal(s syscall.Signal) error {
	if p.group {
		return syscall.Kill(-p.cmd.Process.Pid, s)
	}
	return p.cmd.Process.Signal(s)
}

// Exit waits for the end of the process and returns its status, negative when a signal killed it.
func (p *Process) Exit() int {
	p.t.Helper()
	if _, _, inTime := Receive(p.ended); !inTime {
		p.t.Fatal("the broker does not end")
	}
	return p.status
}

// Printed returns the lines on standard error that are not log records. Call it after Exit; the lines then do not fail the test.
func (p *Process) Printed() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := p.garbage
	p.garbage = nil
	return lines
}

// Excuse allows the broker to log errors with the message msg.
func (p *Process) Excuse(msg string) { p.excuse = append(p.excuse, msg) }

// finish ends a process that its test has not ended. The broker must end with status 0, without having logged an unexpected
// error.
func (p *Process) finish() {
	if !p.Ended() {
		p.Stop()
	}
	for _, line := range p.Printed() {
		p.t.Errorf("the broker printed: %s", line)
	}
	for _, r := range p.records {
		if msg, _ := r["msg"].(string); r["level"] == "ERROR" && !slices.Contains(p.excuse, msg) {
			p.t.Errorf("the broker logged: %v", r)
		}
		if p.t.Failed() {
			p.t.Log(r)
		}
	}
}

// Stop ends the process as an operator would, and fails the test if it does not end properly.
func (p *Process) Stop() {
	p.t.Helper()
	stop := syscall.SIGTERM
	if p.group {
		stop = syscall.SIGINT
	}
	p.Signal(stop)
	if _, _, inTime := Receive(p.ended); !inTime {
		p.Kill()
		p.t.Errorf("the broker did not end on %v", stop)
	}
	if p.status != 0 && !p.group { // "go run" says 1 after Ctrl-C
		p.t.Errorf("the broker ended with status %d", p.status)
	}
}

// Health returns the status and the body of the management API's /health.
func (p *Process) Health() (status int, body string) {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://"+p.Management+"/health", http.NoBody)
	if err != nil {
		p.t.Fatal(err)
	}
	status, body, err = Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	return status, body
}

// Resident is the resident memory of the process, in bytes; 0 if it is unknown. It is unknown with the race detector, whose own
// memory is several times the broker's and is never released.
func (p *Process) Resident() int64 {
	p.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
	if err != nil || slices.Contains(flags(), "-race=true") {
		return 0
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(b), &size, &resident); err != nil {
		p.t.Fatal(err)
	}
	return resident * int64(os.Getpagesize())
}
