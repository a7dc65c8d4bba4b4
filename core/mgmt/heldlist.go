package mgmt

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"net/http"
	"runtime"
	"slices"
	"strconv"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/death"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/parts"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// duePosition is a position among held messages, in the order of their release: an instant, and a reference that orders messages with the
// same instant. It stays valid when messages are released, cancelled or added.
type duePosition struct {
	at  hook.Instant
	ref queue.Ref
}

// next returns the duePosition right behind p.
func (p duePosition) next() duePosition {
	if p.ref == math.MaxUint64 {
		return duePosition{p.at + 1, 0}
	}
	return duePosition{p.at, p.ref + 1}
}

const positionSize = 16

// cursor returns the duePosition as clients have it.
func (p duePosition) cursor() string {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, positionSize), uint64(p.at))
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(b, uint64(p.ref)))
}

// parseCursor reads a cursor; "" is the first duePosition.
func parseCursor(s string) (duePosition, error) {
	if s == "" {
		return duePosition{}, nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s) // which overlooks line breaks: a cursor has none
	if err != nil || len(b) != positionSize || len(s) != base64.RawURLEncoding.EncodedLen(positionSize) || b[0] > math.MaxInt8 {
		return duePosition{}, badRequest("after: %.40q is not the next of a list", s)
	}
	return duePosition{hook.Instant(binary.BigEndian.Uint64(b)), queue.Ref(binary.BigEndian.Uint64(b[8:]))}, nil
}

// heldQuery says which held messages a client wants to see.
type heldQuery struct {
	from       duePosition
	count      int
	messageID  string
	anyMessage bool // messageID is not asked for
	scheduleID string
	byID       bool // scheduleID is asked for
}

var heldParameters = []string{"order", "after", "count", "message_id", "schedule_id", "columns"}

func readHeldQuery(c *request, of *holder) (h heldQuery, err error) {
	q := c.query.raw
	if err := onlyParameters(q, heldParameters); err != nil {
		return h, err
	}
	if q.Has("schedule_id") && !of.isExchange() {
		return h, badRequest("schedule_id: messages that a queue holds have none; message_id selects them")
	}
	if order := q.Get("order"); order != "" && order != "due" {
		return h, badRequest("order: %.40q is unknown; there is due", order)
	}
	h = heldQuery{count: defaultPage, messageID: q.Get("message_id"), anyMessage: !q.Has("message_id")}
	h.scheduleID, h.byID = q.Get("schedule_id"), q.Has("schedule_id")
	if q.Has("count") {
		if h.count, err = strconv.Atoi(q.Get("count")); err != nil || h.count < 1 || h.count > maxPage {
			return h, badRequest("count: %.40q is not a number from 1 to %d", q.Get("count"), maxPage)
		}
	}
	h.from, err = parseCursor(q.Get("after"))
	return h, err
}

type heldPage struct {
	items    []object
	total    int         // how many messages are held
	next     duePosition // where the next page begins; with more
	more     bool        // there may be a next page
	complete bool        // the search did not end because it took too long
}

func (a *heldHandlers) listHeld(c *request, h *holder) error {
	q, err := readHeldQuery(c, h)
	if err != nil {
		return err
	}
	p, err := a.findHeld(h, &q)
	if err != nil {
		return err
	}
	var next any
	if p.more {
		next = p.next.cursor()
	}
	for i, o := range p.items {
		p.items[i] = o.Pick(c.query.columns)
	}
	writeObject(c.w, http.StatusOK, object{
		{"items", p.items}, {"item_count", len(p.items)}, {"total_count", p.total}, {"next", next}, {"complete", p.complete},
	})
	return nil
}

// findHeld collects a page, until it is full or the search takes too long. It works in parts, so that the queue can do other things between
// them.
func (a *heldHandlers) findHeld(h *holder, q *heldQuery) (heldPage, error) {
	p := heldPage{items: []object{}, next: q.from, more: true, complete: true}
	for began := a.clock(); p.more && len(p.items) < q.count; runtime.Gosched() {
		if a.clock().Sub(began) > scanTime {
			p.complete = false
			break
		}
		before := p
		err := h.look(func(queue *queue.Queue) {
			p = before // if the body of a message could not be read, this runs again
			p.scan(queue, h, q)
		})
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

// scan adds messages of one part.
func (p *heldPage) scan(queue *queue.Queue, h *holder, q *heldQuery) {
	p.total, p.more = queue.Stats().Held, false
	if q.byID {
		p.addByID(queue, h, q)
		return
	}
	seen := 0
	queue.HeldFrom(p.next.at, p.next.ref, func(m *heldMessage) bool {
		if seen++; seen > scanPart || len(p.items) == q.count {
			p.more = true
			return false
		}
		p.next = duePosition{m.Until, m.Ref}.next()
		if id := messageID(m.Props); q.anyMessage || id == q.messageID {
			p.items = append(p.items, h.summary(queue, m, id))
		}
		return true
	})
}

// addByID adds the message with the schedule id that is asked for, if it is behind the cursor.
func (p *heldPage) addByID(queue *queue.Queue, h *holder, q *heldQuery) {
	m := queue.HeldByID([]byte(q.scheduleID))
	if m == nil || m.Until < q.from.at || m.Until == q.from.at && m.Ref < q.from.ref {
		return
	}
	if id := messageID(m.Props); q.anyMessage || id == q.messageID {
		p.items = append(p.items, h.summary(queue, m, id))
	}
}

type heldMessage = queue.Held

func messageID(props []byte) string {
	id, _ := amqp.MessageID(props)
	return string(id)
}

// summary returns a message as an item of a list.
func (h *holder) summary(q *queue.Queue, m *heldMessage, id string) object {
	o := object{
		{"id", strconv.FormatUint(uint64(m.Ref), 10)},
		{"deliver_at", jsonobj.Instant(m.Until)},
		{"deadline", jsonobj.Instant(m.Deadline)},
		{"enqueued", jsonobj.Instant(m.Enqueued)},
		{"exchange", string(m.Exchange)},
		{"routing_key", string(m.Key)},
		{"message_id", jsonobj.OrNull(id)},
		{"payload_bytes", len(m.Body)},
		{"redelivered", m.Flags&queue.Redelivered != 0},
		{"returns", int(m.Returns)},
	}
	if h.isExchange() {
		o.Add("schedule_id", jsonobj.OrNull(string(q.ScheduleID(m))))
	}
	return o
}

// shownPayload is how many bytes of a body are shown unless a client asks for more or less.
const shownPayload = 50_000

// oneHeld shows one message, with its properties and a part of its body.
func oneHeld(c *request, h *holder) error {
	ref, err := heldRef(c)
	if err != nil {
		return err
	}
	f := fetching{truncate: shownPayload}
	if t := c.query.raw.Get("truncate"); t != "" {
		if f.truncate, err = strconv.Atoi(t); err != nil || f.truncate < 0 || f.truncate > maxFetched {
			return badRequest("truncate: %.40q is not a number of bytes from 0 to %d", t, maxFetched)
		}
	}
	var o object
	var problem error
	err = h.look(func(queue *queue.Queue) {
		o = nil
		if m := queue.HeldMessage(ref); m != nil {
			o, problem = h.describe(queue, m, &f)
		}
	})
	switch {
	case err != nil:
		return err
	case problem != nil:
		return problem
	case o == nil:
		return errNotFound
	}
	return c.reply(o)
}

func (h *holder) describe(q *queue.Queue, m *heldMessage, f *fetching) (object, error) {
	properties, err := showProperties(m.Props)
	if err != nil {
		return nil, err
	}
	payload, encoding := f.payload(m.Body)
	o := append(
		h.summary(q, m, messageID(m.Props)), member{"properties", properties}, member{"payload", payload}, member{"payload_encoding", encoding},
	)
	if h.isExchange() {
		o.Add("queues", h.leads(m))
	}
	return o, nil
}

// leads returns the names of the queues that the exchange would route a message to now.
func (h *holder) leads(m *heldMessage) []string {
	var headers amqp.RawTable
	if x, err := amqp.IndexProps(m.Props); err == nil { // it was checked when it was published
		headers = x.Headers(m.Props)
	}
	cc, _, _ := death.SenderSelected(headers)
	names := h.vhost.Leads(h.what.Name, &parts.Message{Key: string(m.Key), More: slices.Concat(cc, m.BCC), Props: m.Props, Body: m.Body})
	if names == nil {
		return []string{}
	}
	return names
}
