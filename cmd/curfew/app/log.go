package app

import (
	"io"
	"log/slog"
	"os"

	"golang.org/x/term"
)

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
