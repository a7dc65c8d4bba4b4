package app

import (
	"log/slog"
	"sync"
	"time"
)

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
