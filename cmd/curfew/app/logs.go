package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

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
