package ctl

import (
	"context"
	"errors"
	"fmt"
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
