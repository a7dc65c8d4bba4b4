package ctl

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/term"
)

// terminal is a pseudo terminal that records its output.
type terminal struct {
	far, near *os.File // the ends of the person and of the program

	mu      sync.Mutex // guards the fields below
	written strings.Builder
	gone    bool       // nothing more is written
	changed *sync.Cond // with mu
}

func newTerminal(t *testing.T, width, height int) *terminal {
	t.Helper()
	far, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("there are no pseudo terminals:", err)
	}
	raw, err := far.SyscallConn() // with Fd, a read could not be interrupted any more
	if err != nil {
		t.Fatal(err)
	}
	control := func(request uintptr, argument unsafe.Pointer) {
		t.Helper()
		_ = raw.Control(func(fd uintptr) {
			if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(argument)); e != 0 {
				t.Error(e)
			}
		})
	}
	var number, unlocked int32
	control(syscall.TIOCSPTLCK, unsafe.Pointer(&unlocked))
	control(syscall.TIOCGPTN, unsafe.Pointer(&number))
	size := [4]uint16{uint16(height), uint16(width)}
	control(syscall.TIOCSWINSZ, unsafe.Pointer(&size))
	near, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	x := &terminal{far: far, near: near}
	x.changed = sync.NewCond(&x.mu)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b := make([]byte, 4096)
		for {
			n, err := far.Read(b)
			x.mu.Lock()
			x.written.Write(b[:n])
			x.gone = err != nil
			x.mu.Unlock()
			x.changed.Broadcast()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = far.Close() // ends reads of both
		<-ended
		_ = near.Close()
	})
	return x
}

// await waits until text is written after the position from, and returns the position where it ends.
func (x *terminal) await(t *testing.T, from int, text string) int {
	t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	for {
		if at := strings.Index(x.written.String()[from:], text); at >= 0 {
			return from + at + len(text)
		}
		if x.gone {
			t.Fatalf("there is no %q in %q", text, x.written.String())
		}
		x.changed.Wait()
	}
}

// The screen shows states, reacts to keys, and restores the terminal, also when a signal ends the command.
func TestTopOnTerminal(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/overview") {
			fmt.Fprint(w, `{"product_name":"Curfew","node":"n"}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "event: state\ndata: %s\n\n", topState)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	for name, end := range map[string]func(x *terminal, interrupt func()){
		"q":                func(x *terminal, _ func()) { _, _ = x.far.WriteString("q") },
		"Ctrl-C":           func(x *terminal, _ func()) { _, _ = x.far.WriteString("\x03") },
		"keys in one read": func(x *terminal, _ func()) { _, _ = x.far.WriteString("pnq\x03") }, // they were taken for one, which nothing obeyed
		"signal":           func(_ *terminal, interrupt func()) { interrupt() },
	} {
		t.Run(name, func(t *testing.T) {
			x := newTerminal(t, 120, 24)
			before, err := term.GetState(int(x.near.Fd()))
			if err != nil {
				t.Fatal(err)
			}
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			p := &Program{Name: "curfew ctl", Environ: []string{urlVariable + "=" + server.URL}, Stdin: x.near, Stdout: x.near, Stderr: x.near}
			ended := make(chan int, 1)
			go func() { ended <- p.report(p.run(ctx, []string{"top"})) }()
			at := x.await(t, 0, "\x1b[?1049h\x1b[?25l")
			at = x.await(t, at, `"\x1b[2Jevil\u202e"`)
			at = x.await(t, at, "by rate, page 1 of 2")
			_, _ = x.far.WriteString("s")
			at = x.await(t, at, "by due, page 1 of 2")
			end(x, interrupt)
			if status := <-ended; status != 0 {
				t.Errorf("exit status %d", status)
			}
			x.await(t, at, "\x1b[?25h\x1b[?1049l")
			if after, err := term.GetState(int(x.near.Fd())); err != nil || *after != *before {
				t.Errorf("the terminal is not as it was: %v", err)
			}
		})
	}
}

// Lists once printed names unchanged, so a client that could declare a queue could send escape sequences to an operator's terminal.
func TestListsOnTerminal(t *testing.T) {
	const queues = `[{"name":"\u001b[2J\u009b31m\u202eevil\u0007 queue ß","messages":1}]`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, queues)
	}))
	t.Cleanup(server.Close)
	for _, format := range []string{"table", "pretty_table", "csv"} {
		x := newTerminal(t, 120, 24)
		p := &Program{Name: "curfew ctl", Environ: []string{urlVariable + "=" + server.URL}, Stdin: x.near, Stdout: x.near, Stderr: x.near}
		if status := p.report(p.run(t.Context(), []string{"--formatter", format, "list_queues", "name", "messages"})); status != 0 {
			t.Errorf("%s: exit status %d", format, status)
		}
		x.await(t, 0, `\x1b[2J\u009b31m\u202eevil\a queue ß`)
	}
	var b strings.Builder
	p := &Program{Name: "curfew ctl", Environ: []string{urlVariable + "=" + server.URL}, Stdout: &b, Stderr: &b}
	if status := p.report(p.run(t.Context(), []string{"-q", "list_queues", "name"})); status != 0 || !strings.Contains(b.String(), `\x1b[2J\u009b31m\u202eevil\a queue ß`) {
		t.Errorf("without a terminal: exit status %d: %q", status, b.String())
	}
}

// A progress text longer than a line was once left on the terminal twice a second, because only its last line is replaced.
func TestProgressFitsTheTerminal(t *testing.T) {
	x := newTerminal(t, 20, 5)
	p := &progress{out: x.near, bar: true}
	p.say("12 messages left: a queue with a long name 12", 0)
	x.await(t, 0, "\r\x1b[K12 messages left: …")
	p.say("done", 0)
	x.await(t, 0, "…\r\x1b[Kdone")
}
