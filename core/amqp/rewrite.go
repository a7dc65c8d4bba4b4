package amqp

import (
	"encoding/binary"
	"slices"
)

// PropEdit is what [RewriteProps] changes. The zero value changes nothing.
type PropEdit struct {
	Headers        RawTable // the new headers table, checked by whoever made it; nil keeps what is there
	ReplyTo        string   // the new reply-to, at most 255 bytes; empty keeps what is there
	DropExpiration bool
}

// RewriteProps appends raw to dst with the edit done: properties replaced, put in their place among the others, or taken out,
// and the flag word set to match. Everything else is copied as it is, undecoded. idx is from ScanProps(raw).
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

// MaxHeaderGrowth is how many bytes AppendHeader appends more than the properties and the field have together.
const MaxHeaderGrowth = 4

// AppendHeader appends raw to dst with one more field, encoded and of a valid key, at the end of the headers table, which comes to
// be if there is none. Everything else is copied as it is. idx is from ScanProps(raw).
func AppendHeader(dst, raw []byte, idx PropIndex, field []byte) []byte {
	headers := idx.Headers(raw)
	dst = binary.BigEndian.AppendUint16(dst, idx.flags|PropHeaders.Flag())
	dst = append(dst, raw[2:idx.start(PropHeaders)]...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(headers)+len(field)))
	dst = append(append(dst, headers...), field...)
	return append(dst, raw[idx.start(PropHeaders+1):]...)
}
