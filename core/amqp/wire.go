package amqp

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

const maxShortstr = 255

func be16(b []byte) uint16 { return binary.BigEndian.Uint16(b) }
func be32(b []byte) uint32 { return binary.BigEndian.Uint32(b) }
func be64(b []byte) uint64 { return binary.BigEndian.Uint64(b) }

// appendShortstr cuts s to 255 bytes, the limit of a short string [AMQP 4.2.5.3].
func appendShortstr[S string | []byte](dst []byte, s S) []byte {
	if len(s) > maxShortstr {
		s = s[:maxShortstr]
	}
	dst = append(dst, byte(len(s)))
	return append(dst, s...)
}

func appendLongstr[S string | []byte](dst []byte, s S) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(s)))
	return append(dst, s...)
}

// packBits packs flags into an octet; the first flag is the lowest bit [AMQP 4.2.5.2].
func packBits(flags ...bool) byte {
	var b byte
	for i, set := range flags {
		if set {
			b |= 1 << i
		}
	}
	return b
}

// decoder reads arguments from buf. After the first error it returns zeros, and finish returns the error.
type decoder struct {
	buf  []byte
	utf8 bool // short strings must be UTF-8
	err  *Error
}

func (d *decoder) take(n int, field, kind string) []byte {
	if d.err != nil {
		return nil
	}
	if n > len(d.buf) {
		d.err = Errorf(ReplySyntaxError, "%s: %s needs %d octets, %d left", field, kind, n, len(d.buf))
		return nil
	}
	b := d.buf[:n]
	d.buf = d.buf[n:]
	return b
}

func (d *decoder) octet(field string) uint8 {
	b := d.take(1, field, "octet")
	if b == nil {
		return 0
	}
	return b[0]
}

func (d *decoder) short(field string) uint16 {
	b := d.take(2, field, "short")
	if b == nil {
		return 0
	}
	return be16(b)
}

func (d *decoder) long(field string) uint32 {
	b := d.take(4, field, "long")
	if b == nil {
		return 0
	}
	return be32(b)
}

func (d *decoder) longlong(field string) uint64 {
	b := d.take(8, field, "longlong")
	if b == nil {
		return 0
	}
	return be64(b)
}

func (d *decoder) timestamp(field string) uint64 { return d.longlong(field) }

func (d *decoder) shortstr(field string) string {
	s := d.take(int(d.octet(field)), field, "shortstr")
	if d.utf8 && d.err == nil && !utf8.Valid(s) {
		d.err = Errorf(ReplyFrameError, "Malformed UTF-8 in shortstr")
		return ""
	}
	return string(s)
}

func (d *decoder) longstr(field string) string {
	return string(d.take(int(d.long(field)), field, "longstr"))
}

func (d *decoder) table(field string) Table {
	if d.err != nil {
		return nil
	}
	t, n, err := parseTable(d.buf)
	if err != nil {
		d.err = err
		d.err.Text = field + ": " + err.Text
		return nil
	}
	d.buf = d.buf[n:]
	return t
}

func (d *decoder) finish() *Error {
	if d.err == nil && len(d.buf) > 0 {
		d.err = Errorf(ReplySyntaxError, "%d octets after the last argument", len(d.buf))
	}
	return d.err
}

// erlangBinary formats up to 16 octets as RabbitMQ does in frame errors: as text if they are printable, otherwise as numbers.
func erlangBinary(b []byte) string {
	if len(b) > 0 && printable(b) {
		return fmt.Sprintf("<<%q>>", b)
	}
	out := []byte("<<")
	for i, c := range b {
		if i > 0 {
			out = append(out, ',')
		}
		out = fmt.Append(out, c)
	}
	return string(append(out, ">>"...))
}

func printable(b []byte) bool {
	for _, c := range b {
		if (c < ' ' || c > '~') && c != '\n' && c != '\r' && c != '\t' {
			return false
		}
	}
	return true
}
