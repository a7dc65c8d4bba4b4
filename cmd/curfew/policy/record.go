package policy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/curfewmq/curfew/cmd/curfew/ctl"
)

func recordCommand() command {
	return command{
		name: "record", run: runRecord,
		about: "records a trace of the messages published to a queue of a running broker, without bodies",
		flags: func(f *flags) {
			f.String("queue", "", "the `queue`")
			f.String("vhost", "/", "its virtual `host`")
			f.Duration("duration", 0, "stop after this time; 0 = when interrupted")
			f.Duration("interval", 200*time.Millisecond, "how often messages are fetched, and how exact their times are (default 200ms)")
			f.String("headers", "", "a comma-separated `list` of headers to record; default: none, for privacy")
			f.String("o", "", "the output `file`; default: standard output")
			remote(f)
		},
		more: "Declares two temporary queues with the bindings of the queue, which get a copy of each message; the queue itself\n" +
			"is not touched. Messages published to it by name, through the default exchange, cannot be copied. Actions of\n" +
			"its consumers are not recorded. " + environmentHelp,
	}
}

func runRecord(ctx context.Context, p *Program, f *flags) (err error) {
	if f.text("queue") == "" {
		return misused("--queue is missing")
	}
	interval, d := value[time.Duration](f, "interval"), value[time.Duration](f, "duration")
	if interval < time.Millisecond || interval > 10*time.Second || d < 0 {
		return misused("--interval %v: must be from 1ms to 10s, and --duration not negative", interval)
	}
	to := p.Stdout
	if name := f.text("o"); name != "" {
		file, createErr := os.Create(name)
		if createErr != nil {
			return createErr
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		to = file
	}
	_, done, r, err := p.connect(ctx, f)
	if err != nil {
		return err
	}
	defer done()
	if d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	t := &tap{
		api: r, timeout: value[time.Duration](f, "timeout"), vhost: f.text("vhost"), queue: f.text("queue"),
		headers: slices.Collect(strings.FieldsFuncSeq(f.text("headers"), isSeparator)), out: bufio.NewWriter(to),
	}
	n, err := t.record(ctx, time.NewTicker(interval))
	if err == nil {
		_, err = fmt.Fprintf(p.Stderr, "%d messages recorded\n", n)
	}
	return err
}

// record copies messages until ctx ends, and returns how many.
func (t *tap) record(ctx context.Context, ticks *time.Ticker) (n int, err error) {
	defer ticks.Stop()
	// calls complete, and the queues are removed, even after ctx has ended
	calls := context.WithoutCancel(ctx)
	defer func() { err = errors.Join(err, t.remove(calls), t.out.Flush()) }()
	if err := t.declareAll(calls); err != nil {
		return 0, err
	}
	began := time.Now()
	if err := t.writeSetup(calls, began); err != nil {
		return 0, err
	}
	for last := false; !last; {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			last = true
		}
		got, err := t.drain(calls, time.Since(began).Milliseconds())
		if n += got; err != nil {
			return n, err
		}
	}
	return n, nil
}

// tap is a pair of queues that get a copy of another queue's messages. The second queue gets the messages that expire before they are
// fetched.
type tap struct {
	api          *ctl.Remote
	timeout      time.Duration
	vhost, queue string
	headers      []string
	out          *bufio.Writer

	name   string // of the first queue; tooLate is the second's
	number int    // number of messages so far
}

func (t *tap) tooLate() string { return t.name + ".expired" }

func (t *tap) call(ctx context.Context, method string, body, into any, path ...string) error {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	return t.api.Call(ctx, method, ctl.Path(path...), body, into)
}

// binding is a binding in the API's format.
type binding struct {
	Source     string         `json:"source"`
	RoutingKey string         `json:"routing_key"`
	Arguments  map[string]any `json:"arguments"`
}

const (
	tapExpires = 60_000   // milliseconds after which a broker deletes a tap that is no longer drained
	tapLength  = 100_000  // messages
	tapBytes   = 64 << 20 // of their bodies
)

// declareAll declares the tap's queues, and gives the first one the queue's bindings.
func (t *tap) declareAll(ctx context.Context) error {
	var bound []binding
	if err := t.call(ctx, http.MethodGet, nil, &bound, "queues", t.vhost, t.queue, "bindings"); err != nil {
		return fmt.Errorf("queue %q: %w", t.queue, err)
	}
	bound = slices.DeleteFunc(bound, func(b binding) bool { return b.Source == "" })
	if len(bound) == 0 {
		return fmt.Errorf("queue %q is bound only to the default exchange, whose messages cannot be copied", t.queue)
	}
	t.name = fmt.Sprintf("curfew.record.%d.%x", os.Getpid(), time.Now().UnixNano())
	limits := map[string]any{"x-expires": tapExpires, "x-max-length": tapLength, "x-max-length-bytes": tapBytes}
	if err := t.declare(ctx, t.tooLate(), limits); err != nil {
		return err
	}
	first := map[string]any{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": t.tooLate()}
	maps.Copy(first, limits)
	if err := t.declare(ctx, t.name, first); err != nil {
		return err
	}
	for _, b := range bound {
		body := map[string]any{"routing_key": b.RoutingKey, "arguments": b.Arguments}
		if err := t.call(ctx, http.MethodPost, body, nil, "bindings", t.vhost, "e", b.Source, "q", t.name); err != nil {
			return fmt.Errorf("binding a copy of the queue to exchange %q: %w", b.Source, err)
		}
	}
	return nil
}

func (t *tap) declare(ctx context.Context, name string, arguments map[string]any) error {
	body := map[string]any{"durable": false, "auto_delete": false, "arguments": arguments}
	if err := t.call(ctx, http.MethodPut, body, nil, "queues", t.vhost, name); err != nil {
		return fmt.Errorf("declaring a copy of the queue: %w", err)
	}
	return nil
}

// remove deletes the tap's queues.
func (t *tap) remove(ctx context.Context) error {
	if t.name == "" {
		return nil
	}
	var errs []error
	for _, name := range []string{t.name, t.tooLate()} {
		err := t.call(ctx, http.MethodDelete, nil, nil, "queues", t.vhost, name)
		if r, ok := errors.AsType[*ctl.Refusal](err); ok && r.Status == http.StatusNotFound {
			continue
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// writeSetup writes the first line of the trace.
func (t *tap) writeSetup(ctx context.Context, now time.Time) error {
	var q struct {
		Type      string         `json:"type"`
		Arguments map[string]any `json:"arguments"`
		Policy    map[string]any `json:"effective_policy_definition"`
	}
	if err := t.call(ctx, http.MethodGet, nil, &q, "queues", t.vhost, t.queue); err != nil {
		return err
	}
	s := setup{
		Event: eventQueue, Start: now.UTC().Truncate(time.Millisecond), VHost: t.vhost, Name: t.queue, Type: q.Type,
		Settings: merged(q.Arguments, q.Policy),
	}
	return t.write(&s)
}

// merged returns a queue's settings from its policy and its arguments. If both have a number, the lower one applies.
func merged(arguments, policy map[string]any) map[string]any {
	all := map[string]any{}
	maps.Copy(all, policy)
	for name, v := range arguments {
		name = strings.TrimPrefix(name, "x-")
		mine, isNumber := v.(float64)
		other, both := all[name].(float64)
		if isNumber && both && other < mine {
			continue
		}
		all[name] = v
	}
	delete(all, "expiry-strategy")
	return all
}

func (t *tap) write(line any) error {
	e := json.NewEncoder(t.out)
	e.SetEscapeHTML(false)
	return e.Encode(line)
}

// fetched is a message in the API's format.
type fetched struct {
	Exchange   string `json:"exchange"`
	RoutingKey string `json:"routing_key"`
	Bytes      int    `json:"payload_bytes"`
	Properties struct {
		Expiration   string         `json:"expiration"`
		Priority     uint8          `json:"priority"`
		DeliveryMode int            `json:"delivery_mode"`
		MessageID    string         `json:"message_id"`
		Type         string         `json:"type"`
		AppID        string         `json:"app_id"`
		UserID       string         `json:"user_id"`
		Headers      map[string]any `json:"headers"`
	} `json:"properties"`
}

// UnmarshalJSON implements [json.Unmarshaler]. The API may return empty properties as a list.
func (m *fetched) UnmarshalJSON(b []byte) error {
	type plain fetched
	var raw struct {
		plain

		Properties json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	*m = fetched(raw.plain)
	if len(raw.Properties) == 0 || raw.Properties[0] == '[' {
		return nil
	}
	return json.Unmarshal(raw.Properties, &m.Properties)
}

// drain writes the messages that have arrived. now is in milliseconds after the start.
func (t *tap) drain(ctx context.Context, now int64) (n int, err error) {
	for _, name := range []string{t.tooLate(), t.name} {
		body := map[string]any{"count": 10_000, "ackmode": "ack_requeue_false", "encoding": "base64", "truncate": 0}
		var ms []fetched
		if err := t.call(ctx, http.MethodPost, body, &ms, "queues", t.vhost, name, "get"); err != nil {
			return n, err
		}
		for i := range ms {
			if err := t.write(t.event(&ms[i], now)); err != nil {
				return n, err
			}
			n++
		}
	}
	return n, t.out.Flush()
}

// event returns the trace line for a message.
func (t *tap) event(m *fetched, now int64) *event {
	t.number++
	p := &m.Properties
	e := &event{
		Event: eventPublish, At: now, ID: fmt.Sprintf("m%d", t.number), Size: m.Bytes, Priority: p.Priority, Persistent: p.DeliveryMode == 2,
		Exchange: m.Exchange, RoutingKey: m.RoutingKey, MessageID: p.MessageID, Type: p.Type, AppID: p.AppID, UserID: p.UserID,
	}
	deaths := deathsIn(p.Headers)
	if len(deaths) > 0 && deaths[0].Queue == t.name {
		own := deaths[0]
		deaths = deaths[1:]
		e.Exchange, e.RoutingKey = own.Exchange, strings.Join(own.Keys[:min(1, len(own.Keys))], "")
		p.Expiration = own.Expiration
	}
	for _, d := range deaths {
		e.Deaths += d.Count
	}
	if ttl, err := json.Number(p.Expiration).Int64(); err == nil {
		e.Expiration = &ttl
	}
	for _, name := range t.headers {
		if v, ok := p.Headers[name]; ok {
			if e.Headers == nil {
				e.Headers = map[string]any{}
			}
			e.Headers[name] = v
		}
	}
	return e
}

// death is an entry of the header x-death. The latest entry comes first.
type death struct {
	Queue      string   `json:"queue"`
	Count      int      `json:"count"`
	Exchange   string   `json:"exchange"`
	Keys       []string `json:"routing-keys"`
	Expiration string   `json:"original-expiration"`
}

func deathsIn(headers map[string]any) (list []death) {
	b, err := json.Marshal(headers["x-death"])
	if err != nil || json.Unmarshal(b, &list) != nil {
		return nil // another program's header of the same name
	}
	return list
}
