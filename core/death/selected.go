package death

import (
	"slices"

	"github.com/curfewmq/curfew/core/amqp"
)

// HeaderCC and HeaderBCC are the headers with additional routing keys [RabbitMQ: sender-selected.html].
const (
	HeaderCC  = "CC"
	HeaderBCC = "BCC"
)

// SenderSelected returns the additional routing keys in a message's headers; nil for a missing header. Elements that
// are not long strings are ignored. The error is an [*amqp.Error] for a header that is not an array.
func SenderSelected(headers amqp.RawTable) (cc, bcc []string, err error) {
	var found [2]amqp.RawField
	if !headers.Find(senderSelected, found[:]) {
		return nil, nil, nil
	}
	return SenderSelectedIn(&found[0], &found[1])
}

var senderSelected = amqp.NewNames(HeaderCC, HeaderBCC)

// SenderSelectedIn is SenderSelected for headers that were looked up before; the zero value means a missing header.
func SenderSelectedIn(ccField, bccField *amqp.RawField) (cc, bcc []string, err error) {
	if cc, err = selected(ccField); err != nil {
		return nil, nil, err
	}
	if bcc, err = selected(bccField); err != nil {
		return nil, nil, err
	}
	return cc, bcc, nil
}

func selected(f *amqp.RawField) ([]string, error) {
	if f.Key == nil {
		return nil, nil
	}
	v, err := f.Decode()
	if err != nil {
		return nil, err
	}
	array, ok := v.(amqp.Array)
	if !ok {
		return nil, amqp.Errorf(amqp.ReplyPreconditionFailed, "invalid message: {unacceptable_type_in_header,%q,%s}", f.Key, amqp.TypeName(v))
	}
	keys := make([]string, 0, len(array))
	for _, v := range array {
		if s, ok := v.(string); ok {
			keys = append(keys, s)
		}
	}
	return keys, nil
}

// StripBCC appends to dst props without the header BCC, which consumers must not see. The headers table stays even if it
// becomes empty. idx is from [amqp.ScanProps].
func StripBCC(dst, props []byte, idx amqp.PropIndex) []byte {
	kept := amqp.RawTable{}
	for f := range idx.Headers(props).All() {
		if string(f.Key) != HeaderBCC {
			kept = f.Append(kept)
		}
	}
	edit := amqp.PropEdit{Headers: kept}
	if !idx.Has(amqp.PropHeaders) {
		edit.Headers = nil
	}
	return amqp.RewriteProps(dst, props, idx, edit)
}

// Keys appends to dst the routing keys for x-death: the message's own, then those in CC. As in RabbitMQ, each key in bcc
// removes the first equal key from the list of all three.
func Keys(dst [][]byte, key []byte, cc, bcc []string) [][]byte {
	start := len(dst)
	dst = append(dst, key)
	for _, keys := range [...][]string{cc, bcc} {
		for _, k := range keys {
			dst = append(dst, []byte(k))
		}
	}
	if len(bcc) == 0 {
		return dst
	}
	blind := make(map[string]int, len(bcc)) // how many of each key are to be removed: there may be thousands of keys
	for _, k := range bcc {
		blind[k]++
	}
	shown := slices.DeleteFunc(dst[start:], func(b []byte) bool {
		n := blind[string(b)]
		if n > 0 {
			blind[string(b)] = n - 1
		}
		return n > 0
	})
	return dst[:start+len(shown)]
}
