package peer

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// After the handshake, streams of messages consist of frames. Each begins with the head
//
//	size u32 | type u8 | 0 u24 | shard u32 | checksum u32
//
// and continues with size bytes. Numbers are little-endian. The checksum is CRC-32C of the
// twelve bytes before it and the bytes after it. With TLS, which has better ones, it is 0.
//
//	message  about a shard
//	ping     sent i64 | number of shards u16 | (shard u32 | its time i64)… | (shard that lacks space u32)…      by the node that dialled
//	pong     sent i64, as in the ping | now i64                                 by the other
const (
	frameMessage = 1 + iota
	framePing
	framePong
)

const (
	frameHead     = 16
	pongSize      = 16
	shardSize     = 4
	shardTimeSize = shardSize + 8
	maxTimes      = 1 << 12 // shards in a ping
	chunkSize     = 1 << 20 // bytes that are written at a time
	bufferSize    = 32 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frameWriter writes frames to a stream. It belongs to one goroutine. Only TLS copies bodies.
type frameWriter struct {
	conn   net.Conn
	secure *bufio.Writer // used before conn with TLS: otherwise each head would be a record of its own; nil = without TLS
	heads  [][frameHead]byte
	parts  net.Buffers
	size   int // of parts
}

// headsAtOnce bounds the frames that are written at a time.
const headsAtOnce = 256

func newFrameWriter(conn net.Conn) *frameWriter {
	w := &frameWriter{conn: conn, heads: make([][frameHead]byte, 0, headsAtOnce)}
	if _, ok := conn.(*tls.Conn); ok {
		w.secure = bufio.NewWriterSize(conn, bufferSize)
	}
	return w
}

// add adds a frame, and writes the earlier ones if they are enough. body must not change until flush has returned.
func (w *frameWriter) add(typ byte, shard uint32, body []byte) error {
	if len(w.heads) == cap(w.heads) || w.size >= chunkSize {
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.heads = w.heads[:len(w.heads)+1]
	head := &w.heads[len(w.heads)-1]
	putHead(head, typ, shard, body, w.secure == nil)
	w.parts = append(w.parts, head[:])
	w.size += frameHead
	for len(body) > chunkSize {
		w.parts = append(w.parts, body[:chunkSize])
		body = body[chunkSize:]
		if err := w.flushParts(); err != nil {
			return err
		}
	}
	if len(body) > 0 {
		w.parts = append(w.parts, body)
		w.size += len(body)
	}
	return nil
}

func putHead(head *[frameHead]byte, typ byte, shard uint32, body []byte, checked bool) {
	binary.LittleEndian.PutUint32(head[0:], uint32(len(body)))
	binary.LittleEndian.PutUint32(head[4:], uint32(typ))
	binary.LittleEndian.PutUint32(head[8:], shard)
	sum := uint32(0)
	if checked {
		sum = crc32.Update(crc32.Checksum(head[:12], castagnoli), castagnoli, body)
	}
	binary.LittleEndian.PutUint32(head[12:], sum)
}

// flush writes all frames that were added.
func (w *frameWriter) flush() error {
	if err := w.flushParts(); err != nil {
		return err
	}
	w.heads = w.heads[:0]
	if w.secure != nil {
		return w.secure.Flush()
	}
	return nil
}

func (w *frameWriter) flushParts() error {
	if len(w.parts) == 0 {
		return nil
	}
	if err := w.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	err := w.write()
	clear(w.parts)
	w.parts, w.size = w.parts[:0], 0
	return err
}

func (w *frameWriter) write() error {
	if w.secure == nil {
		parts := w.parts // a copy, because WriteTo changes it
		_, err := parts.WriteTo(w.conn)
		return err
	}
	for _, part := range w.parts {
		if _, err := w.secure.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// frame is a frame that was read. body belongs to the caller.
type frame struct {
	typ   byte
	shard uint32
	body  []byte
}

// frameReader reads frames. It belongs to one goroutine.
type frameReader struct {
	r       *bufio.Reader
	limit   int  // on the size of a body, in bytes
	checked bool // frames have checksums
	head    [frameHead]byte
}

func newFrameReader(r io.Reader, limit int, checked bool) *frameReader {
	return &frameReader{r: bufio.NewReaderSize(r, bufferSize), limit: limit, checked: checked}
}

func (f *frameReader) next() (frame, error) {
	if _, err := io.ReadFull(f.r, f.head[:]); err != nil {
		return frame{}, err
	}
	size := binary.LittleEndian.Uint32(f.head[0:])
	typ := binary.LittleEndian.Uint32(f.head[4:])
	if typ < frameMessage || typ > framePong {
		return frame{}, fmt.Errorf("a frame of unknown type %d, expected 1 to 3", typ)
	}
	if int64(size) > int64(f.limit) {
		return frame{}, fmt.Errorf("a frame of %d bytes: at most %d are allowed", size, f.limit)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(f.r, body); err != nil {
		return frame{}, fmt.Errorf("in a frame of %d bytes: %w", size, err)
	}
	sum := binary.LittleEndian.Uint32(f.head[12:])
	if f.checked && sum != crc32.Update(crc32.Checksum(f.head[:12], castagnoli), castagnoli, body) {
		return frame{}, fmt.Errorf("a frame of %d bytes was changed on the way: its checksum is wrong", size)
	}
	return frame{typ: byte(typ), shard: binary.LittleEndian.Uint32(f.head[8:]), body: body}, nil
}

// ping is the content of a ping.
type ping struct {
	sent  hook.Instant
	times []ShardTime
	short []uint32 // shards for which the node's disk lacks space
}

func appendPing(b []byte, p ping) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(p.sent))
	times := p.times[:min(len(p.times), maxTimes)]
	b = binary.LittleEndian.AppendUint16(b, uint16(len(times)))
	for _, t := range times {
		b = binary.LittleEndian.AppendUint32(b, t.Shard)
		b = binary.LittleEndian.AppendUint64(b, uint64(t.At))
	}
	for _, shard := range p.short[:min(len(p.short), maxTimes)] {
		b = binary.LittleEndian.AppendUint32(b, shard)
	}
	return b
}

func parsePing(b []byte) (ping, error) {
	if len(b) < 10 {
		return ping{}, fmt.Errorf("a ping of %d bytes, expected at least 10", len(b))
	}
	p := ping{sent: hook.Instant(binary.LittleEndian.Uint64(b))}
	n := int(binary.LittleEndian.Uint16(b[8:]))
	b = b[10:]
	if short := len(b) - n*shardTimeSize; n > maxTimes || short < 0 || short%shardSize != 0 || short > maxTimes*shardSize {
		return ping{}, fmt.Errorf("a ping of %d shards (at most %d are allowed) in %d bytes", n, maxTimes, len(b))
	}
	for ; n > 0; n-- {
		p.times = append(p.times, ShardTime{binary.LittleEndian.Uint32(b), hook.Instant(binary.LittleEndian.Uint64(b[shardSize:]))})
		b = b[shardTimeSize:]
	}
	for ; len(b) > 0; b = b[shardSize:] {
		p.short = append(p.short, binary.LittleEndian.Uint32(b))
	}
	return p, nil
}

func appendPong(b []byte, sent, now hook.Instant) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(sent))
	return binary.LittleEndian.AppendUint64(b, uint64(now))
}

func parsePong(b []byte) (sent, now hook.Instant, err error) {
	if len(b) != pongSize {
		return 0, 0, fmt.Errorf("a pong of %d bytes, expected %d", len(b), pongSize)
	}
	return hook.Instant(binary.LittleEndian.Uint64(b)), hook.Instant(binary.LittleEndian.Uint64(b[8:])), nil
}
