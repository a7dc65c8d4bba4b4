// Package parts shows messages to plugins: their parts, properties and headers, read on demand.
package parts

import (
	"strconv"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Message is one message on its way through exchanges. Every index of its [hook.Source]
// means this message. Byte slices are not copied, and belong to the caller.
type Message struct {
	Exchange string // to which the message was published
	Key      string
	More     []string // further routing keys, of its CC and BCC headers
	Props    []byte
	Index    *amqp.PropIndex // of Props; nil means that it is made when it is needed
	Load     func() []byte   // returns the properties of a message without Props, when they are needed; nil means that it has none
	Body     []byte
	Now      hook.Instant // 0 means that the broker's clock is read when a plugin is asked

	// Published means that a client published the message: if a schedule refuses it, the
	// client gets an error.
	Published bool
	// Mandatory means that the publisher gets the message back if no queue gets it.
	Mandatory bool
	// Waits means that the publisher wants the message held, by the exchange or by its
	// queues.
	Waits bool
	// Released names the exchange that held the message until now: no exchange holds it
	// again on its way, and that exchange's filters do not see it twice. "" means none.
	Released string

	Admitted bool // filters admitted the message before: they are not asked again, and routers get hook.Publishing.Again

	// Passed is set when filters, or an exchange of a volatile type, have admitted the
	// message.
	Passed bool
	// Cancels is set when the message cancels one that an exchange holds.
	Cancels bool
	// Passes is set when an exchange routes the message at once, and the message also
	// replaces one with the same identity that the exchange holds. Then the exchange's
	// schedule is among the queues.
	Passes bool
	// Held is set when an exchange holds the message.
	Held bool
	// Hold is set to the instant at which the exchange will release the message, if the
	// message has no identity: then the exchange's plugin need not be asked again. Of
	// several exchanges the last one sets it.
	Hold hook.Instant
	// HeldFirst is set when the exchange to which a client published the message holds it,
	// and only the exchange's schedule decided that.
	HeldFirst bool
	// BodyRead is set when the body was read.
	BodyRead bool

	own    amqp.PropIndex // of Props, if Index was nil
	digits Digits
}

var _ hook.Source = (*Message)(nil)

// load makes sure that Props and Index are set.
func (m *Message) load() {
	if m.Index != nil {
		return
	}
	if m.Props == nil && m.Load != nil {
		m.Props = m.Load()
	}
	m.own, _ = amqp.IndexProps(m.Props) // invalid ones count as none; they were checked before they were stored
	m.Index = &m.own
}

// Headers returns the headers; nil if there are none.
func (m *Message) Headers() amqp.RawTable {
	m.load()
	return m.Index.Headers(m.Props)
}

// Part implements [hook.Source].
func (m *Message) Part(_ int, p hook.Part) []byte {
	switch p {
	case hook.PartExchange:
		return amqp.BytesOf(m.Exchange)
	case hook.PartRoutingKey:
		return amqp.BytesOf(m.Key)
	case hook.PartBody:
		m.BodyRead = true
		return m.Body
	default:
		m.load()
		return Property(m.Props, m.Index, p, &m.digits)
	}
}

// Header implements [hook.Source].
func (m *Message) Header(_ int, name string) (any, bool) { return Header(m.Headers(), name) }

// HeaderInt implements [hook.Source].
func (m *Message) HeaderInt(_ int, name string) (int64, bool) { return HeaderInt(m.Headers(), name) }

// HeaderText implements [hook.Source].
func (m *Message) HeaderText(_ int, name string) ([]byte, bool) {
	return HeaderText(m.Headers(), name)
}

// Deaths implements [hook.Source]. Exchanges do not ask for it.
func (*Message) Deaths(int) int { return 0 }

// Digits keeps the text of numbers that callbacks read. The zero value is empty.
type Digits struct{ text []byte }

// reset makes all text invalid. Callbacks must have returned.
func (d *Digits) reset() { d.text = d.text[:0] }

// of returns n in decimal. Earlier results stay valid.
func (d *Digits) of(n uint64) []byte {
	const longest = 20
	if cap(d.text)-len(d.text) < longest {
		d.text = make([]byte, 0, 8*longest)
	}
	start := len(d.text)
	d.text = strconv.AppendUint(d.text, n, 10)
	return d.text[start:len(d.text):len(d.text)]
}

// Reset empties m, and keeps its memory for reuse.
func (m *Message) Reset() {
	m.digits.reset()
	*m = Message{digits: m.digits}
}

// Property returns the property that p names; nil if there is none, or p names no property.
// The text of numbers is in digits.
func Property(props []byte, x *amqp.PropIndex, p hook.Part, digits *Digits) []byte {
	var b []byte
	switch p {
	case hook.PartMessageID:
		b, _ = x.MessageID(props)
	case hook.PartCorrelationID:
		b, _ = x.CorrelationID(props)
	case hook.PartType:
		b, _ = x.Type(props)
	case hook.PartAppID:
		b, _ = x.AppID(props)
	case hook.PartUserID:
		b, _ = x.UserID(props)
	case hook.PartExpiration:
		b, _ = x.Expiration(props)
	case hook.PartTimestamp:
		if seconds, ok := x.Timestamp(props); ok {
			b = digits.of(seconds)
		}
	case hook.PartHeaders:
		b = x.Headers(props)
	}
	return b
}

// Header decodes a header, and reports whether there is one.
func Header(headers amqp.RawTable, name string) (any, bool) {
	v, ok, err := headers.Lookup(name)
	if err != nil {
		return nil, false
	}
	return v, ok
}

// HeaderInt returns a header that is a number, by the rules of [hook.Message.HeaderInt]. It does not allocate.
func HeaderInt(headers amqp.RawTable, name string) (int64, bool) {
	f, ok := headers.LookupRaw(name)
	if !ok {
		return 0, false
	}
	if n, ok := f.Int(); ok {
		return n, true
	}
	if x, ok := f.Float(); ok {
		return hook.WholeFloat(x)
	}
	b, _ := f.Text()
	return hook.WholeText(b)
}

// HeaderNumber is HeaderInt without booleans and timestamps, which are no numbers where the broker itself expects one.
func HeaderNumber(headers amqp.RawTable, name string) (int64, bool) {
	if f, ok := headers.LookupRaw(name); !ok || f.Type == 't' || f.Type == 'T' {
		return 0, false
	}
	return HeaderInt(headers, name)
}

// HeaderText returns a header that is a string or a binary. It does not allocate.
func HeaderText(headers amqp.RawTable, name string) ([]byte, bool) {
	f, ok := headers.LookupRaw(name)
	if !ok {
		return nil, false
	}
	return f.Text()
}
