package death

import (
	"bytes"
	"encoding/binary"
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Recorder adds deaths to messages. It caches the encoded form of a [Death], and buffers. It belongs to one goroutine; the zero
// value must be prepared before use.
type Recorder struct {
	queue, reason, exchange string
	keys                    []byte // of the death, encoded as routing-keys
	seconds                 int64
	prepared                bool

	entry       []byte   // first entry of x-death, without original-expiration
	headers     [7]field // the broker's, sorted; [0] is x-death
	headerBytes []byte   // backs headers[1:]

	history       History
	clientHeaders []amqp.RawField // the publisher's headers
	deaths        []byte          // x-death, as written
	table         []byte          // all headers, as written

	memo headersMemo // the input from which table and history were made
}

// headersMemo is the input that determined the headers of the last message. The next message often has the same: properties mostly differ
// only in identifiers and times.
type headersMemo struct {
	valid      bool
	recorded   bool
	headers    amqp.RawTable
	expiration []byte
}

// matches reports whether the next message would get the same headers.
func (l *headersMemo) matches(headers amqp.RawTable, expiration []byte, recorded bool) bool {
	return l.valid && l.recorded == recorded && bytes.Equal(l.headers, headers) && bytes.Equal(l.expiration, expiration)
}

func (l *headersMemo) set(headers amqp.RawTable, expiration []byte, recorded bool) {
	l.headers, l.expiration = append(l.headers[:0], headers...), append(l.expiration[:0], expiration...)
	l.valid, l.recorded = true, recorded
}

// field is an encoded field of a table.
type field struct {
	key string
	raw []byte
}

// Prepare sets the death that later calls of Append record. d is not retained. A call that changes nothing is nearly free. Time
// has a resolution of one second.
func (r *Recorder) Prepare(d Death) {
	seconds := int64(d.At) / int64(time.Second)
	if r.prepared && seconds == r.seconds && d.Queue == r.queue && d.Reason.String() == r.reason &&
		string(d.Exchange) == r.exchange && equalKeys(r.keys, d.Keys) {
		return
	}
	r.queue, r.reason, r.seconds, r.prepared = d.Queue, d.Reason.String(), seconds, true
	r.memo.valid = false
	if string(d.Exchange) != r.exchange {
		r.exchange = string(d.Exchange)
	}
	r.keys = r.keys[:0]
	for _, k := range d.Keys {
		r.keys = appendText(append(r.keys, 'S'), k)
	}
	r.encodeEntry()
	r.encodeHeaders()
}

// equalKeys compares keys with an encoded array of long strings.
func equalKeys(encoded []byte, keys [][]byte) bool {
	for _, k := range keys {
		end := 5 + len(k)
		if len(encoded) < end || string(encoded[5:end]) != string(k) || binary.BigEndian.Uint32(encoded[1:]) != uint32(len(k)) {
			return false
		}
		encoded = encoded[end:]
	}
	return len(encoded) == 0
}

func (r *Recorder) encodeEntry() {
	b := appendCount(r.entry[:0], 1)
	b = appendTextField(b, fieldReason, r.reason)
	b = appendTextField(b, fieldQueue, r.queue)
	b = appendKey(b, fieldTime, 'T')
	b = binary.BigEndian.AppendUint64(b, uint64(r.seconds))
	b = appendTextField(b, fieldExchange, r.exchange)
	b = appendKey(b, fieldKeys, 'A')
	r.entry = appendText(b, r.keys)
}

func (r *Recorder) encodeHeaders() {
	texts := [...]struct{ key, value string }{
		{headerFirstExchange, r.exchange},
		{headerFirstQueue, r.queue},
		{headerFirstReason, r.reason},
		{headerLastExchange, r.exchange},
		{headerLastQueue, r.queue},
		{headerLastReason, r.reason},
	}
	b := r.headerBytes[:0]
	var ends [len(texts)]int
	for i, t := range texts {
		b = appendTextField(b, t.key, t.value)
		ends[i] = len(b)
	}
	start := 0
	for i, t := range texts {
		r.headers[i+1] = field{t.key, b[start:ends[i]]}
		start = ends[i]
	}
	r.headerBytes = b
}

// Append appends to dst the properties of a message that died as prepared: props with the death added to the headers, and
// without the expiration. Headers are sorted and unique; the broker's replace the publisher's of the same name. Everything
// else is unchanged. recorded means that an earlier Append wrote the x-death in props. An error means that props are invalid.
func (r *Recorder) Append(dst, props []byte, recorded bool) ([]byte, error) {
	idx, err := amqp.IndexProps(props)
	if err != nil {
		return dst, err
	}
	headers := idx.Headers(props)
	expiration, _ := idx.Expiration(props)
	if !r.memo.matches(headers, expiration, recorded) {
		r.memo.set(headers, expiration, recorded)
		r.rewrite(r.memo.headers, expiration, recorded)
	}
	return amqp.RewriteProps(dst, props, idx, amqp.PropEdit{Headers: r.table, DropExpiration: true}), nil
}

// rewrite writes the headers with the death added to r.table, and the deaths to r.history, which aliases headers. This death comes
// first: as a new entry of x-death, or as its existing entry with the count increased.
func (r *Recorder) rewrite(headers amqp.RawTable, expiration []byte, recorded bool) {
	r.history.reset(r.queue, r.reason)
	first := true
	if recorded {
		f, ok := headers.LookupRaw(headerDeaths)
		first = !ok || f.Type != 'A' || !r.history.read(f.Value)
	}
	b := appendKey(r.deaths[:0], headerDeaths, 'A')
	array := len(b)
	b = append(b, 0, 0, 0, 0)
	if same := r.history.remove(r.queue, r.reason); same != nil {
		b = appendRepeated(b, same)
	} else {
		b = r.appendEntry(b, expiration)
	}
	newest := len(b)
	for _, e := range r.history.earlier {
		if len(b)-newest+len(e.table) > maxHistory {
			break
		}
		b = appendText(append(b, 'F'), e.table)
	}
	r.deaths = endLong(b, array)
	r.headers[0] = field{headerDeaths, r.deaths}
	r.merge(headers, first)
}

// appendEntry appends a new entry of x-death, with its type octet.
func (r *Recorder) appendEntry(dst, expiration []byte) []byte {
	dst = append(dst, 'F', 0, 0, 0, 0)
	table := len(dst) - 4
	if expiration = decimal(expiration); len(expiration) > 0 {
		dst = appendTextField(dst, fieldExpiration, expiration)
	}
	dst = append(dst, r.entry...)
	return endLong(dst, table)
}

// appendRepeated appends an entry of x-death with its count increased by one.
func appendRepeated(dst []byte, entry amqp.RawTable) []byte {
	dst = append(dst, 'F', 0, 0, 0, 0)
	table := len(dst) - 4
	for f := range entry.All() {
		if string(f.Key) == fieldCount && f.Type == 'l' {
			dst = appendCount(dst, binary.BigEndian.Uint64(f.Value)+1)
			continue
		}
		dst = f.Append(dst)
	}
	return endLong(dst, table)
}

// merge writes the publisher's headers and the broker's to r.table, sorted by key. Of equal keys the broker's header wins, otherwise
// the publisher's first. x-first-death-* are written only for the first death.
func (r *Recorder) merge(headers amqp.RawTable, first bool) {
	own := [...]field{r.headers[0], r.headers[4], r.headers[5], r.headers[6]}
	rest := own[:]
	if first {
		rest = r.headers[:]
	}
	b := r.table[:0]
	r.sort(headers)
	var last []byte
	for i, f := range r.clientHeaders {
		for len(rest) > 0 && rest[0].key < string(f.Key) {
			b = append(b, rest[0].raw...)
			rest = rest[1:]
		}
		if len(rest) > 0 && rest[0].key == string(f.Key) || i > 0 && bytes.Equal(last, f.Key) {
			continue
		}
		b = f.Append(b)
		last = f.Key
	}
	for _, f := range rest {
		b = append(b, f.raw...)
	}
	clear(r.clientHeaders)
	r.table = b
}

// sort lists the publisher's headers in r.clientHeaders, sorted by key.
func (r *Recorder) sort(headers amqp.RawTable) {
	r.clientHeaders = r.clientHeaders[:0]
	for f := range headers.All() {
		r.clientHeaders = append(r.clientHeaders, f)
	}
	byKey := func(a, b amqp.RawField) int { return bytes.Compare(a.Key, b.Key) }
	if !slices.IsSortedFunc(r.clientHeaders, byKey) {
		slices.SortStableFunc(r.clientHeaders, byKey)
	}
}

// History returns the deaths of the last appended message, including this one. It is valid until the next Append or
// Prepare.
func (r *Recorder) History() *History { return &r.history }

// An entry of x-death on the wire, as an element of the array. The numbers are
// lengths; strings and tables are preceded by theirs in four octets.
//
//	'F' u32 | 19 original-expiration 'S' u32 .. | 5 count 'l' i64 | 6 reason 'S' u32 .. | 5 queue 'S' u32 .. |
//	        | 4 time 'T' u64 | 8 exchange 'S' u32 .. | 12 routing-keys 'A' u32 ('S' u32 ..)*

func appendKey(dst []byte, key string, kind byte) []byte {
	dst = append(dst, byte(len(key)))
	dst = append(dst, key...)
	return append(dst, kind)
}

func appendText[S ~string | ~[]byte](dst []byte, s S) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(s)))
	return append(dst, s...)
}

func appendTextField[S string | []byte](dst []byte, key string, value S) []byte {
	return appendText(appendKey(dst, key, 'S'), value)
}

func appendCount(dst []byte, n uint64) []byte {
	return binary.BigEndian.AppendUint64(appendKey(dst, fieldCount, 'l'), n)
}

// endLong stores the number of bytes after start+4 in the four octets at start.
func endLong(dst []byte, start int) []byte {
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	return dst
}

// decimal converts an expiration to the form in which RabbitMQ writes the parsed number: without a sign, because it cannot be
// negative, and without leading zeros.
func decimal(expiration []byte) []byte {
	for len(expiration) > 1 && (expiration[0] == '0' || expiration[0] == '+' || expiration[0] == '-') {
		expiration = expiration[1:]
	}
	return expiration
}

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
