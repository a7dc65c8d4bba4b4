package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/curfewmq/curfew/cmd/curfew/usage"
	"github.com/curfewmq/curfew/core/cluster"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// logCommands are the second words of "curfew log".
var logCommands = []struct {
	name, about string
	run         func(ctx context.Context, dir vfs.FS, w io.Writer) error
}{
	{"verify", "Checks the logs in a data directory and reports their content and any damage.", verifyLogs},
	{"dump", "Prints the content of the logs in a data directory, one operation per line.", dumpLogs},
}

func (a *app) log(args []string) int {
	f := newFlags("log", "Reads the data directory of a stopped broker, and changes nothing.")
	f.operands, f.more = []string{"COMMAND", "DIR"}, logHelp()
	if code, done := a.parse(f, args); done {
		return code
	}
	name, dir := f.args[0], f.args[1]
	var names []string
	for _, c := range logCommands {
		if c.name == name {
			return a.readLogs(c.name, dir, c.run)
		}
		names = append(names, c.name)
	}
	return a.misuse("log", usage.Unknown(name, names))
}

func logHelp() string {
	var b strings.Builder
	b.WriteString("Commands:\n")
	for _, c := range logCommands {
		fmt.Fprintf(&b, "  %-7s %s\n", c.name, c.about)
	}
	return b.String()
}

// readLogs runs a command on a directory. Ctrl-C interrupts it.
func (a *app) readLogs(name, dir string, run func(context.Context, vfs.FS, io.Writer) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	folder, _ := cluster.LogsIn(dir)
	if err := run(ctx, vfs.Dir(folder), a.stdout); err != nil {
		fmt.Fprintf(a.stderr, "curfew log %s: %v\n", name, err)
		return exitFailure
	}
	return exitOK
}

var errNoLog = errors.New("there is no log in this directory")

func verifyLogs(ctx context.Context, dir vfs.FS, w io.Writer) error {
	shards, err := seg.Verify(ctx, dir)
	if err != nil {
		return err
	}
	if len(shards) == 0 {
		return errNoLog
	}
	for i := range shards {
		report(w, &shards[i])
	}
	if slices.ContainsFunc(shards, func(s seg.ShardReport) bool { return len(s.Damage) > 0 }) {
		return errors.New("there is damage")
	}
	return nil
}

func report(w io.Writer, s *seg.ShardReport) {
	fmt.Fprintf(w, "shard %d: %d segments, %d entries, %d bytes", s.Shard, s.Segments, s.Entries, s.Bytes)
	if s.Entries > 0 {
		fmt.Fprintf(w, ", last written %s", s.Time.Time().UTC().Format(time.RFC3339Nano))
	}
	fmt.Fprintln(w)
	for _, d := range s.Damage {
		fmt.Fprintf(w, "  DAMAGED: %s at byte %d: %s\n", d.File, d.Offset, d.Reason)
	}
	if c := s.Cut; c != nil {
		fmt.Fprintf(w, "  the last entry is unfinished, which is no damage: %s at byte %d: %s\n", c.File, c.Offset, c.Reason)
	}
}

func dumpLogs(ctx context.Context, dir vfs.FS, w io.Writer) error {
	describe, err := cluster.Describe(dir, store.Describe)
	if err != nil {
		return err
	}
	return seg.Dump(ctx, dir, w, describe)
}

// newLogger returns a logger to w. format is text, json or auto. auto means text on a terminal, text for systemd's journal if stream
// says that w leads there, and JSON otherwise.
func newLogger(w io.Writer, format string, level slog.Leveler, stream string) *slog.Logger {
	if format == "auto" && isJournal(w, stream) {
		return slog.New(newJournalHandler(w, level))
	}
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: withUnit}
	if format == "text" || format == "auto" && isTerminal(w) {
		return slog.New(slog.NewTextHandler(w, o))
	}
	return slog.New(slog.NewJSONHandler(w, o))
}

// withUnit writes durations with a unit, such as 1.5s, even in JSON, where they would be nanoseconds.
func withUnit(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// panicPause is the time between two logged panics of a plugin: a broken plugin panics with every batch.
const panicPause = 10 * time.Second

// panicLog logs the panics of plugins that the chain contained.
type panicLog struct {
	log *slog.Logger // set before the first queue exists

	mu    sync.Mutex // guards spots
	spots map[panicSpot]*panicCount
}

type panicSpot struct{ plugin, point string }

type panicCount struct {
	silentUntil time.Time
	unlogged    int
}

// report implements chain.Options.OnPanic.
func (p *panicLog) report(plugin, point string, v any, stack []byte) {
	unlogged, ok := p.due(panicSpot{plugin, point}, time.Now())
	if !ok {
		return
	}
	p.log.Error("a plugin panicked",
		"plugin", plugin, "point", point, "consequence", consequence(point), "panic", v, "unlogged_before", unlogged, "stack", string(stack))
}

// consequence describes the consequence of a panic.
func consequence(point string) string {
	switch point {
	case "Route", "Filter":
		return "the message is refused"
	case "New", "Bind", "Unbind", "Prepare":
		return "a new exchange is refused, another one routes no messages until the broker is started again"
	}
	return "the verdicts before it stand"
}

// due reports whether to log a panic now, and how many before it were not logged.
func (p *panicLog) due(at panicSpot, now time.Time) (unlogged int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.spots[at]
	if c == nil {
		c = &panicCount{}
		if p.spots == nil {
			p.spots = map[panicSpot]*panicCount{}
		}
		p.spots[at] = c
	}
	if now.Before(c.silentUntil) {
		c.unlogged++
		return 0, false
	}
	unlogged, c.unlogged = c.unlogged, 0
	c.silentUntil = now.Add(panicPause)
	return unlogged, true
}
