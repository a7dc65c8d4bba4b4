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
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfewmq/curfew/cmd/curfew/printable"
)

func topCommands() []command {
	return []command{{
		name: "top", run: runTop, check: checkTop, waits: true,
		about: "shows the activity of the broker and its busiest queues, refreshed each second",
		more: "On a terminal it fills the screen: q quits, s changes the order, n and p turn pages. Otherwise it prints blocks of text,\n" +
			"or with --json a state per line. IN/S and OUT/S are messages entered and delivered; DUE is when the next message expires or\n" +
			"is released; LAG is how long the oldest ready message has been in the queue. Default: all virtual hosts the user may see.\n" +
			"It costs the broker as much as a page in a browser.",
		options: []option{
			{long: "interval", value: "time", about: "refresh interval, 1s to 1h, in seconds or with a unit (default 1s)"},
			{long: "sort", value: "order", about: "rate, due, lag, messages or bytes (default rate)"},
			{long: "vhost", short: "p", value: "vhost", about: "only this virtual host"},
			{long: "count", value: "n", numeric: true, about: "exit after n refreshes, 1 or more (default: never)"},
			{long: "once", about: "print one block, like --count 1 without a terminal"},
			{long: "rows", value: "n", numeric: true, about: "without a terminal: number of queues, 1 to 500 (default 20)"},
		},
	}}
}

// topOrders are the orders of queues, in the sequence in which the key s switches between them.
var topOrders = []string{"rate", "due", "lag", "messages", "bytes"}

const (
	leastInterval = time.Second
	mostInterval  = time.Hour
	usualRows     = 20
	mostRows      = 500
)

func checkTop(c *call) error {
	if _, err := topInterval(c); err != nil {
		return err
	}
	if s := c.value("sort"); c.has("sort") && !slices.Contains(topOrders, s) {
		return misused("--sort %s: expected one of %s", s, strings.Join(topOrders, ", "))
	}
	if c.has("count") && c.number("count") < 1 {
		return misused("--count %s: accepted are 1 and more", c.value("count"))
	}
	if n := c.number("rows"); c.has("rows") && (n < 1 || n > mostRows) {
		return misused("--rows %s: accepted are 1 to %d", c.value("rows"), mostRows)
	}
	if f := c.value("formatter"); f != "" && f != "json" && f != "table" {
		return misused("--formatter %s: top prints text, or JSON with --formatter json", f)
	}
	return nil
}

func topInterval(c *call) (time.Duration, error) {
	if !c.has("interval") {
		return leastInterval, nil
	}
	d, ok := parseSpan(c.value("interval"))
	if !ok || d < leastInterval || d > mostInterval {
		return 0, misused("--interval %s: accepted are 1s to 1h, as seconds or with a unit", c.value("interval"))
	}
	return d, nil
}

// top is the execution of the command.
type top struct {
	*call
	interval time.Duration
	sort     string
	page     int
	left     int // states to show until the end; 0 or less = unlimited
	broker   object
	shown    time.Time // when a state was shown last
	states   int       // of this stream; the first has no rates
	fresh    bool      // the next state is shown on the screen at once
	state    map[string]any
	problem  string // why no newer state arrives; "" = they arrive
	screen   *screen
	asked    int // page size of the screen
	room     int // how many queues fitted on the screen
}

// errEnough ends the command without an error.
var errEnough = errors.New("enough")

func runTop(ctx context.Context, c *call) error {
	interval, err := topInterval(c)
	if err != nil {
		return err
	}
	t := &top{call: c, interval: interval, sort: topOrders[0], page: 1, left: c.number("count")}
	if c.has("sort") {
		t.sort = c.value("sort")
	}
	if c.has("once") {
		t.left = 1
	}
	if t.timeout() > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t.timeout())
		defer cancel()
	}
	if t.broker, err = c.overview(ctx); err != nil {
		return err
	}
	if c.out.banners() && !c.has("once") {
		if t.screen, err = openScreen(c.program.Stdin, c.program.Stdout); err != nil {
			return err
		}
	}
	if t.screen == nil {
		err = t.follow(ctx)
	} else {
		err = t.interact(ctx)
	}
	if errors.Is(err, errEnough) || ctx.Err() != nil {
		return nil //nolint:nilerr // the user wanted the end
	}
	return err
}

// address returns the path of the view.
func (t *top) address(rows int) string {
	q := url.Values{"view": {"top"}, "sort": {t.sort}, "page": {strconv.Itoa(t.page)}, "page_size": {strconv.Itoa(min(max(rows, 1), mostRows))}}
	if t.has("vhost") {
		q.Set("vhost", t.value("vhost"))
	}
	return path("live") + "?" + q.Encode()
}

// refused replaces the refusal of a broker without this view, or without this virtual host.
func (t *top) refused(err error) error {
	switch {
	case isRefusal(err, http.StatusNotFound) && t.has("vhost"):
		return t.missing(err, noVHost)
	case isRefusal(err, http.StatusNotFound):
		return failed(unavailable, "this broker has no live views: top needs Curfew")
	}
	return err
}

// follow prints a block of text for each state, where standard output is not a terminal.
func (t *top) follow(ctx context.Context) error {
	rows := usualRows
	if t.has("rows") {
		rows = t.number("rows")
	}
	wait := soonest
	for began := false; ; {
		t.states = 0
		err := t.liveStates(ctx, t.address(rows), func(s map[string]any) error {
			began, wait = true, soonest
			return t.look(s)
		})
		if errors.Is(err, errEnough) || ctx.Err() != nil || !began || final(err) {
			return t.refused(err)
		}
		fmt.Fprintf(t.program.Stderr, "%s: connecting again\n", printable.Text(firstLine(err)))
		if pause(ctx, wait) != nil {
			return nil
		}
		wait = min(2*wait, latest)
	}
}

// look prints a state, unless the interval has not passed yet. The first state of a stream has no rates; the next comes a second later.
func (t *top) look(s map[string]any) error {
	t.state = s
	if t.states++; t.states == 1 || !t.shown.IsZero() && time.Since(t.shown) < t.interval-leastInterval/2 {
		return nil
	}
	t.shown = time.Now()
	var err error
	if t.out.banners() {
		_, err = fmt.Fprintln(t.program.Stdout, strings.Join(t.frame(plainWidth, 0), "\n")+"\n")
	} else {
		var data []byte
		if data, err = encode(s); err == nil {
			_, err = fmt.Fprintf(t.program.Stdout, "%s\n", printable.JSON(data))
		}
	}
	if err != nil {
		return err
	}
	if t.left--; t.left == 0 {
		return errEnough
	}
	return nil
}

// firstLine returns the first line of an error's text, without the prefix "Error:".
func firstLine(err error) string {
	text, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(err.Error(), "Error:\n"), "Error: "), "\n")
	return text
}

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
