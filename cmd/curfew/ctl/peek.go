package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// peekColumns are the members of a message. Clients choose the values of most; these are quoted unless they are plain.
var peekColumns = known{
	columns(`id state deadline:instant hold:instant since:instant deliveries redelivered deaths policy_digest:quoted
		consumer_tag=consumer.consumer_tag:quoted channel=consumer.channel:quoted connection=consumer.connection:quoted
		exchange:quoted routing_key:quoted properties:text payload_bytes payload:quoted payload_encoding`),
	"id state since deaths routing_key payload",
}

// peekOptions are the command's options. They are also parameters of the API, with underscores instead of dashes.
func peekOptions() []option {
	return []option{
		{long: "order", value: "position|deadline", about: "position, as consumers get them (default), or deadline, the next to expire first"},
		{long: "state", value: "ready|unacked|held", about: "only messages in this state"},
		{long: "message-id", value: "id", about: "only messages with this property message-id"},
		{long: "count", value: "n", numeric: true, about: "at most this many messages, 1 to 1000 (default 50)"},
		{long: "after", value: "position", about: "only messages after this one: its id, or the value printed by the previous call"},
		{long: "truncate", value: "bytes", numeric: true, about: "show at most this many bytes of each payload"},
	}
}

func peekCommand() command {
	return command{
		name: "peek", operands: "<queue> [<column>, ...]", scoped: true, run: peek, check: checkPeek, options: peekOptions(), patience: time.Minute,
		about: "shows messages of a queue without taking them",
		more: "Changes nothing: no message is delivered or counted, and the queue's expiry is not put off.\n\nColumns\n\n" +
			wrapped(titles(peekColumns.columns)) + "\n\nDefault: " + strings.Join(strings.Fields(peekColumns.usual), ", ") + ".",
	}
}

func checkPeek(c *call) error {
	_, err := peekColumns.pick(c.operands[1:])
	return err
}

// peekPage is the API's answer.
type peekPage struct {
	Messages []object `json:"messages"`
	Next     *string  `json:"next"`
	Complete bool     `json:"complete"`
	Problem  string   `json:"error"`
}

func peek(ctx context.Context, c *call) error {
	picked, err := peekColumns.pick(c.operands[1:])
	if err != nil {
		return err
	}
	query := url.Values{}
	for _, o := range peekOptions() {
		if c.has(o.long) {
			query.Set(strings.ReplaceAll(o.long, "-", "_"), c.value(o.long))
		}
	}
	c.banner("Looking into queue '%s' in vhost '%s' ...", c.operands[0], c.vhost())
	var page peekPage
	if err := c.api.get(ctx, strings.TrimSuffix(c.path("queues/{vhost}/{1}/messages")+"?"+query.Encode(), "?"), &page); err != nil {
		if r, ok := errors.AsType[*refusal](err); ok && r.status == http.StatusBadRequest { // an option has a wrong value
			return failed(usageError, "%s", r.reason)
		}
		return c.missing(err, noQueueThere)
	}
	if err := c.showAll(page.Messages, picked...); err != nil {
		return err
	}
	switch {
	case page.Problem != "":
		return failed(unavailable, "%s", page.Problem)
	case page.Next == nil || !c.verbose():
	case page.Complete:
		fmt.Fprintf(c.program.Stderr, "There may be more: --after %s\n", *page.Next)
	default:
		fmt.Fprintf(c.program.Stderr, "The queue was not searched to its end: --after %s continues\n", *page.Next)
	}
	return nil
}

var noQueueThere = &failure{unavailable, "Error:\nno queue '{1}' in vhost '{vhost}'"}

// quotedCell is a text chosen by clients, made safe for terminals.
func quotedCell(raw json.RawMessage) cell {
	c := plain(raw)
	if c.text != "" {
		c.text = shown(c.text)
	}
	return c
}

// instantCell is a time, for programs in milliseconds.
func instantCell(raw json.RawMessage) cell {
	c := plain(raw)
	if c.text != "" {
		c.text = eventTime(raw)
	}
	return c
}
