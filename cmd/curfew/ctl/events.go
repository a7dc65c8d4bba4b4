package ctl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/curfewmq/curfew/cmd/curfew/printable"
)

func eventCommands() []command {
	return []command{{
		name: "events", scoped: true, check: checkEvents, run: followEvents, options: eventOptions(),
		about: "prints events of the broker as they happen",
		more: "Prints a line per event: messages that expire, are dead-lettered, dropped, released, redriven or cancelled, queues\n" +
			"that expire, queue policies, expiry policies and alarms, by default of all virtual hosts that the user may see.\n" +
			"It runs until Ctrl-C, --count or --timeout. If the broker restarts or the connection breaks, it reconnects and continues\n" +
			"after the last event; a line \"missed\" counts the events lost. With --no-reconnect it exits with status 69 instead.\n" +
			"Lists are names separated by commas; the error for a wrong name lists the valid ones.",
	}}
}

// eventOptions are the command's options. All but the last two are also parameters of the API, with underscores instead of dashes.
func eventOptions() []option {
	return []option{
		{long: "queue", value: "name", about: "only events of this queue"},
		{long: "queue-regex", value: "expression", about: "only events of queues whose name matches"},
		{long: "schedule", value: "exchange", about: "only messages that this exchange held"},
		{long: "kind", value: "list", about: "only these kinds, such as message_expired,alarm_raised"},
		{long: "reason", value: "list", about: "only messages that left for these reasons, such as expired"},
		{long: "outcome", value: "list", about: "only messages with these outcomes, such as dead_lettered"},
		{long: "history", value: "n", numeric: true, about: "first print the last n remembered events (default 0)"},
		{long: "count", value: "n", numeric: true, about: "exit after n events, 1 or more, including remembered ones; if there are fewer, wait for the rest"},
		{long: "no-reconnect", about: "exit when the stream ends"},
	}
}

func checkEvents(c *call) error {
	if f := c.value("formatter"); f != "" && f != "json" && f != "table" {
		return misused("--formatter %s: events are printed as lines of text, or of JSON with --formatter json", f)
	}
	if c.has("count") && c.number("count") < 1 {
		return misused("--count %s: accepted are 1 and more", c.value("count"))
	}
	return nil
}

// number returns the value of a numeric option; 0 without it.
func (c *call) number(name string) int {
	n, _ := strconv.Atoi(c.value(name)) // parse has checked the value
	return n
}

// eventsRefused replaces a "not found" with an error that names the virtual host, because the API's does not.
func (c *call) eventsRefused(err error) error {
	if r, ok := errors.AsType[*refusal](err); ok && r.status == http.StatusNotFound && r.reason == "Not Found" && c.has("vhost") {
		return c.missing(err, noVHost)
	}
	return err
}

func (c *call) printEvent(line []byte) error {
	if !c.out.banners() {
		_, err := fmt.Fprintf(c.program.Stdout, "%s\n", printable.JSON(line))
		return err
	}
	text, err := eventLine(line)
	if err != nil {
		return fmt.Errorf("%s sent something other than an event: %w", c.api.base, err)
	}
	_, err = fmt.Fprintln(c.program.Stdout, text)
	return err
}

// eventLine formats an event for people: time, kind, and its other members.
func eventLine(line []byte) (string, error) {
	var when, kind string
	var rest strings.Builder
	for name, value := range members(line) {
		switch name {
		case "id":
		case "time":
			when = eventTime(value)
		case "kind":
			kind = eventValue(value)
		default:
			if text := eventMember(name, value); text != "" {
				rest.WriteString(" " + shown(name) + "=" + text)
			}
		}
	}
	if kind == "" {
		return "", fmt.Errorf("%.100q", line)
	}
	return when + " " + kind + rest.String(), nil
}

// members iterates over the members of a JSON object in order, and stops at invalid JSON.
func members(object []byte) iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		d := json.NewDecoder(bytes.NewReader(object))
		if start, err := d.Token(); err != nil || start != json.Delim('{') {
			return
		}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return
			}
			var value json.RawMessage
			if d.Decode(&value) != nil {
				return
			}
			if text, ok := name.(string); !ok || !yield(text, value) {
				return
			}
		}
	}
}

// eventMember formats a member's value; "" for null.
func eventMember(name string, value json.RawMessage) string {
	if string(value) == "null" {
		return ""
	}
	switch name {
	case "deadline", "enqueued", "held_until", "last_use", "until":
		return eventTime(value)
	}
	return eventValue(value)
}

func eventTime(value json.RawMessage) string {
	var ms int64
	if json.Unmarshal(value, &ms) != nil {
		return eventValue(value)
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

// eventValue formats a value on one line, without control characters for the terminal: clients choose names.
func eventValue(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return shown(text)
	}
	var list []string
	if json.Unmarshal(value, &list) == nil {
		return shown(strings.Join(list, ","))
	}
	return shown(string(value))
}

// shown quotes a text with blanks, quotes or unprintable characters.
func shown(text string) string {
	strange := func(r rune) bool {
		return r == '"' || r == '=' || r == '\\' || unicode.IsSpace(r) || !unicode.IsPrint(r)
	}
	if text == "" || strings.ContainsFunc(text, strange) {
		return strconv.Quote(text)
	}
	return text
}
