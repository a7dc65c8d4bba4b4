package amqp

import (
	"encoding/binary"
	"slices"
)

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
