package wasm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/sdk/abi"
	"github.com/curfewmq/curfew/sdk/hook"
)

type kind uint8

const (
	trapped         kind = iota // an instruction trapped
	outOfFuel                   // its fuel was used up
	outOfMemory                 // it ran out of memory, or accessed other memory
	reportedFailure             // it returned a negative number
	invalidVerdict              // a verdict was invalid
	unavailable                 // it was not called: no instance, or an open breaker
	kinds
)

func (k kind) String() string {
	return [kinds]string{"trap", "fuel", "memory", "fail", "verdict", "unavailable"}[k]
}

// failure describes a failed call.
type failure struct {
	kind   kind
	what   string // the hook or the step of the handshake
	reason string
	output string // printed by the guest
}

func (f *failure) Error() string {
	s := f.what + ": " + f.reason
	if f.output != "" {
		s += "; it printed: " + f.output
	}
	return s
}

// brief describes the failure for a message's trace.
func (f *failure) brief() string { return f.kind.String() + ": " + f.reason }

// asFailure extracts the failure from an error about an instance.
func asFailure(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	return &failure{kind: trapped, what: "start", reason: err.Error()}
}

// report logs a policy's lines and failures at a limited rate. Any goroutine may use it.
type report struct {
	log    *slog.Logger
	policy string
	trial  bool // of a module that is tried: its failures become errors of loading, and are not logged

	mu       sync.Mutex // guards the fields below
	guests   bucket     // of the guest's lines
	failures bucket
}

// trialReport makes a report for a module that is tried.
func trialReport(log *slog.Logger, policy string) *report {
	r := newReport(log, policy)
	r.log, r.trial = r.log.With("trial", true), true
	return r
}

// bucket passes a burst of lines, and then one line per pause.
type bucket struct {
	burst int
	pause time.Duration

	spent  int
	filled hook.Instant // when spent was last reduced
	missed int
}

const (
	guestBurst, guestPause     = 20, 100 * time.Millisecond
	failureBurst, failurePause = 3, 10 * time.Second
)

func newReport(log *slog.Logger, policy string) *report {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &report{
		log: log, policy: policy,
		guests:   bucket{burst: guestBurst, pause: guestPause},
		failures: bucket{burst: failureBurst, pause: failurePause},
	}
}

// allows reports whether a line may pass, and how many were dropped before it.
func (b *bucket) allows(now hook.Instant) (missed int, ok bool) {
	if refilled := int(now.Sub(b.filled) / b.pause); refilled > 0 {
		b.spent = max(0, b.spent-refilled)
		b.filled = now
	}
	if b.spent >= b.burst {
		b.missed++
		return 0, false
	}
	b.spent++
	missed, b.missed = b.missed, 0
	return missed, true
}

func (r *report) enabled(l slog.Level) bool {
	return r.log.Enabled(context.Background(), l)
}

// guest logs a guest's line.
func (r *report) guest(now hook.Instant, l slog.Level, text string) {
	if missed, ok := r.allows(now, l); ok {
		r.log.Log(context.Background(), l, "a policy says", "policy", r.policy, "text", text, "unlogged_before", missed)
	}
}

// trace logs an attribute that a guest adds to the trace of a message.
func (r *report) trace(now hook.Instant, m *hook.Message, key, value string) {
	missed, ok := r.allows(now, slog.LevelDebug)
	if !ok {
		return
	}
	r.log.Debug("a policy traces a message", "policy", r.policy, "key", key, "value", value,
		"message_id", printable(m.Part(hook.PartMessageID)), "routing_key", printable(m.RoutingKey()), "unlogged_before", missed)
}

// allows reports whether a guest's line may pass, and how many were dropped before it.
func (r *report) allows(now hook.Instant, l slog.Level) (missed int, ok bool) {
	if !r.enabled(l) {
		return 0, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.guests.allows(now)
}

func (r *report) failed(now hook.Instant, digest string, f *failure) {
	if r.trial {
		return
	}
	r.mu.Lock()
	missed, ok := r.failures.allows(now)
	r.mu.Unlock()
	if ok {
		r.log.Error("a policy failed; its on-error decides about its messages",
			"policy", r.policy, "digest", digest, "kind", f.kind.String(), "error", f.Error(), "unlogged_before", missed)
	}
}

// opened logs that a breaker has opened.
func (r *report) opened(digest string, until hook.Instant) {
	r.log.Error("a policy fails too often and is not called for a while", "policy", r.policy, "digest", digest, "until", until.Time())
}

// recovered logs that a policy is called again.
func (r *report) recovered() {
	r.log.Info("a policy that failed too often works again", "policy", r.policy)
}

// rolledBack logs that the previous version is in force again.
func (r *report) rolledBack(from, to string) {
	r.log.Error("a policy fails too often since it was reloaded: the previous version is in force again", "policy", r.policy, "from", from, "to", to)
}

// reviewed logs that the policy is called again about messages.
func (r *report) reviewed(messages uint64) {
	r.log.Warn("a policy is called again about messages that came while it failed", "policy", r.policy, "messages", messages)
}

// lost logs that a policy of the store could not be loaded or saved.
func (r *report) lost(err error) {
	r.log.Error("a policy that was loaded before could not be loaded or kept", "policy", r.policy, "error", err)
}

// warned logs a warning about a module that was loaded.
func (r *report) warned(digest, text string) {
	r.log.Warn("a policy was loaded with a warning", "policy", r.policy, "digest", digest, "warning", text)
}

// readLater logs that a warning about a configuration key no longer holds. The guest decides when, so the line counts as one of the
// guest's.
func (r *report) readLater(now hook.Instant, key string) {
	if missed, ok := r.allows(now, slog.LevelInfo); ok {
		r.log.Info("a policy has read a configuration key that it had not read while it was tried", "policy", r.policy, "key", key, "unlogged_before", missed)
	}
}

// superseded logs that a policy of the store is not used.
func (r *report) superseded() {
	r.log.Warn("a policy that was loaded before has the name of a configured one, which takes precedence", "policy", r.policy)
}

// slogLevel converts a level of the host function log.
func slogLevel(level int) slog.Level {
	switch {
	case level <= abi.LogDebug:
		return slog.LevelDebug
	case level == abi.LogInfo:
		return slog.LevelInfo
	case level == abi.LogWarn:
		return slog.LevelWarn
	}
	return slog.LevelError
}

// printable returns a guest's text as valid UTF-8.
func printable(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// jsonText encodes a value as JSON.
func jsonText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Errorf("a value that came from JSON: %w", err))
	}
	return string(b)
}

// counters are a policy's own counters. Any goroutine may use them.
type counters struct {
	mu     sync.Mutex // guards byName
	byName map[string]*atomic.Int64
}

// counter returns the counter of that name; nil if there are too many.
func (c *counters) counter(name string) *atomic.Int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.byName[name]
	if n == nil && len(c.byName) < abi.MaxCounters {
		n = new(atomic.Int64)
		if c.byName == nil {
			c.byName = map[string]*atomic.Int64{}
		}
		c.byName[name] = n
	}
	return n
}

// read returns all counts; nil if there are none.
func (c *counters) read() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.byName) == 0 {
		return nil
	}
	all := make(map[string]int64, len(c.byName))
	for name, n := range maps.All(c.byName) {
		all[name] = n.Load()
	}
	return all
}
