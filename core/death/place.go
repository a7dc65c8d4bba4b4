package death

import "github.com/curfewmq/curfew/core/amqp"

// Place is a place where a message died: an entry of x-death. Its slices alias the headers.
type Place struct {
	Queue, Reason []byte
	Exchange, Key []byte // exchange and key with which it had been published to the queue
}

// Latest returns the place of a message's last death; false if the headers do not contain it. The headers must be the broker's own.
func Latest(headers amqp.RawTable) (p Place, ok bool) {
	deaths, ok := entriesOf(headers)
	if !ok {
		return Place{}, false
	}
	table, _, ok := splitTable(deaths)
	return placeOf(table), ok
}

// First returns the place of a message's first death. It returns false if the headers do not contain it, or if x-death has
// become too long since to keep that entry. The headers must be the broker's own.
func First(headers amqp.RawTable) (p Place, ok bool) {
	deaths, ok := entriesOf(headers)
	queue, known := headers.LookupBytes(headerFirstQueue)
	reason, _ := headers.LookupBytes(headerFirstReason)
	if !ok || !known {
		return Place{}, false
	}
	for len(deaths) > 0 {
		table, rest, ok := splitTable(deaths)
		if !ok {
			break
		}
		if p = placeOf(table); string(p.Queue) == string(queue) && string(p.Reason) == string(reason) {
			return p, true
		}
		deaths = rest
	}
	return Place{}, false
}

func entriesOf(headers amqp.RawTable) ([]byte, bool) {
	f, ok := headers.LookupRaw(headerDeaths)
	return f.Value, ok && f.Type == 'A' && len(f.Value) > 0
}

// placeOf reads an entry of x-death. The first of several routing keys is the message's own.
func placeOf(entry amqp.RawTable) (p Place) {
	p.Queue, _ = entry.LookupBytes(fieldQueue)
	p.Reason, _ = entry.LookupBytes(fieldReason)
	p.Exchange, _ = entry.LookupBytes(fieldExchange)
	keys, ok := entry.LookupRaw(fieldKeys)
	if ok && keys.Type == 'A' && len(keys.Value) >= longHeader && keys.Value[0] == 'S' {
		p.Key = longText(keys.Value)
	}
	return p
}

// longHeader is the size of a long string's type and length, as an element of an array.
const longHeader = 5

// longText returns the first element of an array; it must be a long string.
func longText(array []byte) []byte {
	size := int(array[1])<<24 | int(array[2])<<16 | int(array[3])<<8 | int(array[4])
	return array[longHeader:min(longHeader+size, len(array))]
}
