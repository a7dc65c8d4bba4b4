package policy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// The events of a trace.
const (
	eventQueue   = "queue"   // the first line, and no other: the queue's properties
	eventPublish = "publish" // a message enters
	eventDeliver = "deliver" // the message at the head, or the one named, is delivered
	eventAck     = "ack"     // a delivered message is acknowledged
	eventRequeue = "requeue" // a delivered message is requeued
	eventIdle    = "idle"    // the broker asks whether the queue may stay
)

// trace is the sequence of events of a queue.
type trace struct {
	queue  setup
	events []event
}

// setup is a trace's first line, which is optional.
type setup struct {
	Event    string         `json:"event"`
	Start    time.Time      `json:"start,omitzero"` // origin of the times of the other lines
	VHost    string         `json:"vhost,omitempty"`
	Name     string         `json:"name,omitempty"`
	Type     string         `json:"type,omitempty"`
	Settings map[string]any `json:"settings,omitempty"` // by the names that policies have: message-ttl
}

// event is one of the other lines. Times and durations are milliseconds.
type event struct {
	Event string `json:"event"`
	At    int64  `json:"at"` // since the start
	ID    string `json:"id,omitempty"`

	// fields of publish
	Expiration *int64         `json:"expiration,omitempty"`
	Size       int            `json:"size,omitempty"` // bytes of body
	Priority   uint8          `json:"priority,omitempty"`
	Persistent bool           `json:"persistent,omitempty"`
	Deaths     int            `json:"deaths,omitempty"`
	Exchange   string         `json:"exchange,omitempty"`
	RoutingKey string         `json:"routing_key,omitempty"`
	MessageID  string         `json:"message_id,omitempty"`
	Type       string         `json:"type,omitempty"`
	AppID      string         `json:"app_id,omitempty"`
	UserID     string         `json:"user_id,omitempty"`
	Headers    map[string]any `json:"headers,omitempty"`
	Body       string         `json:"body,omitempty"` // traces that were recorded have none

	// fields of idle
	Idle      int64 `json:"idle,omitempty"` // how long the queue has been unused
	Consumers int   `json:"consumers,omitempty"`
}

const (
	maxLine   = 1 << 20                         // bytes
	maxEvents = 1 << 20                         // in a trace
	maxAt     = 100 * 365 * 24 * 60 * 60 * 1000 // a century
)

// defaultStart is the start of traces that do not name one: a Monday.
var defaultStart = time.Date(2026, time.January, 5, 0, 0, 0, 0, time.UTC)

func readTrace(name string) (*trace, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	t, err := parseTrace(f)
	if err != nil {
		return nil, fmt.Errorf("%s:%w", name, err)
	}
	return t, nil
}

// parseTrace reads a trace. Its errors begin with the line number.
func parseTrace(r io.Reader) (*trace, error) {
	t := &trace{queue: setup{Start: defaultStart}}
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	n := 0
	for s.Scan() {
		n++
		b := bytes.TrimSpace(s.Bytes())
		if len(b) == 0 || b[0] == '#' {
			continue
		}
		if err := t.add(b); err != nil {
			return nil, fmt.Errorf("%d: %w", n, err)
		}
	}
	if errors.Is(s.Err(), bufio.ErrTooLong) {
		return nil, fmt.Errorf("%d: the line is too long; accepted are up to %d bytes", n+1, maxLine)
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("%d: %w", n+1, err)
	}
	if len(t.events) == 0 {
		return nil, fmt.Errorf("%d: the trace has no events", n)
	}
	return t, nil
}

func (t *trace) add(line []byte) error {
	var kind struct {
		Event string `json:"event"`
	}
	if err := json.Unmarshal(line, &kind); err != nil {
		return fmt.Errorf("is not a JSON object: %w", err)
	}
	switch kind.Event {
	case eventQueue:
		return t.addSetup(line)
	case eventPublish, eventDeliver, eventAck, eventRequeue, eventIdle:
		return t.addEvent(line)
	case "":
		return errors.New("has no event")
	}
	return fmt.Errorf("there is no event %q; there are queue, publish, deliver, ack, requeue and idle", kind.Event)
}

// decode decodes an object. It refuses members that into does not have.
func decode(line []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

func (t *trace) addSetup(line []byte) error {
	if len(t.events) > 0 || t.queue.Event != "" {
		return errors.New("queue has to be the first event")
	}
	if err := decode(line, &t.queue); err != nil {
		return err
	}
	if y := t.queue.Start.Year(); y < 1975 || y > 9000 {
		return fmt.Errorf("start: the year %d is out of range; accepted are 1975 to 9000", y)
	}
	settings := make(map[string]any, len(t.queue.Settings))
	for name, v := range t.queue.Settings {
		settings[strings.TrimPrefix(name, "x-")] = plainValue(v)
	}
	t.queue.Settings = settings
	return nil
}

func (t *trace) addEvent(line []byte) error {
	var e event
	if err := decode(line, &e); err != nil {
		return err
	}
	last := int64(0)
	if n := len(t.events); n > 0 {
		last = t.events[n-1].At
	}
	switch {
	case e.At < last:
		return fmt.Errorf("at %d lies before the event above, %d", e.At, last)
	case e.At > maxAt:
		return fmt.Errorf("at %d is out of range; accepted are up to %d, a century", e.At, int64(maxAt))
	case len(t.events) == maxEvents:
		return fmt.Errorf("the trace is too long; accepted are up to %d events", maxEvents)
	case e.Size < 0 || e.Deaths < 0 || e.Idle < 0 || e.Consumers < 0:
		return errors.New("size, deaths, idle and consumers cannot be negative")
	case e.ID == "" && (e.Event == eventAck || e.Event == eventRequeue):
		return fmt.Errorf("%s needs the id of a message", e.Event)
	}
	for name, v := range e.Headers {
		e.Headers[name] = plainValue(v)
	}
	if e.Size == 0 {
		e.Size = len(e.Body)
	}
	t.events = append(t.events, e)
	return nil
}

// plainValue converts a JSON value to the type that the broker uses.
func plainValue(v any) any {
	n, ok := v.(json.Number)
	if !ok {
		return v
	}
	if i, err := n.Int64(); err == nil {
		return i
	}
	f, err := n.Float64()
	if err != nil {
		return n.String()
	}
	return f
}

// message returns a published message as the policy sees it.
func (e *event) message() hook.Message {
	m := hook.Message{Size: e.Size, Priority: e.Priority, Persistent: e.Persistent}
	if e.Expiration != nil {
		m.Expiration = hook.LimitOf(*e.Expiration)
	}
	return m
}

// contents is a [hook.Source] made from events.
type contents []*event

var _ hook.Source = contents(nil)

// The methods of [hook.Source].

func (c contents) Part(i int, p hook.Part) []byte {
	e := c[i]
	switch p {
	case hook.PartExchange:
		return []byte(e.Exchange)
	case hook.PartRoutingKey:
		return []byte(e.RoutingKey)
	case hook.PartMessageID:
		return present(e.MessageID)
	case hook.PartType:
		return present(e.Type)
	case hook.PartAppID:
		return present(e.AppID)
	case hook.PartUserID:
		return present(e.UserID)
	case hook.PartExpiration:
		if e.Expiration != nil {
			return fmt.Append(nil, *e.Expiration)
		}
	case hook.PartBody:
		return []byte(e.Body)
	}
	return nil
}

func present(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

func (c contents) Header(i int, name string) (any, bool) {
	v, ok := c[i].Headers[name]
	return v, ok
}

func (c contents) HeaderInt(i int, name string) (int64, bool) {
	return hook.HeaderInt(c[i].Headers[name])
}

func (c contents) HeaderText(i int, name string) ([]byte, bool) {
	s, ok := c[i].Headers[name].(string)
	return []byte(s), ok
}

func (c contents) Deaths(i int) int { return c[i].Deaths }
