package meter

import (
	"fmt"
	"unicode/utf8"
)

// reader reads a module. The first failure is final: after it the reader is at the end and
// reads zeros, so callers need to check err only once for each entry of a loop.
type reader struct {
	b        []byte
	pos, end int // end of the section or body being read, at most len(b)
	function int // function whose code is being read, or -1
	err      error
}

func (r *reader) failf(at int, format string, args ...any) {
	if r.err == nil {
		r.err = &Error{Function: r.function, Offset: at, Reason: fmt.Sprintf(format, args...)}
	}
	r.pos = r.end
}

func (r *reader) done() bool { return r.pos >= r.end }

func (r *reader) byte() byte {
	if r.pos >= r.end {
		r.failf(r.pos, "ends in the middle of something")
		return 0
	}
	c := r.b[r.pos]
	r.pos++
	return c
}

func (r *reader) skip(n int) {
	if n < 0 || n > r.end-r.pos {
		r.failf(r.pos, "%d bytes are announced where there are %d", n, r.end-r.pos)
		return
	}
	r.pos += n
}

// u32 reads an unsigned LEB128 of 32 bits.
func (r *reader) u32() uint32 {
	if r.pos < r.end && r.b[r.pos] < 0x80 {
		r.pos++
		return uint32(r.b[r.pos-1])
	}
	return r.longU32()
}

func (r *reader) longU32() uint32 {
	start, v := r.pos, uint32(0)
	for shift := 0; shift < 35; shift += 7 {
		c := r.byte()
		if shift == 28 && c > 0x0f {
			break
		}
		v |= uint32(c&0x7f) << shift
		if c < 0x80 {
			return v
		}
	}
	r.failf(start, "number does not fit in 32 bits")
	return 0
}

// skipLEB skips a signed LEB128 of at most size bytes. The engine's validator checks its last bits, which do not affect the
// length.
func (r *reader) skipLEB(size int) {
	start := r.pos
	for range size {
		if r.byte() < 0x80 {
			return
		}
	}
	r.failf(start, "number is longer than %d bytes", size)
}

// count reads the length of a vector whose entries take at least size bytes each.
func (r *reader) count(what string, size, limit int) int {
	start := r.pos
	n := int64(r.u32())
	if room := int64(r.end-r.pos) / int64(size); n > room {
		r.failf(start, "%d %s are announced where no more than %d have room", n, what, room)
		return 0
	}
	if n > int64(limit) {
		r.failf(start, "%d %s are too many; accepted are up to %d", n, what, limit)
		return 0
	}
	return int(n)
}

// bytes reads a vector of bytes, as a part of the module.
func (r *reader) bytes(what string) []byte {
	n := r.count(what, 1, r.end-r.pos)
	start := r.pos
	r.skip(n)
	return r.b[start:r.pos]
}

func (r *reader) name() string {
	start := r.pos
	b := r.bytes("bytes of a name")
	if !utf8.Valid(b) {
		r.failf(start, "name %q is not UTF-8", b)
		return ""
	}
	return string(b)
}

// index reads an index that must be below limit.
func (r *reader) index(what string, limit int) uint32 {
	start := r.pos
	i := r.u32()
	if r.err == nil && int64(i) >= int64(limit) {
		r.failf(start, "%s %d does not exist: there are %d", what, i, limit)
		return 0
	}
	return i
}

// within returns a reader for the next n bytes and skips them. Its failure does not become r's before join.
func (r *reader) within(n int) reader {
	start := r.pos
	r.skip(n)
	return reader{b: r.b, pos: start, end: r.pos, function: r.function, err: r.err}
}

// join adopts the failure of a reader from within.
func (r *reader) join(inner *reader) {
	if r.err == nil && inner.err != nil {
		r.err, r.pos = inner.err, r.end
	}
}

func appendU32(b []byte, v uint32) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

func appendS64(b []byte, v int64) []byte {
	for v < -0x40 || v >= 0x40 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v)&0x7f)
}

func appendName(b []byte, name string) []byte {
	return append(appendU32(b, uint32(len(name))), name...)
}
