package app

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"syscall"
)

// journalStream is the variable in which systemd names the stream that leads to its journal [systemd.exec(5)].
const journalStream = "JOURNAL_STREAM"

// isJournal reports whether w leads to systemd's journal. stream has the form DEVICE:INODE.
func isJournal(w io.Writer, stream string) bool {
	f, ok := w.(*os.File)
	if !ok || stream == "" {
		return false
	}
	info, err := f.Stat()
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && fmt.Sprintf("%d:%d", st.Dev, st.Ino) == stream
}

// journalHandler writes entries for systemd's journal, which adds a time to each line and reads the priority from a prefix of the
// text [sd-daemon(3)]. It implements [slog.Handler].
type journalHandler struct {
	slog.Handler // writes to line

	out *journalOut
}

// journalOut is shared by the handlers of a logger.
type journalOut struct {
	mu   sync.Mutex // guards line and writes to w
	line bytes.Buffer
	w    io.Writer
}

func newJournalHandler(w io.Writer, level slog.Leveler) slog.Handler {
	out := &journalOut{w: w}
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		_, isLevel := a.Value.Any().(slog.Level)
		if len(groups) == 0 && (a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime || a.Key == slog.LevelKey && isLevel) {
			return slog.Attr{}
		}
		return withUnit(groups, a)
	}}
	return &journalHandler{slog.NewTextHandler(&out.line, o), out}
}

func (h *journalHandler) Handle(ctx context.Context, r slog.Record) error {
	h.out.mu.Lock()
	defer h.out.mu.Unlock()
	h.out.line.Reset()
	fmt.Fprintf(&h.out.line, "<%d>", priority(r.Level))
	if err := h.Handler.Handle(ctx, r); err != nil {
		return err
	}
	_, err := h.out.w.Write(h.out.line.Bytes())
	return err
}

func (h *journalHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &journalHandler{h.Handler.WithAttrs(attrs), h.out}
}

func (h *journalHandler) WithGroup(name string) slog.Handler {
	return &journalHandler{h.Handler.WithGroup(name), h.out}
}

// priority returns syslog's number for a level.
func priority(l slog.Level) int {
	switch {
	case l >= slog.LevelError:
		return 3
	case l >= slog.LevelWarn:
		return 4
	case l >= slog.LevelInfo:
		return 6
	}
	return 7
}
