package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/curfewmq/curfew/cmd/curfew/printable"
)

func drainCommands() []command {
	return []command{
		{
			name: "drain", run: runDrain, check: checkDrain, waits: true,
			about: "lets consumers empty the queues, then stops the broker",
			more: "Publishers wait, as for an alarm, and no client can connect. Consumers continue until there is nothing left to take or\n" +
				"settle, or until --timeout. Then the broker stops. Messages of durable queues without consumers, and held ones, are kept.\n" +
				"The command first names messages that the stop loses. Ctrl-C leaves the drain running; revive ends it.\n" +
				"The exit status is 0 if the broker was drained and has stopped, also if it kept messages, which the last line names, and 75 on a timeout.",
			options: []option{
				{long: "timeout", short: "t", value: "time", about: "how long consumers have: seconds, or 90s, 10m, 2h, 1d; 1s to 7d (default 10m)"},
				{long: "no-stop", about: "do not stop the broker: it stays drained until revive or a stop"},
				{long: "keep-serving", about: "let clients connect during the drain; publishers wait all the same"},
				{long: "no-wait", about: "return at once"},
			},
		},
		{
			name: "revive", run: runRevive, about: "ends a drain: publishers continue and clients may connect",
			more: "It does nothing if the broker is not being drained.",
		},
	}
}

const (
	leastDrain = time.Second
	mostDrain  = 7 * 24 * time.Hour
	usualDrain = 10 * time.Minute
)

func checkDrain(c *call) error {
	_, err := drainTime(c)
	return err
}

// drainTime returns how long consumers may continue.
func drainTime(c *call) (time.Duration, error) {
	if !c.has("timeout") {
		return usualDrain, nil
	}
	d, ok := parseSpan(c.value("timeout"))
	if !ok || d < leastDrain || d > mostDrain {
		return 0, misused("--timeout %s: accepted are 1s to 7d, as seconds or with a unit: 90, 90s, 10m, 2h, 1d", c.value("timeout"))
	}
	return d, nil
}

// parseSpan reads a duration: a number of seconds, of days as in 7d, or Go's notation.
func parseSpan(s string) (time.Duration, bool) {
	unit, number := time.Second, s
	if days, ok := strings.CutSuffix(s, "d"); ok {
		unit, number = 24*time.Hour, days
	}
	if n, err := strconv.ParseUint(number, 10, 31); err == nil {
		return time.Duration(n) * unit, true
	}
	d, err := time.ParseDuration(s)
	return d, err == nil && d >= 0
}

// drainState is the API's description of a drain.
type drainState struct {
	State    string     `json:"state"`
	TimedOut bool       `json:"timed_out"`
	Took     int64      `json:"took_ms"`
	Rate     float64    `json:"rate"`
	ETA      *int64     `json:"eta_ms"`
	Left     drainCount `json:"left"`
	Kept     drainCount `json:"kept"`
	Lost     drainCount `json:"lost_when_stopped"`

	raw object
}

// drainCount is a number of messages, and the places that have most of them.
type drainCount struct {
	Messages int64    `json:"messages"`
	Places   int      `json:"places"`
	Most     []object `json:"most"`
}

func (c *call) drainState(ctx context.Context, method, path string, body any) (*drainState, error) {
	var raw object
	if err := c.api.call(ctx, method, path, body, &raw); err != nil {
		return nil, err
	}
	data, err := json.Marshal(raw)
	if err != nil {
		return nil, err
	}
	s := &drainState{raw: raw}
	if err := json.Unmarshal(data, s); err != nil || s.State == "" {
		return nil, fmt.Errorf("%s%s sent something other than the state of a drain", c.api.base, path)
	}
	return s, nil
}

func runDrain(ctx context.Context, c *call) error {
	most, err := drainTime(c)
	if err != nil {
		return err
	}
	overview, err := c.overview(ctx)
	if err != nil {
		return err
	}
	at := path("nodes", overview.text("node"), "drain")
	stop := !c.has("no-stop")
	s, err := c.drainState(ctx, http.MethodPut, at, map[string]any{
		"timeout_ms": most.Milliseconds(), "stop": stop, "listening": c.has("keep-serving"),
	})
	if err != nil {
		return instead(err, failed(unavailable, "this broker cannot be drained"))
	}
	clients := "no client connects"
	if c.has("keep-serving") {
		clients = "clients still connect"
	}
	c.banner("Draining node %s: publishers wait, and %s. Consumers have %v ...", overview.text("node"), clients, most)
	if c.verbose() {
		s.Kept.write(c.program.Stdout, "Kept, without a consumer or held")
		s.Lost.write(c.program.Stdout, "Lost when the broker stops, because they are in memory only")
	}
	if c.has("no-wait") {
		return c.done()
	}
	if s, err = c.followDrain(ctx, at, s); err != nil {
		return err
	}
	if s.State == "stopping" {
		if err := c.awaitEnd(ctx); err != nil {
			return err
		}
	}
	return c.drainEnded(s)
}

// write prints the number of messages and the places that have most of them.
func (n *drainCount) write(w io.Writer, title string) {
	if n.Messages == 0 {
		return
	}
	fmt.Fprintf(w, "%s: %s in %s\n", title, counted(n.Messages, "message"), counted(int64(n.Places), "place"))
	for _, p := range n.Most {
		var parts []string
		for _, state := range []string{"ready", "unacked", "held"} {
			if k := p.number(state); k > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", k, state))
			}
		}
		fmt.Fprintf(w, "  %s: %s\n", placeOf(p), strings.Join(parts, ", "))
	}
	if more := n.Places - len(n.Most); more > 0 {
		fmt.Fprintf(w, "  and %d more\n", more)
	}
}

// placeOf names a queue or an exchange, safe for terminals: clients choose names.
func placeOf(p object) string {
	noun := "queue"
	if p["exchange"] != nil {
		noun = "exchange"
	}
	return fmt.Sprintf("%s %s in vhost %s", noun, shown(p.text(noun)), shown(p.text("vhost")))
}

// counted returns a number with its noun: "1 message", "2 messages".
func counted(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// drainPoll is the time between two requests for the state of a drain.
const drainPoll = 500 * time.Millisecond

// followDrain shows the progress of a drain until it ends, and returns the final state.
func (c *call) followDrain(ctx context.Context, at string, s *drainState) (*drainState, error) {
	show := newProgress(c)
	defer show.end()
	for s.State == "draining" {
		show.say(s.progress(), 5*time.Second)
		if pause(ctx, drainPoll) != nil {
			return nil, failed(temporaryFailure, "the drain continues; revive ends it")
		}
		next, err := c.drainState(ctx, http.MethodGet, at, nil)
		switch {
		case ctx.Err() != nil:
			return nil, failed(temporaryFailure, "the drain continues; revive ends it")
		case err != nil:
			return nil, s.lost(err)
		case next.State == "serving":
			return nil, failed(unavailable, "the drain was ended by revive, with %s left", counted(s.Left.Messages, "message"))
		}
		s = next
	}
	return s, nil
}

// lost adds to an error that the broker stopped answering before the drain had ended.
func (s *drainState) lost(err error) error {
	f, ok := errors.AsType[*failure](err)
	if !ok {
		return err
	}
	return &failure{f.status, fmt.Sprintf("Error:\nthe broker ended before it was drained, with %s left\n\n%s", counted(s.Left.Messages, "message"), f.text)}
}

func (s *drainState) progress() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s left", counted(s.Left.Messages, "message"))
	if s.Rate > 0 {
		fmt.Fprintf(&b, " (%.1f per second", s.Rate)
		if s.ETA != nil {
			fmt.Fprintf(&b, ", about %v", (time.Duration(*s.ETA) * time.Millisecond).Round(time.Second))
		}
		b.WriteByte(')')
	}
	const few = 3
	for i, p := range s.Left.Most[:min(len(s.Left.Most), few)] {
		separator := ", "
		if i == 0 {
			separator = ": "
		}
		fmt.Fprintf(&b, "%s%s %d", separator, shown(p.text("queue")), p.number("messages"))
	}
	if more := s.Left.Places - min(len(s.Left.Most), few); more > 0 {
		fmt.Fprintf(&b, ", and %d more", more)
	}
	return b.String()
}

// endTime is how long a broker may take to stop: closing connections, the data directory and the API have separate time limits.
const endTime = 40 * time.Second

// awaitEnd waits until the broker no longer answers.
func (c *call) awaitEnd(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endTime)
	defer cancel()
	for {
		var f *failure
		if err := c.whoami(ctx); errors.As(err, &f) && ctx.Err() == nil {
			return nil // the port is closed
		}
		if pause(ctx, drainPoll/2) != nil {
			return failed(temporaryFailure, "the broker was drained and is stopping, but still answers")
		}
	}
}

// drainEnded prints the result of a drain. A drain that ran out of time is an error.
func (c *call) drainEnded(s *drainState) error {
	if !c.out.banners() {
		data, err := encode(s.raw)
		if err == nil {
			_, err = fmt.Fprintf(c.program.Stdout, "%s\n", printable.JSON(data))
		}
		if err != nil || !s.TimedOut {
			return err
		}
		return &failure{temporaryFailure, "Error:\n" + s.summary()}
	}
	if s.TimedOut {
		s.Left.write(c.program.Stdout, "Left, with a consumer")
		return &failure{temporaryFailure, "Error:\n" + s.summary()}
	}
	return c.result("%s", s.summary())
}

func (s *drainState) summary() string {
	took := (time.Duration(s.Took) * time.Millisecond).Round(100 * time.Millisecond)
	text := fmt.Sprintf("Drained in %v", took)
	if s.TimedOut {
		text = fmt.Sprintf("The time ran out after %v: consumers left %s", took, counted(s.Left.Messages, "message"))
	}
	text += s.Kept.clause("kept")
	if s.State != "stopping" {
		return text + ". The broker runs, and publishers wait; revive unblocks them"
	}
	return text + s.Lost.clause("lost, because they were in memory only") + ". The broker has stopped"
}

// clause returns the number of messages and the places of most of them, to be added to a sentence; "" if there are no messages.
func (n *drainCount) clause(title string) string {
	if n.Messages == 0 {
		return ""
	}
	const few = 3
	var places []string
	for _, p := range n.Most[:min(len(n.Most), few)] {
		places = append(places, placeOf(p))
	}
	if more := n.Places - len(places); more > 0 {
		places = append(places, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("; %s: %s in %s", title, counted(n.Messages, "message"), strings.Join(places, ", "))
}

func runRevive(ctx context.Context, c *call) error {
	overview, err := c.overview(ctx)
	if err != nil {
		return err
	}
	c.banner("Ending the drain of node %s ...", overview.text("node"))
	return c.doneUnless(instead(c.api.remove(ctx, path("nodes", overview.text("node"), "drain")), failed(unavailable, "this broker cannot be drained")))
}
