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
	"strings"
	"time"
)

// maxState bounds the size of an event of a live view, in bytes.
const maxState = 8 << 20

// liveStates reads a live view and calls show with each state, until the stream ends or show returns an error.
func (c *call) liveStates(ctx context.Context, address string, show func(state map[string]any) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	answer, err := c.api.send(ctx, http.MethodGet, address, nil, http.Header{"Accept": {"text/event-stream"}})
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type")); kind != "text/event-stream" {
		return fmt.Errorf("%s%s answers with %s and not with a live view: is this the address of the broker, and does a proxy in between change answers?",
			c.api.base, path("live"), shown(kind))
	}
	quiet := time.AfterFunc(longSilence, func() { cancel(errSilent) })
	defer quiet.Stop()
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, maxState)
	var kind string
	var state map[string]any
	for lines.Scan() {
		quiet.Reset(longSilence)
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "event":
			kind = value
		case "data":
			if state, err = patched(kind, state, value); err != nil {
				return fmt.Errorf("%s sent something other than a live view: %w", c.api.base, err)
			}
			if err := show(state); err != nil {
				return err
			}
		}
	}
	switch err := lines.Err(); {
	case errors.Is(context.Cause(ctx), errSilent):
		return &cutError{errSilent.Error()}
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("%s sent a state of more than %d bytes", c.api.base, maxState)
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return &cutError{"the connection was cut: " + err.Error()}
	case err != nil:
		return &cutError{"the connection was cut, by the broker or by a proxy in between"}
	}
	return &cutError{"the broker ended the stream"}
}

// patched returns the state after an event: a new state, or the state before with a change applied to it.
func patched(kind string, before map[string]any, data string) (map[string]any, error) {
	d := json.NewDecoder(strings.NewReader(data))
	d.UseNumber()
	var o map[string]any
	if err := d.Decode(&o); err != nil {
		return nil, err
	}
	switch {
	case kind == "state" && o != nil:
		return o, nil
	case kind == "change" && o != nil && before != nil:
		return merge(before, o), nil
	}
	return nil, fmt.Errorf("an event of the kind %q", kind)
}

// merge applies a JSON merge patch [RFC 7396] to an object, which it modifies.
func merge(to, patch map[string]any) map[string]any {
	for name, value := range patch {
		inner, isObject := value.(map[string]any)
		switch {
		case value == nil:
			delete(to, name)
		case isObject:
			was, _ := to[name].(map[string]any)
			if was == nil {
				was = map[string]any{}
			}
			to[name] = merge(was, inner)
		default:
			to[name] = value
		}
	}
	return to
}
