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

// codec appends arguments to dst or, with reading, takes them from buf, so that a method lists its arguments once. After the first
// error it reads nothing more, and finish returns the error.
type codec struct {
	dst []byte

	reading bool
	buf     []byte
	utf8    bool // short strings must be UTF-8
	err     *Error
}

func (c *codec) take(n int, field, kind string) []byte {
	if c.err != nil {
		return nil
	}
	if n > len(c.buf) {
		c.err = Errorf(ReplySyntaxError, "%s: %s needs %d octets, %d left", field, kind, n, len(c.buf))
		return nil
	}
	b := c.buf[:n]
	c.buf = c.buf[n:]
	return b
}

func (c *codec) octet(field string, v *uint8) {
	if !c.reading {
		c.dst = append(c.dst, *v)
	} else if b := c.take(1, field, "octet"); b != nil {
		*v = b[0]
	}
}

// bits is for up to eight neighbouring flags, which share an octet: the first is the lowest bit [AMQP 4.2.5.2].
func (c *codec) bits(field string, flags ...*bool) {
	var b uint8
	for i, flag := range flags {
		if *flag {
			b |= 1 << i
		}
	}
	c.octet(field, &b)
	if !c.reading { // others may write the same method
		return
	}
	for i, flag := range flags {
		*flag = b&(1<<i) != 0
	}
}

func (c *codec) short(field string, v *uint16) {
	if !c.reading {
		c.dst = binary.BigEndian.AppendUint16(c.dst, *v)
	} else if b := c.take(2, field, "short"); b != nil {
		*v = be16(b)
	}
}

func (c *codec) long(field string, v *uint32) {
	if !c.reading {
		c.dst = binary.BigEndian.AppendUint32(c.dst, *v)
	} else if b := c.take(4, field, "long"); b != nil {
		*v = be32(b)
	}
}

func (c *codec) longlong(field string, v *uint64) {
	if !c.reading {
		c.dst = binary.BigEndian.AppendUint64(c.dst, *v)
	} else if b := c.take(8, field, "longlong"); b != nil {
		*v = be64(b)
	}
}

func (c *codec) timestamp(field string, v *uint64) { c.longlong(field, v) }

func (c *codec) shortstr(field string, v *string) {
	if !c.reading {
		c.dst = appendShortstr(c.dst, *v)
		return
	}
	var n uint8
	c.octet(field, &n)
	s := c.take(int(n), field, "shortstr")
	if c.utf8 && c.err == nil && !utf8.Valid(s) {
		c.err = Errorf(ReplyFrameError, "Malformed UTF-8 in shortstr")
		return
	}
	*v = string(s)
}

func (c *codec) longstr(field string, v *string) {
	if !c.reading {
		c.dst = appendLongstr(c.dst, *v)
		return
	}
	var n uint32
	c.long(field, &n)
	*v = string(c.take(int(n), field, "longstr"))
}

func (c *codec) table(field string, v *Table) {
	switch {
	case !c.reading:
		c.dst = AppendTable(c.dst, *v)
	case c.err == nil:
		t, n, err := parseTable(c.buf)
		if err != nil {
			c.err = err
			c.err.Text = field + ": " + err.Text
			return
		}
		*v, c.buf = t, c.buf[n:]
	}
}

func (c *codec) finish() *Error {
	if c.err == nil && len(c.buf) > 0 {
		c.err = Errorf(ReplySyntaxError, "%d octets after the last argument", len(c.buf))
	}
	return c.err
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
