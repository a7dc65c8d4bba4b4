package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"
)

var redriveColumns = known{
	columns(`id vhost queue to:text where:text count per_second state reason:quoted started_at:instant ended_at:instant total moved remaining
		rate failed:text targets:text`),
	"id vhost queue state total moved remaining rate failed",
}

func redriveCommands() []command {
	return []command{
		{
			name: "redrive", operands: "<queue>", scoped: true, run: redrive, check: checkRedrive, waits: true, options: redriveOptions(),
			about: "moves messages of a queue back to where they came from, or elsewhere",
			more: "Moves the messages that are ready when it begins; messages that a target refuses stay in their place. Without a target,\n" +
				"each message goes to the queue where it died last. The command waits until all have moved, or until --timeout; if it is\n" +
				"ended before, the redrive goes on. It fails if some messages had to stay.",
		},
		{
			name: "list_redrives", lists: &redriveColumns, about: "lists running and recent redrives",
			run: columnList("Listing redrives ...", "redrives"),
		},
		{
			name: "cancel_redrive", operands: "<id>", about: "ends a redrive, or forgets one that has ended",
			run: deletion("Cancelling redrive {1} ...", "redrives/{1}", &failure{unavailable, "Error:\nThere is no redrive {1}"}),
		},
	}
}

func redriveOptions() []option {
	return []option{
		{long: "to", value: "source|origin", about: "source, the queue where each message died last (default), or origin, its first exchange and key"},
		{long: "to-queue", value: "queue", about: "move to this queue"},
		{long: "to-exchange", value: "exchange", about: "move to this exchange"},
		{long: "routing-key", value: "key", about: "with --to-exchange: use this key instead of each message's own"},
		{long: "reason", value: "reason", about: "only messages that died last for this reason, such as rejected"},
		{long: "died-in", value: "queue", about: "only messages that died last in this queue"},
		{long: "message-id", value: "id", about: "only messages with this property message-id"},
		{long: "older-than", value: "ms", about: "only messages that have been in the queue for at least this many milliseconds"},
		{long: "count", value: "n", about: "at most this many messages"},
		{long: "per-second", value: "n", about: "at most this many messages per second"},
		{long: "dry-run", about: "move nothing; print how many messages would go where"},
		{long: "no-wait", about: "print the redrive's id and return at once"},
	}
}

func checkRedrive(c *call) error {
	_, err := redriveBody(c)
	return err
}

func redriveBody(c *call) (map[string]any, error) {
	to, err := redriveTo(c)
	if err != nil {
		return nil, err
	}
	body := map[string]any{"to": to}
	where := map[string]any{}
	for _, o := range []struct{ option, member string }{{"reason", "reason"}, {"died-in", "queue"}, {"message-id", "message_id"}} {
		if c.has(o.option) {
			where[o.member] = c.value(o.option)
		}
	}
	for _, o := range []struct {
		option, member string
		into           map[string]any
	}{{"older-than", "older_than_ms", where}, {"count", "count", body}, {"per-second", "per_second", body}} {
		if !c.has(o.option) {
			continue
		}
		n, err := strconv.ParseInt(c.value(o.option), 10, 64)
		if err != nil || n < 0 {
			return nil, misused("--%s %s: expected a whole number", o.option, c.value(o.option))
		}
		o.into[o.member] = n
	}
	if len(where) > 0 {
		body["where"] = where
	}
	if c.has("dry-run") {
		body["dry_run"] = true
	}
	return body, nil
}

// redriveTo returns the target; at most one may be given.
func redriveTo(c *call) (any, error) {
	given := slices.DeleteFunc([]string{"to", "to-queue", "to-exchange"}, func(o string) bool { return !c.has(o) })
	switch {
	case len(given) > 1:
		return nil, misused("--%s and --%s exclude each other", given[0], given[1])
	case c.has("routing-key") && !c.has("to-exchange"):
		return nil, misused("--routing-key needs --to-exchange")
	case c.has("to-queue"):
		return map[string]string{"queue": c.value("to-queue")}, nil
	case c.has("to-exchange"):
		to := map[string]string{"exchange": c.value("to-exchange")}
		if to["exchange"] == "" {
			to["exchange"] = "amq.default"
		}
		if c.has("routing-key") {
			to["routing_key"] = c.value("routing-key")
		}
		return to, nil
	case !c.has("to"):
		return "source", nil
	case c.value("to") != "source" && c.value("to") != "origin":
		return nil, misused("--to %s: expected source or origin; or use --to-queue or --to-exchange", c.value("to"))
	}
	return c.value("to"), nil
}

func redrive(ctx context.Context, c *call) error {
	body, err := redriveBody(c)
	if err != nil {
		return err
	}
	c.banner("Redriving queue '%s' in vhost '%s' ...", c.operands[0], c.vhost())
	var answer object
	if err := c.api.call(ctx, http.MethodPost, c.path("queues/{vhost}/{1}/redrive"), body, &answer); err != nil {
		return c.missing(err, noQueueThere)
	}
	switch {
	case c.has("dry-run"):
		return c.printPlan(answer)
	case c.has("no-wait"):
		return c.result("%s", answer.text("id"))
	}
	return c.followRedrive(ctx, answer.text("id"))
}

// printPlan prints a dry run: a line for each target, and for each reason why messages would stay.
func (c *call) printPlan(plan object) error {
	var rows []object
	for _, t := range objects(plan["targets"]) {
		name := "queue"
		if t["exchange"] != nil {
			name = "exchange"
		}
		row := object{"messages": t["messages"], "target": encoded(name + " " + shown(t.text(name)))}
		if t["others"] != nil {
			row["target"] = encoded("others")
		}
		rows = append(rows, row)
	}
	for reason, n := range members(plan["failed"]) {
		rows = append(rows, object{"messages": n, "target": encoded("none: " + reason)})
	}
	if err := c.showAll(rows, columns("messages target")...); err != nil {
		return err
	}
	if string(plan["complete"]) == "false" && c.verbose() {
		fmt.Fprintln(c.program.Stderr, "The queue was not searched to its end: there may be more")
	}
	return nil
}

// objects reads a list of objects; it returns nil if raw is something else.
func objects(raw json.RawMessage) []object {
	var all []object
	if json.Unmarshal(raw, &all) != nil {
		return nil
	}
	return all
}

func encoded(text string) json.RawMessage { return word(text).json }

// redrivePoll is the time between two requests for the progress of a redrive.
const redrivePoll = 200 * time.Millisecond

// followRedrive prints the progress of a redrive until it ends.
func (c *call) followRedrive(ctx context.Context, id string) error {
	if t := c.timeout(); t > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t)
		defer cancel()
	}
	show := newProgress(c)
	for {
		var r object
		if err := c.api.get(ctx, path("redrives", id), &r); err != nil {
			show.end()
			return goesOn(ctx, id, err)
		}
		if string(r["ended_at"]) != "null" {
			show.show(r)
			show.end()
			return c.redriveEnded(r)
		}
		show.show(r)
		if err := pause(ctx, redrivePoll); err != nil {
			show.end()
			return goesOn(ctx, id, err)
		}
	}
}

// goesOn returns the error of a command that stops waiting for a redrive, which continues.
func goesOn(ctx context.Context, id string, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return failed(temporaryFailure, "redrive %s continues; cancel_redrive %s ends it", id, id)
}

// redriveEnded prints the result of a redrive. It is an error if messages were not moved.
func (c *call) redriveEnded(r object) error {
	moved := "Moved " + counted(r.number("moved"), "message")
	var stay []string
	for reason, n := range members(r["failed"]) {
		stay = append(stay, string(n)+" "+reason)
	}
	if state := r.text("state"); state != "done" {
		return failed(unavailable, "%s; the redrive has %s", moved, strings.TrimSpace(strings.TrimSuffix(ending(state)+": "+r.text("reason"), ": ")))
	}
	if stay != nil {
		return failed(unavailable, "%s; these stay: %s", moved, strings.Join(stay, ", "))
	}
	return c.result("%s", moved)
}

func ending(state string) string {
	if state == "cancelled" {
		return "been cancelled"
	}
	return state
}

// progress shows the progress of a command: on a terminal in one line that it replaces, otherwise in a new line once a second.
type progress struct {
	out  io.Writer // nil = nothing is shown
	bar  bool
	last time.Time
}

func newProgress(c *call) *progress {
	p := &progress{}
	if c.verbose() {
		p.out = c.program.Stderr
		f, ok := p.out.(*os.File)
		p.bar = ok && term.IsTerminal(int(f.Fd()))
	}
	return p
}

const barWidth = 30

func (p *progress) show(r object) {
	if p.out == nil {
		return
	}
	text := fmt.Sprintf("%d of %d", r.number("moved"), r.number("total"))
	if rate := plain(r["rate"]).text; rate != "" {
		n, _ := strconv.ParseFloat(rate, 64) // a number from the API is valid
		text += fmt.Sprintf(" (%.0f per second)", n)
	}
	if p.bar {
		done := share(r)
		text = fmt.Sprintf("[%s%s] %3d%%  %s", strings.Repeat("#", done*barWidth/100), strings.Repeat(".", barWidth-done*barWidth/100), done, text)
	}
	p.say(text, time.Second)
}

// say shows a text. On a terminal it replaces the one before; otherwise it gets its own line, at most one in each interval.
func (p *progress) say(text string, interval time.Duration) {
	if p.out == nil {
		return
	}
	now := time.Now()
	switch {
	case p.bar:
		fmt.Fprintf(p.out, "\r\x1b[K%s", fitted(text, terminalWidth(p.out)-1)) // a text of several lines would not be replaced
		p.last = now
	case p.last.IsZero():
		p.last = now
	case now.Sub(p.last) >= interval:
		fmt.Fprintln(p.out, text)
		p.last = now
	}
}

// terminalWidth returns the number of columns of a terminal, or a default if it is unknown.
func terminalWidth(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 1 {
			return width
		}
	}
	return plainWidth
}

// share returns the percentage of the messages that the redrive has dealt with.
func share(r object) int {
	total := r.number("total")
	if total <= 0 {
		return 100
	}
	return int(min(max((total-r.number("remaining"))*100/total, 0), 100))
}

func (p *progress) end() {
	if p.bar && !p.last.IsZero() {
		fmt.Fprintln(p.out)
	}
}
