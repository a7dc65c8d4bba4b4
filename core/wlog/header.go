package wlog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/curfewmq/curfew/sdk/hook"
)

// An entry is a header and a body. Numbers are little-endian.
//
//	 0         4    5    6    7    8        12       16                24
//	+---------+----+----+----+----+--------+--------+-----------------+
//	| "wlog"  |vers|kind|flag| 0  | shard  | size   | epoch           |
//	+---------+----+----+----+----+--------+--------+-----------------+
//	| time              | previous index    | CRC of  | CRC of the    | body ...
//	|                   |                   | body    | header        |
//	+-------------------+-------------------+---------+---------------+
//	 24                  32                  40        44              48
//
// size is the size of the body. epoch counts the shard's owners. time is the log's time in nanoseconds since the Unix epoch, and never
// falls. The previous index is that of the last entry that is valid for the writer.
//
// The checksums are CRC-32C. The header's also covers the entry's position: its index, and a salt that the engine chooses at random for
// each file. So an entry is valid only where it was written. Neither a remnant in a reused file nor a message body that imitates an entry
// passes for one.

// HeaderSize is the length of an entry's header in bytes.
const HeaderSize = 48

// Align is the alignment of entries in bytes.
const Align = 8

// EntrySize returns how many bytes an entry with a body of so many bytes takes in the log.
func EntrySize(body int) int64 { return (HeaderSize + int64(body) + Align - 1) / Align * Align }

// Version is the format version that this program writes, and the latest that it reads.
const Version = 1

// Magic is the first bytes of an entry.
const Magic = "wlog"

// Kind is the kind of an entry.
type Kind uint8

// The kinds of entries.
const (
	Data     Kind = iota // appended by the engine's caller
	Takeover             // a new owner's first entry, with a new epoch
	Filler               // fills a file to its end
	kinds
)

func (k Kind) String() string {
	switch k {
	case Data:
		return "data"
	case Takeover:
		return "takeover"
	case Filler:
		return "filler"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// flagSynced is the only flag so far.
const flagSynced = 1

// Header is the header of an entry.
type Header struct {
	Kind  Kind
	Shard uint32
	Size  int // bytes of the body
	Epoch uint64
	Time  hook.Instant
	Prev  Index // 0 = the shard's first entry
	// Synced means that everything before this entry was durable when it was written. A broken entry before it is damaged, not just
	// unfinished.
	Synced bool

	sum uint32 // of the body
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Append appends the header of an entry with a body, for an index and a salt. It sets Size.
func (h *Header) Append(dst []byte, at Index, salt uint64, body []byte) []byte {
	h.Size = len(body)
	h.sum = crc32.Checksum(body, castagnoli)
	begin := len(dst)
	dst = append(dst, Magic...)
	dst = append(dst, Version, byte(h.Kind), h.flags(), 0)
	dst = binary.LittleEndian.AppendUint32(dst, h.Shard)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(h.Size))
	dst = binary.LittleEndian.AppendUint64(dst, h.Epoch)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.Time))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.Prev))
	dst = binary.LittleEndian.AppendUint32(dst, h.sum)
	return binary.LittleEndian.AppendUint32(dst, headerSum(dst[begin:], at, salt))
}

func (h *Header) flags() byte {
	if h.Synced {
		return flagSynced
	}
	return 0
}

// headerSum returns the checksum of salt, index, and a header's first 44 bytes.
func headerSum(b []byte, at Index, salt uint64) uint32 {
	sum := sumWord(sumWord(^uint32(0), salt), uint64(at))
	return crc32.Update(^sum, castagnoli, b[:HeaderSize-4])
}

// sumWord adds eight bytes to a CRC-32C. Package crc32 would allocate them on the heap for every entry.
func sumWord(sum uint32, word uint64) uint32 {
	for range 8 {
		sum = castagnoli[byte(sum)^byte(word)] ^ sum>>8
		word >>= 8
	}
	return sum
}

var (
	errShort    = fmt.Errorf("%w: too few bytes", ErrNoEntry)
	errChecksum = fmt.Errorf("%w: the checksum of its header does not match", ErrNoEntry)
)

// ParseHeader reads the header of an entry with an index and a salt. Without an error it is the header that was written; the caller still
// checks the body with Holds. ErrNoEntry means that there is no header, or only a part. ErrNewer and ErrDamaged refer to a header with a
// valid checksum.
func ParseHeader(b []byte, at Index, salt uint64) (Header, error) {
	if len(b) < HeaderSize {
		return Header{}, errShort
	}
	if string(b[:len(Magic)]) != Magic {
		return Header{}, ErrNoEntry
	}
	if binary.LittleEndian.Uint32(b[44:]) != headerSum(b, at, salt) {
		return Header{}, errChecksum
	}
	return parseFields(b)
}

// parseFields reads a header with a valid checksum.
func parseFields(b []byte) (Header, error) {
	if b[4] > Version {
		return Header{}, fmt.Errorf("entry of format version %d: %w, this one reads up to version %d", b[4], ErrNewer, Version)
	}
	if b[4] == 0 || b[5] >= byte(kinds) {
		return Header{}, fmt.Errorf("%w: unknown entry: version %d, %v", ErrDamaged, b[4], Kind(b[5]))
	}
	if b[6]&^flagSynced != 0 || b[7] != 0 {
		return Header{}, fmt.Errorf("%w: a reserved byte of an entry's header is set", ErrDamaged)
	}
	h := Header{
		Kind:   Kind(b[5]),
		Synced: b[6]&flagSynced != 0,
		Shard:  binary.LittleEndian.Uint32(b[8:]),
		Epoch:  binary.LittleEndian.Uint64(b[16:]),
		Time:   hook.Instant(binary.LittleEndian.Uint64(b[24:])),
		Prev:   Index(binary.LittleEndian.Uint64(b[32:])),
		sum:    binary.LittleEndian.Uint32(b[40:]),
	}
	size := binary.LittleEndian.Uint32(b[12:])
	if size > MaxEntry && h.Kind != Filler {
		return Header{}, fmt.Errorf("%w: an entry of %d bytes, more than the maximum of %d", ErrDamaged, size, MaxEntry)
	}
	h.Size = int(size)
	return h, nil
}

// Holds reports whether body is the body that belongs to the header.
func (h *Header) Holds(body []byte) bool {
	return len(body) == h.Size && crc32.Checksum(body, castagnoli) == h.sum
}
