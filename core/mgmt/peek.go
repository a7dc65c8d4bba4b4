package mgmt

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/rabbit"
	"github.com/curfewmq/curfew/sdk/hook"
)

// peeking says which messages of a queue a client wants to see, and how.
type peeking struct {
	byDeadline bool
	state      queue.MessageState // with hasState
	hasState   bool
	messageID  string // "" = any
	count      int
	after      *position // nil = from the beginning
	bodies     fetching  // only truncate is used
}

// position is a message in a list, by its place in the queue or by its deadline.
type position struct {
	ref      queue.Ref
	deadline hook.Instant // with order=deadline; noDeadline for messages without one
}

const (
	defaultPeek = 50
	maxPeek     = 1000
	noDeadline  = hook.Instant(math.MaxInt64)
)

var peekParameters = []string{"order", "after", "count", "message_id", "state", "truncate", "columns"}

// onlyParameters refuses a query with other parameters than the accepted ones.
func onlyParameters(raw url.Values, accepted []string) error {
	for name := range raw {
		if !slices.Contains(accepted, name) {
			return badRequest("unknown parameter %.40q; accepted are %s", name, strings.Join(accepted, ", "))
		}
	}
	return nil
}

// readPeeking reads the parameters of a query.
func readPeeking(raw url.Values) (p peeking, err error) {
	if err := onlyParameters(raw, peekParameters); err != nil {
		return p, err
	}
	p.bodies.truncate, p.count, p.messageID = -1, defaultPeek, raw.Get("message_id")
	switch order := raw.Get("order"); order {
	case "", "position":
	case "deadline":
		p.byDeadline = true
	default:
		return p, badRequest("order is %q: accepted are position and deadline", order)
	}
	if s := raw.Get("state"); s != "" {
		for p.state < queue.MessageLeaving && p.state.String() != s {
			p.state++
		}
		if p.hasState = true; p.state == queue.MessageLeaving {
			return p, badRequest("state is %q: accepted are ready, unacked and held", s)
		}
	}
	if p.count, err = queryNumber(raw, "count", 1, maxPeek, defaultPeek); err != nil {
		return p, err
	}
	if p.bodies.truncate, err = queryNumber(raw, "truncate", 0, maxFetched, -1); err != nil {
		return p, err
	}
	p.after, err = readPosition(raw.Get("after"), p.byDeadline)
	return p, err
}

// queryNumber reads a whole number from least to most.
func queryNumber(raw url.Values, name string, least, most, otherwise int) (int, error) {
	s := raw.Get(name)
	if s == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > most {
		return 0, badRequest("%s is %q: whole numbers from %d to %d are allowed", name, s, least, most)
	}
	return n, nil
}

// readPosition reads the member next of the page before: an id or, by deadline, an instant and an id.
func readPosition(s string, byDeadline bool) (*position, error) {
	if s == "" {
		return nil, nil
	}
	p, id := &position{}, s
	if byDeadline {
		at, rest, _ := strings.Cut(s, ".")
		n, err := strconv.ParseUint(at, 10, 63)
		if err != nil {
			return nil, badRequest("after is %q: with order=deadline, accepted is what next was in the page before", s)
		}
		p.deadline, id = hook.Instant(n), rest
	}
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		return nil, badRequest("after is %q: accepted are the id of a message, and what next was in the page before", s)
	}
	p.ref = queue.Ref(n)
	return p, nil
}

func (p *position) text(byDeadline bool) string {
	id := strconv.FormatUint(uint64(p.ref), 10)
	if byDeadline {
		return strconv.FormatInt(int64(p.deadline), 10) + "." + id
	}
	return id
}

func (p *position) compare(o *position) int {
	return cmp.Or(cmp.Compare(p.deadline, o.deadline), cmp.Compare(p.ref, o.ref))
}

// peek is a request that looks at messages.
type peek struct {
	peeking
	mailbox  *queue.Mailbox
	scan     *queue.Scan
	list     []position // of messages to show, in order once all are found
	bound    *position  // messages behind it are on a later page; nil = not known yet
	last     *position  // the last message that was looked at
	shown    []peeked
	size     int // about how much memory shown takes
	complete bool
	failed   error // a body could not be read
}

// peeked is a message as it is shown.
type peeked struct {
	ref    queue.Ref
	state  queue.MessageState
	object object
}

// showMessages shows messages of a queue, and changes nothing. It needs the permission to read.
func showMessages(c *request) error {
	p, err := readPeeking(c.query.raw)
	if err != nil {
		return err
	}
	if _, err := c.mailbox(); err != nil {
		return err
	}
	name := rabbit.Sanitise(c.vars["queue"])
	if err := c.mayQueue(auth.Read, name); err != nil {
		return err
	}
	m, err := c.vhost.Queue(name, 0)
	if err != nil {
		return err
	}
	k := &peek{peeking: p, mailbox: m}
	stopped, err := k.run()
	if errors.Is(err, queue.ErrGone) {
		return c.vhost.NoQueue(name)
	}
	if err != nil {
		return err
	}
	return c.reply(k.answer(c, stopped))
}

// run finds the messages, and then looks at them.
func (k *peek) run() (stopped error, err error) {
	end := k.mailbox.Now().Add(scanTime)
	_, err = k.mailbox.Parts(end, func(q *queue.Queue) bool {
		if e := q.Stopped(); e != nil {
			stopped = e
			return true
		}
		k.next(q)
		return k.complete || k.full() || k.failed != nil
	})
	if err != nil || stopped != nil || !k.byDeadline {
		return stopped, err
	}
	return k.showByDeadline(end)
}

func (k *peek) full() bool { return !k.byDeadline && (len(k.shown) >= k.count || k.size >= maxFetched) }

// next looks at the next part of the queue.
func (k *peek) next(q *queue.Queue) {
	if k.scan == nil {
		k.scan = queue.NewScan(q)
		if k.after != nil && !k.byDeadline {
			k.scan.After(k.after.ref)
		}
	}
	from := len(k.shown)
	done := k.scan.Next(q, func(m *queue.Stored) bool {
		k.last = &position{ref: m.Ref}
		if !k.passes(m) {
			return true
		}
		if k.byDeadline {
			k.note(m)
			return true
		}
		k.show(m)
		return !k.full() && k.failed == nil
	})
	k.complete = done && k.failed == nil
	k.findLeaving(q, from)
}

// passes reports whether the client wants to see a message.
func (k *peek) passes(m *queue.Stored) bool {
	if k.hasState && m.State != k.state {
		return false
	}
	if k.messageID == "" {
		return true
	}
	if k.failed != nil {
		return false
	}
	if k.failed = m.Load(); k.failed != nil {
		return false
	}
	id, ok := amqp.MessageID(m.Props)
	return ok && string(id) == k.messageID
}

// note remembers a message if it is among the first by deadline.
func (k *peek) note(m *queue.Stored) {
	p := position{ref: m.Ref, deadline: m.Deadline}
	if p.deadline == 0 {
		p.deadline = noDeadline
	}
	if k.after != nil && p.compare(k.after) <= 0 || k.bound != nil && p.compare(k.bound) > 0 {
		return
	}
	if k.list = append(k.list, p); len(k.list) >= 2*k.count {
		k.sortList()
	}
}

// sortList sorts the messages noted so far, and forgets the ones behind the first page.
func (k *peek) sortList() {
	slices.SortFunc(k.list, func(a, b position) int { return a.compare(&b) })
	if len(k.list) >= k.count {
		k.list = k.list[:k.count]
		last := k.list[k.count-1]
		k.bound = &last
	}
}

// showByDeadline shows the messages that were noted.
func (k *peek) showByDeadline(end hook.Instant) (stopped error, err error) {
	k.sortList()
	refs := make([]queue.Ref, len(k.list))
	for i, p := range k.list {
		refs[i] = p.ref
	}
	_, err = k.mailbox.Parts(end, func(q *queue.Queue) bool {
		if e := q.Stopped(); e != nil {
			stopped = e
			return true
		}
		from := len(k.shown)
		refs = k.scan.LookAt(q, refs, k.show)
		k.findLeaving(q, from)
		return len(refs) == 0 || k.size >= maxFetched || k.failed != nil
	})
	if n := len(k.list) - len(refs); n > 0 {
		k.last = &k.list[n-1]
	}
	k.complete = k.complete && len(refs) == 0
	return stopped, err
}

func (k *peek) show(m *queue.Stored) {
	if k.failed != nil {
		return
	}
	if k.failed = m.Load(); k.failed != nil {
		return
	}
	part := k.bodies.part(m.Body)
	k.size += shownSize(m.Props, part)
	payload, encoding := string(part), "string"
	if !utf8.Valid(part) {
		payload, encoding = base64.StdEncoding.EncodeToString(part), "base64"
	}
	p, err := showProperties(m.Props)
	if err != nil {
		k.failed = err
		return
	}
	var digest any
	if m.Digest != 0 {
		digest = fmt.Sprintf("%016x", m.Digest)
	}
	k.shown = append(k.shown, peeked{ref: m.Ref, state: m.State, object: object{
		{"id", strconv.FormatUint(uint64(m.Ref), 10)},
		{"state", m.State.String()},
		{"deadline", jsonobj.Instant(m.Deadline)},
		{"hold", jsonobj.Instant(m.Hold)},
		{"since", jsonobj.Instant(m.Enqueued)},
		{"deliveries", int(m.Returns)},
		{"redelivered", m.Flags&queue.Redelivered != 0},
		{"deaths", m.Deaths()},
		{"policy_digest", digest},
		{"consumer", nil},
		{"exchange", string(m.Exchange)},
		{"routing_key", string(m.Key)},
		{"properties", p},
		{"payload_bytes", len(m.Body)},
		{"payload", payload},
		{"payload_encoding", encoding},
	}})
}

// set replaces a member that is there.
func set(o object, name string, value any) {
	for i := range o {
		if o[i].Name() == name {
			o[i][1] = value
		}
	}
}

// findLeaving corrects the state of shown messages, from index from on, that wait to be dead-lettered.
func (k *peek) findLeaving(q *queue.Queue, from int) {
	taken := map[queue.Ref]*peeked{}
	for i := range k.shown[from:] {
		if m := &k.shown[from+i]; m.state == queue.MessageUnacked {
			taken[m.ref] = m
		}
	}
	if len(taken) == 0 {
		return
	}
	q.Departing(func(r queue.Ref) {
		if m := taken[r]; m != nil {
			m.state = queue.MessageLeaving
			set(m.object, "state", m.state.String())
		}
	})
	if k.hasState {
		k.shown = slices.DeleteFunc(k.shown, func(m peeked) bool { return m.state != k.state })
	}
}

func (k *peek) answer(c *request, stopped error) object {
	k.nameConsumers(c)
	list := make([]object, len(k.shown))
	for i := range k.shown {
		list[i] = k.shown[i].object
	}
	complete := k.complete || k.full() && k.failed == nil
	o := object{{"messages", list}, {"complete", complete && stopped == nil}, {"next", nil}}
	more := k.full() || !k.complete || k.byDeadline && len(k.list) == k.count
	if k.last != nil && more && stopped == nil {
		set(o, "next", k.last.text(k.byDeadline))
	}
	switch {
	case stopped != nil:
		o.Add("error", stopped.Error())
	case k.failed != nil:
		o.Add("error", k.failed.Error())
	}
	return o
}

// nameConsumers says which consumers have the unacknowledged messages.
func (k *peek) nameConsumers(c *request) {
	taken := map[queue.Ref]int{}
	for i := range k.shown {
		if k.shown[i].state == queue.MessageUnacked {
			taken[k.shown[i].ref] = i
		}
	}
	if len(taken) == 0 {
		return
	}
	for _, conn := range c.api.AMQP.OpenConns() {
		if conn.VHost != c.vhost.Name() {
			continue
		}
		for _, d := range conn.Session().Deliveries(k.mailbox) {
			if i, ok := taken[d.Ref]; ok {
				set(k.shown[i].object, "consumer", object{
					{"consumer_tag", jsonobj.OrNull(d.Consumer.Tag)},
					{"channel", channelName(conn.Name(), d.Channel)},
					{"connection", conn.Name()},
					{"delivery_tag", d.Tag},
				})
			}
		}
	}
}
