package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/config"
)

// heldColumns are the columns of a held message. Publishers choose the values of some; these are quoted unless they are plain.
var heldColumns = known{
	columns("id deliver_at:time deadline:time enqueued:time exchange:quoted routing_key:quoted message_id:quoted payload_bytes redelivered returns"),
	"id deliver_at routing_key message_id",
}

// scheduledColumns are those of a message that an exchange holds.
var scheduledColumns = known{
	slices.Insert(slices.Clone(heldColumns.columns), 1, columns("schedule_id:quoted")...),
	"id deliver_at routing_key message_id schedule_id",
}

// holding has the differences between the commands about messages that queues hold and those about messages that exchanges hold.
type holding struct {
	noun    string // "queue", "exchange"
	suffix  string // of the commands' names
	path    string // of its messages
	columns *known
	options []option // of its list, in addition to those that both have
}

var (
	heldByQueue    = holding{"queue", "held", "queues/{vhost}/{1}/held", &heldColumns, nil}
	heldByExchange = holding{
		"exchange", "scheduled", "exchanges/{vhost}/{1}/scheduled", &scheduledColumns,
		[]option{{long: "schedule-id", value: "id", about: "the message with this x-schedule-id"}},
	}
)

func heldCommands() []command {
	return append(heldByExchange.commands(), heldByQueue.commands()...)
}

const timeFormats = "A time is a number of milliseconds since 1970, a date such as 2026-12-24T18:00:00Z, or relative to now: +90s, +15m, +36h, +7d."

func (h *holding) commands() []command {
	return []command{
		{
			name: "list_" + h.suffix, operands: "<" + h.noun + "> [<column>...]", scoped: true, check: h.checkList, run: h.list, patience: time.Minute,
			about: "lists the messages that the " + h.noun + " holds, in the order of their release",
			more: fmt.Sprintf("Columns are %s.\nDefault: %s.", strings.Join(titles(h.columns.columns), ", "),
				strings.Join(strings.Fields(h.columns.usual), ", ")),
			options: append([]option{
				{long: "count", value: "n", numeric: true, about: "only the first n"},
				{long: "message-id", value: "id", about: "only messages with this message-id"},
			}, h.options...),
		},
		{
			name: "cancel_" + h.suffix, operands: "<" + h.noun + "> [<id>]", scoped: true, check: h.checkCancel, run: h.cancel, patience: 10 * time.Minute,
			about: "drops a message that the " + h.noun + " holds, or many", more: timeFormats,
			options: append(slices.Clone(h.options), []option{
				{long: "before", value: "time", about: "all messages released before this time"},
				{long: "routing-key", value: "key", about: "all messages with this routing key"},
				{long: "all", about: "all messages"},
			}...),
		},
		{
			name: "release_" + h.suffix, operands: "<" + h.noun + "> <id>", scoped: true, run: h.release,
			about: "releases a message that the " + h.noun + " holds, at once",
		},
		{
			name: "move_" + h.suffix, operands: "<" + h.noun + "> <id> <time>", scoped: true, check: checkTime, run: h.move,
			about: "changes when the " + h.noun + " releases a message that it holds", more: timeFormats,
		},
	}
}

func (h *holding) checkList(c *call) error {
	if c.has("count") && c.number("count") < 1 {
		return misused("--count %s: accepted are 1 and more", c.value("count"))
	}
	_, err := h.columns.pick(c.operands[1:])
	return err
}

func (h *holding) list(ctx context.Context, c *call) error {
	picked, err := h.columns.pick(c.operands[1:])
	if err != nil {
		return err
	}
	query := url.Values{}
	for _, name := range []string{"message-id", "schedule-id"} {
		if c.has(name) {
			query.Set(strings.ReplaceAll(name, "-", "_"), c.value(name))
		}
	}
	c.banner("Listing messages held by %s %s in vhost %s ...", h.noun, c.operands[0], c.vhost())
	err = c.print(table{columns: titles(picked), rows: rows(c.pages(ctx, c.path(h.path), query), picked, nil)})
	return h.notFound(c, err, "there is no %s '{1}' in vhost '{vhost}' that can hold messages")
}

// pages iterates over a list that the API returns in pages, up to --count items.
func (c *call) pages(ctx context.Context, path string, query url.Values) iter.Seq2[object, error] {
	return func(yield func(object, error) bool) {
		left := c.number("count")
		for more := true; more; {
			var page struct {
				Items []object `json:"items"`
				Next  *string  `json:"next"`
			}
			query.Set("count", strconv.Itoa(pageSize(left)))
			if err := c.api.get(ctx, path+"?"+query.Encode(), &page); err != nil {
				yield(nil, err)
				return
			}
			for _, o := range page.Items {
				if !yield(o, nil) {
					return
				}
			}
			if more = page.Next != nil; more {
				query.Set("after", *page.Next)
			}
			if left -= len(page.Items); left == 0 && c.has("count") { // a page of a long search can be empty
				return
			}
		}
	}
}

// pageSize returns how many items to request if left are wanted; 0 or less = all.
func pageSize(left int) int {
	const most = 500
	if left <= 0 {
		return most
	}
	return min(left, most)
}

func (h *holding) checkCancel(c *call) error {
	many := c.has("before") || c.has("routing-key") || c.has("all")
	switch {
	case c.has("schedule-id") && (many || len(c.operands) == 2):
		return misused("--schedule-id excludes an id, --before, --routing-key and --all")
	case c.has("schedule-id") && c.value("schedule-id") == "":
		return misused("--schedule-id is empty")
	case c.has("schedule-id"):
		return nil
	case len(c.operands) == 2 && c.operands[1] == "":
		return misused("the id is empty")
	case len(c.operands) == 2 && many:
		return misused("an id excludes --before, --routing-key and --all")
	case len(c.operands) == 1 && !many:
		return misused("not enough arguments: an id, %s--before, --routing-key or --all selects the messages.", h.further())
	case c.has("before"):
		_, err := parseTime(c.value("before"), time.Now())
		return err
	}
	return nil
}

func (h *holding) cancel(ctx context.Context, c *call) error {
	if len(c.operands) == 2 {
		c.banner("Cancelling message %s held by %s %s in vhost %s ...", c.operands[1], h.noun, c.operands[0], c.vhost())
		return h.change(ctx, c, http.MethodDelete, "/{2}", nil)
	}
	if c.has("schedule-id") {
		return h.cancelScheduled(ctx, c)
	}
	query := url.Values{}
	if c.has("before") {
		before, err := parseTime(c.value("before"), time.Now())
		if err != nil {
			return err
		}
		query.Set("before", strconv.FormatInt(before, 10))
	}
	if c.has("routing-key") {
		query.Set("routing_key", c.value("routing-key"))
	}
	c.banner("Cancelling messages held by %s %s in vhost %s ...", h.noun, c.operands[0], c.vhost())
	address, cancelled := strings.TrimSuffix(c.path(h.path)+"?"+query.Encode(), "?"), int64(0)
	for more := true; more; {
		var answer object
		if err := c.api.call(ctx, http.MethodDelete, address, nil, &answer); err != nil {
			return h.notFound(c, err, "there is no %s '{1}' in vhost '{vhost}' that can hold messages")
		}
		n := answer.number("cancelled")
		cancelled += n
		if more = string(answer["complete"]) == "false"; more && n == 0 { // the next call continues the search
			return failed(temporaryFailure, "cancelled %s; others come too late in the list to be found in time: narrow it with --before", counted(cancelled, "message"))
		}
	}
	return c.result("Cancelled %s", counted(cancelled, "message"))
}

// further names the options of cancel that exist for exchanges only.
func (h *holding) further() string {
	if h.options == nil {
		return ""
	}
	return "--schedule-id, "
}

// cancelScheduled cancels the message with an x-schedule-id; an exchange holds at most one.
func (h *holding) cancelScheduled(ctx context.Context, c *call) error {
	id := c.value("schedule-id")
	c.banner("Cancelling the message with the schedule id %s held by %s %s in vhost %s ...", shown(id), h.noun, c.operands[0], c.vhost())
	none := &failure{unavailable, "Error:\nno message with the schedule id " + shown(id) + " is held by " + h.noun + " '{1}' in vhost '{vhost}'"}
	var page struct {
		Items []object `json:"items"`
	}
	if err := c.api.get(ctx, c.path(h.path)+"?"+url.Values{"schedule_id": {id}, "count": {"1"}}.Encode(), &page); err != nil {
		return h.notFound(c, err, "there is no %s '{1}' in vhost '{vhost}' that can hold messages")
	}
	if len(page.Items) == 0 {
		return &failure{none.status, c.fill(none.text)}
	}
	return c.doneUnless(c.missing(c.api.remove(ctx, c.path(h.path)+"/"+segment(page.Items[0].text("id"))), none))
}

func (h *holding) release(ctx context.Context, c *call) error {
	c.banner("Releasing message %s held by %s %s in vhost %s ...", c.operands[1], h.noun, c.operands[0], c.vhost())
	return h.change(ctx, c, http.MethodPost, "/{2}/release", nil)
}

func (h *holding) move(ctx context.Context, c *call) error {
	at, err := parseTime(c.operands[2], time.Now())
	if err != nil {
		return err
	}
	c.banner("Moving message %s held by %s %s in vhost %s to %s ...", c.operands[1], h.noun, c.operands[0], c.vhost(), shownTime(at))
	return h.change(ctx, c, http.MethodPatch, "/{2}", map[string]int64{"deliver_at": at})
}

// change changes one message.
func (h *holding) change(ctx context.Context, c *call, method, below string, body any) error {
	err := c.api.call(ctx, method, c.path(h.path+below), body, nil)
	return c.doneUnless(h.notFound(c, err, "no message {2} is held by %s '{1}' in vhost '{vhost}'"))
}

// notFound replaces the API's "not found", which does not say what is missing. text has a placeholder for the noun.
func (h *holding) notFound(c *call, err error, text string) error {
	return c.missing(err, &failure{unavailable, "Error:\n" + fmt.Sprintf(text, h.noun)})
}

func checkTime(c *call) error {
	_, err := parseTime(c.operands[2], time.Now())
	return err
}

// parseTime reads a time in milliseconds since 1970, or a duration, which it adds to now.
func parseTime(s string, now time.Time) (ms int64, err error) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && s[0] != '+' {
		return n, nil
	}
	if later, ok := strings.CutPrefix(s, "+"); ok {
		if d, err := config.ParseDuration(later); err == nil && d >= 0 {
			return now.Add(d).UnixMilli(), nil
		}
	} else if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t.UnixMilli(), nil
	}
	return 0, misused("'%s' is not a time. %s", s, timeFormats)
}

// instant is a time in milliseconds since 1970. As text it is a date; as JSON it remains a number.
func instant(raw json.RawMessage) cell {
	c := plain(raw)
	if ms, err := strconv.ParseInt(c.text, 10, 64); err == nil {
		c.text = shownTime(ms)
	}
	return c
}

func shownTime(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }
