package ctl

import (
	"context"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/term"
)

// screen is a terminal that the command fills.
type screen struct {
	in, out *os.File
	was     *term.State
}

// openScreen takes over the terminal; it returns nil if standard output is none. Reading keys needs a terminal as standard input, too.
func openScreen(in io.Reader, out io.Writer) (*screen, error) {
	to, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(to.Fd())) {
		return nil, nil
	}
	s := &screen{out: to}
	if from, ok := in.(*os.File); ok && term.IsTerminal(int(from.Fd())) {
		was, err := term.MakeRaw(int(from.Fd()))
		if err != nil {
			return nil, err
		}
		s.in, s.was = from, was
	}
	if _, err := io.WriteString(to, "\x1b[?1049h\x1b[?25l"); err != nil { // switch to the alternate screen, without a cursor
		s.close()
		return nil, err
	}
	return s, nil
}

// close restores the terminal.
func (s *screen) close() {
	_, _ = io.WriteString(s.out, "\x1b[?25h\x1b[?1049l") // on an error the terminal is gone
	if s.was != nil {
		_ = term.Restore(int(s.in.Fd()), s.was)
	}
}

// Sizes of terminals: the smallest for which frames are made (a smaller terminal shows part of the frame), and the size assumed if the
// real one is unknown.
const (
	leastWidth, leastHeight = 40, 10
	plainWidth, plainHeight = 110, 24
)

func (s *screen) size() (width, height int) {
	width, height, err := term.GetSize(int(s.out.Fd()))
	if err != nil || width <= 0 || height <= 0 {
		return plainWidth, plainHeight
	}
	return width, height
}

// cropped returns the part of a frame that fits on a terminal. More lines would scroll it, and longer lines would wrap.
func cropped(frame []string, width, height int) []string {
	frame = frame[:min(len(frame), height)]
	for i, line := range frame {
		frame[i] = fitted(line, width)
	}
	return frame
}

// draw writes lines from the top of the screen.
func (s *screen) draw(lines []string) error {
	var b strings.Builder
	b.WriteString("\x1b[H")
	for i, line := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(line + "\x1b[K")
	}
	b.WriteString("\x1b[J")
	_, err := io.WriteString(s.out, b.String())
	return err
}

// keys sends the keys that are typed. Its goroutine ends with the process, because a read from a terminal cannot be interrupted.
func (s *screen) keys() <-chan string {
	typed := make(chan string, 16)
	if s.in == nil {
		return typed
	}
	go func() {
		b := make([]byte, 64)
		for {
			n, err := s.in.Read(b)
			if err != nil || n == 0 {
				close(typed)
				return
			}
			for _, key := range keysOf(string(b[:n])) {
				typed <- key
			}
		}
	}()
	return typed
}

// keysOf splits input into keys: characters, and the sequences that terminals send for keys without one. A read may return several
// keys, for example "n\x1b[Bq", if the user types fast or the line is slow.
func keysOf(typed string) (keys []string) {
	for typed != "" {
		n := 1
		if rest, ok := strings.CutPrefix(typed, "\x1b["); ok { // the sequence ends with the first letter or ~ [ECMA-48 5.4]
			n = min(len("\x1b[")+strings.IndexFunc(rest+"~", func(r rune) bool { return r >= '@' })+1, len(typed))
		}
		keys, typed = append(keys, typed[:n]), typed[n:]
	}
	return keys
}

// update is a state from the stream of states, or the end of that stream.
type update struct {
	stream int
	state  map[string]any
	err    error
}

// interact shows states on the screen and reacts to keys, until a key or ctx ends it.
func (t *top) interact(ctx context.Context) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer stop()
	defer t.screen.close()
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	keys, updates := t.screen.keys(), make(chan update)
	for stream := 1; ; stream++ {
		again, err := t.watch(ctx, stream, updates, keys, resized)
		if !again {
			return err
		}
	}
}

// watch shows the states of one stream. again reports whether another stream is needed: for
// another page or order, or because this one ended.
func (t *top) watch(ctx context.Context, stream int, updates chan update, keys <-chan string, resized <-chan os.Signal) (again bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, height := t.screen.size()
	if t.asked == 0 {
		t.asked = height
	}
	send := func(u update) {
		select {
		case updates <- u:
		case <-ctx.Done():
		}
	}
	address := t.address(t.asked)
	t.fresh = true
	go func() {
		err := t.liveStates(ctx, address, func(s map[string]any) error {
			send(update{stream, copied(s), nil})
			return ctx.Err()
		})
		send(update{stream, nil, err})
	}()
	for {
		select {
		case <-ctx.Done():
			return false, nil
		case <-resized:
			t.asked, t.page = 0, 1
			err := t.redraw()
			return err == nil, err
		case key, open := <-keys:
			if !open {
				keys = nil // standard input has ended
				continue
			}
			if again, err := t.obey(key); err != nil || again {
				return again, err
			}
		case u := <-updates:
			if u.stream != stream {
				continue
			}
			if u.err != nil {
				return t.lost(ctx, u.err)
			}
			if err := t.take(u.state); err != nil {
				return false, err
			}
			if t.room < t.asked { // fewer queues fit: the rest of them moves to the next page
				t.asked = t.room
				return true, nil
			}
		}
	}
}

// copied returns a deep copy of a state, which later changes of the stream do not modify.
func copied(o map[string]any) map[string]any {
	all := make(map[string]any, len(o))
	for name, v := range o {
		if inner, ok := v.(map[string]any); ok {
			v = copied(inner)
		}
		all[name] = v
	}
	return all
}

// take shows a state, unless the interval has not passed yet.
func (t *top) take(s map[string]any) error {
	first := t.fresh || t.problem != ""
	if s["rates"] == nil && t.state != nil { // the first state of a stream has none
		s["rates"] = t.state["rates"]
	}
	t.state, t.problem, t.fresh = s, "", false
	if t.states++; !first && t.states%max(int(t.interval/leastInterval), 1) != 0 {
		return nil
	}
	if err := t.redraw(); err != nil {
		return err
	}
	if !first {
		t.left--
	}
	if t.left == 0 && !first {
		return errEnough
	}
	return nil
}

// lost shows why there are no states, and waits before another stream begins.
func (t *top) lost(ctx context.Context, err error) (again bool, _ error) {
	if t.state == nil || final(err) {
		return false, t.refused(err)
	}
	t.problem = firstLine(err) + ": connecting again"
	if err := t.redraw(); err != nil {
		return false, err
	}
	return pause(ctx, leastInterval) == nil, nil
}

func (t *top) redraw() error {
	if t.state == nil {
		return nil
	}
	width, height := t.screen.size()
	return t.screen.draw(cropped(t.frame(max(width, leastWidth), max(height, leastHeight)), width, height))
}

// obey reacts to a key. again reports whether another stream is needed.
func (t *top) obey(typed string) (again bool, err error) {
	switch typed {
	case "q", "Q", "\x03", "\x04": // Ctrl-C, Ctrl-D
		return false, errEnough
	case "s":
		t.sort, t.page = topOrders[(slices.Index(topOrders, t.sort)+1)%len(topOrders)], 1
		return true, nil
	case "n", " ", "\x1b[C", "\x1b[B", "\x1b[6~":
		if t.page < int(number(t.state["page_count"])) {
			t.page++
			return true, nil
		}
	case "p", "\x1b[D", "\x1b[A", "\x1b[5~":
		if t.page > 1 {
			t.page--
			return true, nil
		}
	}
	return false, nil
}
