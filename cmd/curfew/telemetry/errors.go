package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"

	"github.com/curfewmq/curfew/core/otlp"
)

// handleErrors sends the SDK's errors to the broker's log.
func handleErrors(log *slog.Logger) {
	quiet := &rateLimitedHandler{Handler: log.Handler(), limit: new(limit)}
	sparing := slog.New(quiet)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { sparing.Warn("telemetry", "error", otlp.Brief(err)) }))
	otel.SetLogger(logr.FromSlogHandler(quiet))
}

// rateLimitedHandler is a [slog.Handler] that drops most messages.
type rateLimitedHandler struct {
	slog.Handler
	limit *limit
}

// pause is the shortest time between two messages.
const pause = 10 * time.Second

// limit holds when the next message may be logged. mu guards it.
type limit struct {
	mu   sync.Mutex
	next time.Time
}

func (l *limit) allow(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.next) {
		return false
	}
	l.next = now.Add(pause)
	return true
}

// Enabled implements [slog.Handler]. The SDK logs more than an operator wants to see.
func (s *rateLimitedHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && s.Handler.Enabled(ctx, level)
}

func (s *rateLimitedHandler) Handle(ctx context.Context, r slog.Record) error {
	if !s.limit.allow(r.Time) {
		return nil
	}
	return s.Handler.Handle(ctx, r)
}

func (s *rateLimitedHandler) WithAttrs(as []slog.Attr) slog.Handler {
	return &rateLimitedHandler{s.Handler.WithAttrs(as), s.limit}
}

func (s *rateLimitedHandler) WithGroup(name string) slog.Handler {
	return &rateLimitedHandler{s.Handler.WithGroup(name), s.limit}
}

// dropLog logs when the core begins to drop spans because too many wait, and how many were dropped in the end. It belongs to one goroutine.
type dropLog struct {
	log      *slog.Logger
	seen     uint64 // dropped spans at the last look
	said     uint64 // dropped spans at the last message
	dropping bool   // the beginning was logged, the end was not
	last     time.Time
}

// calm is how long no span must be dropped until dropping has ended.
const calm = 10 * time.Second

// look compares n, the number of dropped spans, with the last look. closing means that it is the last one.
func (d *dropLog) look(now time.Time, n uint64, closing bool) {
	if n > d.seen {
		d.seen, d.last = n, now
		if !d.dropping {
			d.dropping = true
			d.log.Warn("spans are dropped: too many wait for the collector (telemetry.traces.buffer); this is logged only once until it is over", "dropped", n-d.said)
		}
	}
	if d.dropping && (closing || now.Sub(d.last) >= calm) {
		d.dropping = false
		d.log.Info("spans are not dropped any more", "dropped", n-d.said, "dropped_ever", n)
		d.said = n
	}
}
