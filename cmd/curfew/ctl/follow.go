package ctl

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/curfewmq/curfew/cmd/curfew/printable"
)

// follower prints the stream of events, and connects again when a connection breaks.
type follower struct {
	*call
	address string // of the stream, without the event to continue after
	left    int    // events to print until the end; 0 or less = unlimited
	last    string // id of the last event; "" = none was received
	broken  bool   // the stream has ended, and a message was printed about it
}

const (
	// longSilence is how long a stream may be silent before the connection counts as broken. The broker sends a sign of life every 15 s.
	longSilence = 45 * time.Second
	// soonest and latest are the shortest and the longest pause before another connection.
	soonest = 500 * time.Millisecond
	latest  = 10 * time.Second
	// maxEvent bounds a line of the stream, in bytes.
	maxEvent = 1 << 20
)

// followEvents prints events until Ctrl-C, --count or --timeout, which are not errors. With --no-reconnect, the end of the stream is one.
func followEvents(ctx context.Context, c *call) error {
	query := url.Values{}
	for _, o := range append(eventOptions(), option{long: "vhost"}) {
		if o.long != "count" && o.long != "no-reconnect" && c.has(o.long) {
			query.Set(strings.ReplaceAll(o.long, "-", "_"), c.value(o.long))
		}
	}
	f := &follower{call: c, address: strings.TrimSuffix(path("events")+"?"+query.Encode(), "?"), left: c.number("count")}
	c.banner("Following events ...")
	if err := f.follow(ctx); ctx.Err() == nil {
		return err
	}
	return nil // the user wanted the end
}

// follow reads one stream after another. It returns the error of a stream if none has begun yet, or if another connection would fail, too.
func (f *follower) follow(ctx context.Context) error {
	wait := soonest
	for began := false; ; {
		now, err := f.stream(ctx)
		began = began || now
		if err == nil || !began || f.has("no-reconnect") || final(err) || ctx.Err() != nil {
			return err
		}
		if now {
			wait = soonest
		}
		f.say(err)
		if pause(ctx, wait) != nil {
			return nil
		}
		wait = min(2*wait, latest)
	}
}

// final reports whether another connection would fail in the same way.
func final(err error) bool {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.status != http.StatusServiceUnavailable && r.status != http.StatusBadGateway && r.status != http.StatusGatewayTimeout &&
			r.status != http.StatusTooManyRequests
	}
	_, cut := errors.AsType[*cutError](err)
	_, failed := errors.AsType[*failure](err) // the broker cannot be reached
	return !cut && !failed
}

// cutError says why a stream ended after it had begun.
type cutError struct{ why string }

func (e *cutError) Error() string { return e.why }

// say prints a message that the stream has ended, once until it continues.
func (f *follower) say(err error) {
	if f.broken {
		return
	}
	f.broken = true
	if f.has("quiet") || f.has("silent") {
		return
	}
	why, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(err.Error(), "Error:\n"), "Error: "), "\n")
	fmt.Fprintf(f.program.Stderr, "%s: connecting again\n", printable.Text(why))
}

// resumed prints a message that the stream continues.
func (f *follower) resumed() {
	if !f.broken {
		return
	}
	f.broken = false
	if f.has("quiet") || f.has("silent") {
		return
	}
	text := "connected again"
	if f.last == "" { // there is no event to continue after
		text += ": events that happened meanwhile are not shown"
	}
	fmt.Fprintln(f.program.Stderr, text)
}

// stream prints the events of one connection. began reports whether the broker has answered. The error is nil after --count events.
func (f *follower) stream(ctx context.Context) (began bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	header := http.Header{"Accept": {"application/x-ndjson"}}
	if f.last != "" {
		header.Set("Last-Event-ID", f.last)
	}
	answer, err := f.api.send(ctx, http.MethodGet, f.address, nil, header)
	if err != nil {
		return false, f.eventsRefused(err)
	}
	defer answer.Body.Close()
	if err := f.checkKind(answer); err != nil {
		return false, err
	}
	f.resumed()
	quiet := time.AfterFunc(longSilence, func() { cancel(errSilent) })
	defer quiet.Stop()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, maxEvent)
	for lines.Scan() {
		quiet.Reset(longSilence)
		done, err := f.take(lines.Bytes())
		if errors.Is(err, errNoEvent) && lines.Err() != nil {
			break // the connection broke within a line
		}
		if done || err != nil {
			return true, err
		}
	}
	switch err := lines.Err(); {
	case errors.Is(context.Cause(ctx), errSilent):
		return true, &cutError{errSilent.Error()}
	case errors.Is(err, bufio.ErrTooLong):
		return true, fmt.Errorf("%s sent a line of more than %d bytes, which is not an event", f.api.base, maxEvent)
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return true, &cutError{"the stream of events was cut: " + err.Error()}
	case err != nil:
		return true, &cutError{"the stream of events was cut, by the broker or by a proxy in between"}
	}
	return true, &cutError{"the broker ended the stream of events"}
}

var errNoEvent = errors.New("something other than an event")

var errSilent = fmt.Errorf("nothing arrived for %v, not even a sign of life; a proxy that buffers answers has the same effect", longSilence)

// checkKind checks that an answer is a stream of events. Tests and some proxies send answers without a type.
func (f *follower) checkKind(answer *http.Response) error {
	kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if kind == "" || kind == "application/x-ndjson" {
		return nil
	}
	return fmt.Errorf("%s%s answers with %s and not with events: is this the address of the broker, and does a proxy in between change answers?",
		f.api.base, path("events"), shown(kind))
}

// take prints a line of the stream, and reports whether it was the last of --count.
func (f *follower) take(line []byte) (done bool, err error) {
	if len(line) == 0 {
		return false, nil // a sign of life from the broker
	}
	var event struct {
		ID   json.RawMessage `json:"id"` // a number or, of a cluster, a text
		Kind string          `json:"kind"`
	}
	if json.Unmarshal(line, &event) != nil {
		return false, fmt.Errorf("%s sent %w: %.100q", f.api.base, errNoEvent, line)
	}
	if id := strings.Trim(string(event.ID), `"`); id != "" && id != "null" {
		f.last = id
	}
	if err := f.printEvent(line); err != nil || event.Kind == "missed" { // "missed" does not count as an event
		return false, err
	}
	f.left--
	return f.left == 0, nil
}
