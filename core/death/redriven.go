package death

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// headerRedriven is a table with the number of redrives of a message, and the time of the last one.
const headerRedriven = "x-redriven"

// Redriver records redrives in the headers of messages. It caches the headers of the last message. It belongs to one
// goroutine; the zero value is ready to use.
type Redriver struct {
	headers amqp.RawTable // of the last message
	seconds int64
	known   bool
	table   amqp.RawTable // the headers after the change
}

// Append appends props to dst with the header x-redriven: {count, time}. An existing one is replaced, with its count increased. Time has
// a resolution of one second. Everything else is unchanged. An error means that props are invalid.
func (r *Redriver) Append(dst, props []byte, at hook.Instant) ([]byte, error) {
	idx, err := amqp.IndexProps(props)
	if err != nil {
		return dst, err
	}
	headers, seconds := idx.Headers(props), int64(at)/int64(time.Second)
	if !r.known || r.seconds != seconds || !bytes.Equal(r.headers, headers) {
		r.rewrite(headers, seconds)
	}
	return amqp.RewriteProps(dst, props, idx, amqp.PropEdit{Headers: r.table}), nil
}

func (r *Redriver) rewrite(headers amqp.RawTable, seconds int64) {
	r.headers, r.seconds, r.known = append(r.headers[:0], headers...), seconds, true
	b, count := r.table[:0], uint64(0)
	for f := range headers.All() {
		if string(f.Key) == headerRedriven {
			count = max(count, redrivenCount(f))
			continue
		}
		b = f.Append(b)
	}
	b = appendKey(b, headerRedriven, 'F')
	table := len(b)
	b = appendCount(append(b, 0, 0, 0, 0), count+1)
	b = appendKey(b, fieldTime, 'T')
	b = binary.BigEndian.AppendUint64(b, uint64(seconds))
	r.table = endLong(b, table)
}

// redrivenCount returns the count in a field x-redriven; 0 if the broker cannot have written the field.
func redrivenCount(f amqp.RawField) uint64 {
	if f.Type != 'F' {
		return 0
	}
	const most = 1 << 62
	count, ok := amqp.RawTable(f.Value).LookupRaw(fieldCount)
	if n, isInt := count.Int(); ok && count.Type == 'l' && isInt && n > 0 && n < most {
		return uint64(n)
	}
	return 0
}
