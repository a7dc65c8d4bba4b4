package death

import (
	"bytes"
	"encoding/binary"
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
)

// Recorder records one death after another. It keeps what it encodes for a
// [Death] and the memory it works in; it belongs to one goroutine. The zero
// value must be prepared before it is used.
type Recorder struct {
	queue, reason, exchange string
	keys                    []byte // the value of routing-keys, encoded
	seconds                 int64
	ready                   bool

	entry []byte   // a first entry of x-death without original-expiration
	own   [7]field // the broker's headers, sorted; [0] is x-death
	bytes []byte   // what own[1:] are parts of

	history History
	client  []amqp.RawField // the publisher's headers
	deaths  []byte          // x-death being written
	scratch []byte          // the whole table being written

	last last // what scratch and history were made from
}

// last is what decides about the headers of a message. The next one is often the same in that: what differs in the properties
// are identifiers and times.
type last struct {
	valid      bool
	recorded   bool
	headers    amqp.RawTable
	expiration []byte
}

// is reports whether a message is the same in that.
func (l *last) is(headers amqp.RawTable, expiration []byte, recorded bool) bool {
	return l.valid && l.recorded == recorded && bytes.Equal(l.headers, headers) && bytes.Equal(l.expiration, expiration)
}

func (l *last) set(headers amqp.RawTable, expiration []byte, recorded bool) {
	l.headers, l.expiration = append(l.headers[:0], headers...), append(l.expiration[:0], expiration...)
	l.valid, l.recorded = true, recorded
}

// field is an encoded field of a table and its key.
type field struct {
	key string
	raw []byte
}

// Prepare sets the death that Append records from now on. Nothing of d is kept;
// a call that changes nothing costs next to nothing. Time counts in seconds.
func (r *Recorder) Prepare(d Death) {
	seconds := int64(d.At) / int64(time.Second)
	if r.ready && seconds == r.seconds && d.Queue == r.queue && d.Reason.String() == r.reason &&
		string(d.Exchange) == r.exchange && equalKeys(r.keys, d.Keys) {
		return
	}
	r.queue, r.reason, r.seconds, r.ready = d.Queue, d.Reason.String(), seconds, true
	r.last.valid = false
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

// equalKeys compares an encoded array of long strings.
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
	b := r.bytes[:0]
	var ends [len(texts)]int
	for i, t := range texts {
		b = appendTextField(b, t.key, t.value)
		ends[i] = len(b)
	}
	start := 0
	for i, t := range texts {
		r.own[i+1] = field{t.key, b[start:ends[i]]}
		start = ends[i]
	}
	r.bytes = b
}

// Append appends to dst the properties of a message that died as prepared: its
// own, props, with the death added to its headers and without its expiration.
// The headers come out sorted and each once, ours before the publisher's;
// everything else stays as it is. recorded says that x-death in props was put
// there by an earlier Append. An error means that props are no properties.
func (r *Recorder) Append(dst, props []byte, recorded bool) ([]byte, error) {
	idx, err := amqp.IndexProps(props)
	if err != nil {
		return dst, err
	}
	headers := idx.Headers(props)
	expiration, _ := idx.Expiration(props)
	if !r.last.is(headers, expiration, recorded) {
		r.last.set(headers, expiration, recorded)
		r.rewrite(r.last.headers, expiration, recorded)
	}
	return amqp.RewriteProps(dst, props, idx, amqp.PropEdit{Headers: r.scratch, DropExpiration: true}), nil
}

// rewrite writes to r.scratch the headers with the death added, and lists the deaths in r.history, which refers to headers.
func (r *Recorder) rewrite(headers amqp.RawTable, expiration []byte, recorded bool) {
	r.history.begin(r.queue, r.reason)
	first := !recorded || !r.again(headers, expiration)
	if first {
		r.deaths = r.appendEntry(appendKey(r.deaths[:0], headerDeaths, 'A'), expiration)
	}
	r.own[0] = field{headerDeaths, r.deaths}
	r.merge(headers, first)
}

// appendEntry appends, to a field that wants an array, a first entry of x-death.
func (r *Recorder) appendEntry(dst, expiration []byte) []byte {
	array := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = r.appendTable(dst, expiration)
	return endLong(dst, array)
}

// appendTable appends the entry of x-death for a first death, type octet and all.
func (r *Recorder) appendTable(dst, expiration []byte) []byte {
	dst = append(dst, 'F', 0, 0, 0, 0)
	table := len(dst) - 4
	if expiration = decimal(expiration); len(expiration) > 0 {
		dst = appendTextField(dst, fieldExpiration, expiration)
	}
	dst = append(dst, r.entry...)
	return endLong(dst, table)
}

// again writes to r.deaths the x-death of a message that died before: this death
// comes first, as a new entry or with the entry it already has counted up. It
// reports false when there is no history to go on.
func (r *Recorder) again(headers amqp.RawTable, expiration []byte) bool {
	f, ok := headers.LookupRaw(headerDeaths)
	if !ok || f.Type != 'A' || !r.history.read(f.Value) {
		return false
	}
	b := appendKey(r.deaths[:0], headerDeaths, 'A')
	array := len(b)
	b = append(b, 0, 0, 0, 0)
	same := r.history.take(r.queue, r.reason)
	if same == nil {
		b = r.appendTable(b, expiration)
	} else {
		b = appendRepeated(b, same)
	}
	newest := len(b)
	for _, e := range r.history.earlier {
		if len(b)-newest+len(e.table) > maxHistory {
			break
		}
		b = appendText(append(b, 'F'), e.table)
	}
	r.deaths = endLong(b, array)
	return true
}

// appendRepeated appends an entry of x-death with one more death counted.
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

// merge writes to r.scratch the publisher's headers and the broker's, sorted and
// each once, the broker's before the publisher's and those before others of the
// same key. What x-first-death-* say is never written again.
func (r *Recorder) merge(headers amqp.RawTable, first bool) {
	own := [...]field{r.own[0], r.own[4], r.own[5], r.own[6]}
	rest := own[:]
	if first {
		rest = r.own[:]
	}
	b := r.scratch[:0]
	r.sort(headers)
	var last []byte
	for i, f := range r.client {
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
	clear(r.client)
	r.scratch = b
}

// sort lists the publisher's headers in r.client, ordered by key.
func (r *Recorder) sort(headers amqp.RawTable) {
	r.client = r.client[:0]
	for f := range headers.All() {
		r.client = append(r.client, f)
	}
	byKey := func(a, b amqp.RawField) int { return bytes.Compare(a.Key, b.Key) }
	if !slices.IsSortedFunc(r.client, byKey) {
		slices.SortStableFunc(r.client, byKey)
	}
}

// History returns the deaths of the message that was appended last, this one
// included. It is good until the next Append or Prepare.
func (r *Recorder) History() *History { return &r.history }
