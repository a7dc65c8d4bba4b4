package amqp

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// Property is a content property of class basic: one of the Prop constants.
type Property uint8

type propKind uint8

const (
	kindShortstr propKind = iota
	kindTable
	kindOctet
	kindTimestamp
)

// String returns the property's name in the protocol.
func (p Property) String() string { return propNames[p] }

// Flag returns the property's bit in the flag word at the start of the properties.
func (p Property) Flag() uint16 { return 1 << (15 - p) }

// unusedFlags are the bits without a property in class basic. The lowest one would announce a second flag word, with properties of
// unknown types [AMQP 4.2.6.1].
const unusedFlags uint16 = 1<<(16-propCount) - 1

// PropIndex has the position of each property in the raw properties that it was made from;
// its methods take the same raw properties. It has no pointers. The zero value has no
// properties.
type PropIndex struct {
	flags uint16
	size  uint32            // of the raw properties
	off   [propCount]uint32 // start of each property that is present; it ends where the next one begins
}

// ScanProps checks raw properties completely, flag word and values, and finds each of them. It does not allocate.
func ScanProps(props []byte) (x PropIndex, err error) {
	if err := x.scan(props, true); err != nil {
		return PropIndex{}, err
	}
	return x, nil
}

// IndexProps is ScanProps for properties that were checked before: it does not check the headers.
func IndexProps(props []byte) (x PropIndex, err error) {
	if err := x.scan(props, false); err != nil {
		return PropIndex{}, err
	}
	return x, nil
}

// scan finds the properties, and checks the fields of the headers if deep is set.
func (x *PropIndex) scan(props []byte, deep bool) *Error {
	if len(props) < 2 {
		return Errorf(ReplySyntaxError, "properties of %d octets: at least 2 expected", len(props))
	}
	x.flags, x.size = be16(props), uint32(len(props))
	if x.flags&unusedFlags != 0 {
		return Errorf(ReplySyntaxError, "property flags %#04x: the lowest %d bits mean nothing", x.flags, 16-propCount)
	}
	at := 2
	for p := x.next(0); p < propCount; p = x.next(p + 1) {
		n, err := propSize(propKinds[p], props[at:], deep)
		if err != nil {
			err.Text = p.String() + ": " + err.Text
			return err
		}
		x.off[p] = uint32(at)
		at += n
	}
	if at != len(props) {
		return Errorf(ReplySyntaxError, "%d octets after the last property", len(props)-at)
	}
	return nil
}

// propSize returns the size of the value of this kind at the start of b. It checks the fields of a table if deep is set.
func propSize(kind propKind, b []byte, deep bool) (int, *Error) {
	size := 1
	switch kind {
	case kindTable:
		table, n, err := cutLongTable(b)
		if err == nil && deep {
			err = checkTable(table, 1)
		}
		return n, err
	case kindTimestamp:
		size = 8
	case kindShortstr:
		if len(b) > 0 {
			size += int(b[0])
		}
	}
	if size > len(b) {
		return 0, Errorf(ReplySyntaxError, "%d octets needed, %d left", size, len(b))
	}
	return size, nil
}

// Has reports whether the property is present.
func (x *PropIndex) Has(p Property) bool { return x.flags&p.Flag() != 0 }

// next returns the first present property from p on; propCount or more if there is none.
func (x *PropIndex) next(p Property) Property {
	return p + Property(bits.LeadingZeros16(x.flags<<p))
}

// start returns where p begins, or would begin if it were present.
func (x *PropIndex) start(p Property) uint32 {
	if p = x.next(p); p < propCount {
		return x.off[p]
	}
	return x.size
}

// value returns the bytes of p; nil if p is absent. Appending to the result does not overwrite the bytes after it.
func (x *PropIndex) value(raw []byte, p Property) []byte {
	end := x.start(p + 1)
	return raw[x.start(p):end:end]
}

func (x *PropIndex) shortstr(raw []byte, p Property) ([]byte, bool) {
	if !x.Has(p) {
		return nil, false
	}
	return x.value(raw, p)[1:], true
}

func (x *PropIndex) octet(raw []byte, p Property) (byte, bool) {
	if !x.Has(p) {
		return 0, false
	}
	return raw[x.off[p]], true
}

// The accessors below return a property and whether it is present. Strings and tables alias raw.

// Headers returns the headers table; nil if there is none.
func (x *PropIndex) Headers(raw []byte) RawTable {
	if !x.Has(PropHeaders) {
		return nil
	}
	return RawTable(x.value(raw, PropHeaders)[4:])
}

// Persistent reports whether the delivery mode is 2. All other modes are transient, as in RabbitMQ since 3.13, which refuses none.
func (x *PropIndex) Persistent(raw []byte) bool {
	mode, _ := x.octet(raw, PropDeliveryMode)
	return mode == 2
}

// Priority is the message's priority.
func (x *PropIndex) Priority(raw []byte) (byte, bool) { return x.octet(raw, PropPriority) }

// CorrelationID is the application's correlation identifier.
func (x *PropIndex) CorrelationID(raw []byte) ([]byte, bool) {
	return x.shortstr(raw, PropCorrelationID)
}

// ReplyTo is the address for an answer.
func (x *PropIndex) ReplyTo(raw []byte) ([]byte, bool) { return x.shortstr(raw, PropReplyTo) }

// Expiration is the message's time to live as sent by the publisher: milliseconds in decimal, if it is valid.
func (x *PropIndex) Expiration(raw []byte) ([]byte, bool) { return x.shortstr(raw, PropExpiration) }

// MessageID is the application's message identifier.
func (x *PropIndex) MessageID(raw []byte) ([]byte, bool) { return x.shortstr(raw, PropMessageID) }

// Timestamp is the application's time of the message in seconds since 1970.
func (x *PropIndex) Timestamp(raw []byte) (uint64, bool) {
	if !x.Has(PropTimestamp) {
		return 0, false
	}
	return be64(x.value(raw, PropTimestamp)), true
}

// Type is the application's name for the kind of message.
func (x *PropIndex) Type(raw []byte) ([]byte, bool) { return x.shortstr(raw, PropType) }

// UserID is the publishing user, if the publisher names it.
func (x *PropIndex) UserID(raw []byte) ([]byte, bool) { return x.shortstr(raw, PropUserID) }

// AppID is the application that published.
func (x *PropIndex) AppID(raw []byte) ([]byte, bool) { return x.shortstr(raw, PropAppID) }

// Has reports whether the property is present.
func (p *Properties) Has(prop Property) bool { return p.Flags&prop.Flag() != 0 }

// Set marks properties as present. Append skips fields whose property is not marked.
func (p *Properties) Set(props ...Property) {
	for _, prop := range props {
		p.Flags |= prop.Flag()
	}
}

// ParseProperties decodes raw properties. The result does not alias raw. Its errors are those of [ScanProps].
func ParseProperties(raw []byte) (Properties, error) {
	x, err := ScanProps(raw)
	if err != nil {
		return Properties{}, err
	}
	p := Properties{Flags: x.flags}
	p.values(&codec{reading: true, buf: raw[2:]})
	return p, nil
}

// Append appends the flag word and the values of the present properties.
func (p Properties) Append(dst []byte) []byte {
	p.Flags &^= unusedFlags
	c := codec{dst: binary.BigEndian.AppendUint16(dst, p.Flags)}
	p.values(&c)
	return c.dst
}

// beforeMessageID has the sizes of the properties that precede the message id, in order: 0 is a short string, -1 a table.
var beforeMessageID = [PropMessageID]int{
	PropHeaders: -1, PropDeliveryMode: 1, PropPriority: 1,
}

// MessageID returns the message id of raw properties that were checked before. It is cheaper than [ScanProps], especially with long
// headers.
func MessageID(props []byte) (id []byte, ok bool) {
	at := find(props, PropMessageID)
	if at < 0 || at+1+int(props[at]) > len(props) {
		return nil, false
	}
	return props[at+1 : at+1+int(props[at])], true
}

// Priority returns the priority of raw properties that were checked before; 0 = none. It is cheaper than [ScanProps].
func Priority(props []byte) uint8 {
	at := find(props, PropPriority)
	if at < 0 {
		return 0
	}
	return props[at]
}

// find returns where a property begins; negative = it is absent. The property must not come after the message id.
func find(props []byte, wanted Property) int {
	if len(props) < 2 || be16(props)&wanted.Flag() == 0 {
		return -1
	}
	flags, at := be16(props), 2
	for p, size := range beforeMessageID[:wanted] {
		if flags&Property(p).Flag() == 0 {
			continue
		}
		switch {
		case size > 0:
			at += size
		case size == 0 && at < len(props):
			at += 1 + int(props[at])
		case size < 0 && at+4 <= len(props):
			at += 4 + int(be32(props[at:]))
		default:
			return -1
		}
	}
	if at >= len(props) {
		return -1
	}
	return at
}

// PropEdit describes the changes that [RewriteProps] makes. The zero value changes nothing.
type PropEdit struct {
	Headers        RawTable // the new headers table, which must be valid; nil keeps the old one
	ReplyTo        string   // the new reply-to, at most 255 bytes; "" keeps the old one
	DropExpiration bool
}

// RewriteProps appends raw to dst with properties replaced, inserted or removed, and with a matching flag word. It copies the others
// without decoding them. idx is from ScanProps(raw).
func RewriteProps(dst, raw []byte, idx PropIndex, edit PropEdit) []byte {
	dst = slices.Grow(dst, len(raw)+4+len(edit.Headers)+1+len(edit.ReplyTo))
	start := len(dst)
	dst = append(dst, 0, 0)
	flags, at := idx.flags, uint32(2)
	if edit.Headers != nil {
		dst = append(dst, raw[at:idx.start(PropHeaders)]...)
		dst = edit.Headers.Append(dst)
		flags, at = flags|PropHeaders.Flag(), idx.start(PropHeaders+1)
	}
	if edit.ReplyTo != "" {
		dst = append(dst, raw[at:idx.start(PropReplyTo)]...)
		dst = appendShortstr(dst, edit.ReplyTo)
		flags, at = flags|PropReplyTo.Flag(), idx.start(PropReplyTo+1)
	}
	if edit.DropExpiration {
		dst = append(dst, raw[at:idx.start(PropExpiration)]...)
		flags, at = flags&^PropExpiration.Flag(), idx.start(PropExpiration+1)
	}
	dst = append(dst, raw[at:]...)
	binary.BigEndian.PutUint16(dst[start:], flags)
	return dst
}

// MaxHeaderGrowth is the most bytes by which the result of AppendHeader exceeds the properties and the field together.
const MaxHeaderGrowth = 4

// AppendHeader appends raw to dst with an encoded field at the end of the headers table, which it creates if necessary. It copies
// everything else. idx is from ScanProps(raw).
func AppendHeader(dst, raw []byte, idx PropIndex, field []byte) []byte {
	headers := idx.Headers(raw)
	dst = binary.BigEndian.AppendUint16(dst, idx.flags|PropHeaders.Flag())
	dst = append(dst, raw[2:idx.start(PropHeaders)]...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(headers)+len(field)))
	dst = append(append(dst, headers...), field...)
	return append(dst, raw[idx.start(PropHeaders+1):]...)
}
