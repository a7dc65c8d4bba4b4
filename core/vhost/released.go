package vhost

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/sdk/hook"
)

// sendReleased adds a message that an exchange held to the batches of its queues. The message is as it was published, except for one
// header.
func (r *deadLetterRun) sendReleased(d *queue.DeadLetter, idx *amqp.PropIndex) {
	m := queue.Message{
		Routing: r.route.routing, Seq: d.Seq, Props: r.block.commit(r.props),
		Flags: d.Flags & (queue.Persistent | queue.Traced | queue.HasDeathHistory), Released: true,
	}
	if idx.Has(amqp.PropHeaders) {
		m.Flags |= queue.HasHeaders
	}
	if priority, ok := idx.Priority(d.Props); ok {
		m.Priority, m.Flags = priority, m.Flags|queue.HasPriority
	}
	if raw, ok := idx.Expiration(d.Props); ok { // counts from now
		m.Expiration, _ = r.topology.chain.CheckExpiration(raw) // checked when it was published
	}
	d.Outcome = telemetry.DeadLettered
	r.slots = append(r.slots[:0], r.route.slots...)
	r.add(d, m)
}

// appendReleased appends properties to dst, with the number in a header negated. A header without a positive number stays.
func appendReleased(dst, props []byte, idx *amqp.PropIndex, negates string) []byte {
	headers := idx.Headers(props)
	if negates == "" || len(headers) == 0 {
		return append(dst, props...)
	}
	f, ok := headers.LookupRaw(negates)
	if !ok {
		return append(dst, props...)
	}
	n, inPlace, ok := positive(f)
	switch {
	case !ok:
		return append(dst, props...)
	case inPlace:
		at := len(dst) + int(uintptr(unsafe.Pointer(unsafe.SliceData(f.Value)))-uintptr(unsafe.Pointer(unsafe.SliceData(props))))
		dst = append(dst, props...)
		putInt(dst[at:at+len(f.Value)], -n)
		return dst
	}
	return amqp.RewriteProps(dst, props, *idx, amqp.PropEdit{Headers: replaced(headers, f, -n)})
}

// positive returns the positive number of a field. inPlace means that its type has negative ones, too.
func positive(f amqp.RawField) (n int64, inPlace, ok bool) {
	switch f.Type {
	case 'b', 's', 'I', 'l', 'L':
		n, ok = f.Int()
		return n, true, ok && n > 0
	case 'B', 'u', 'i':
		n, ok = f.Int()
	case 'f', 'd':
		x, _ := f.Float()
		if x >= math.MaxInt64 || math.IsNaN(x) {
			return 0, false, false
		}
		n, ok = int64(x), true
	case 'S', 'x':
		text, _ := f.Text()
		n, ok = hook.WholeText(text)
	}
	return n, false, ok && n > 0
}

// putInt writes a signed number of the length of b.
func putInt(b []byte, n int64) {
	switch len(b) {
	case 1:
		b[0] = byte(n)
	case 2:
		binary.BigEndian.PutUint16(b, uint16(n))
	case 4:
		binary.BigEndian.PutUint32(b, uint32(n))
	default:
		binary.BigEndian.PutUint64(b, uint64(n))
	}
}

// replaced returns headers in which a field has a signed number of 64 bits.
func replaced(headers amqp.RawTable, was amqp.RawField, n int64) amqp.RawTable {
	number := binary.BigEndian.AppendUint64(nil, uint64(n))
	all := make(amqp.RawTable, 0, len(headers)+len(number))
	done := false
	for f := range headers.All() {
		if !done && string(f.Key) == string(was.Key) {
			f, done = amqp.RawField{Key: f.Key, Type: 'l', Value: number}, true
		}
		all = f.Append(all)
	}
	return all
}
