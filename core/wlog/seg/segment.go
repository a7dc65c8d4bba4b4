package seg

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/vfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

// A segment file begins with a header. Numbers are little-endian.
//
//	 0                   8    9        12       16       20       24
//	+-------------------+----+--------+--------+--------+--------+
//	| "curfewlg"        |vers| 0  0  0| shard  | number | 0      |
//	+-------------------+----+--------+--------+--------+--------+
//	| salt              | epoch       | file size       | prepared
//	+-------------------+-------------+-----------------+---------
//	 24                  32            40                48
//	          | 0      | CRC    |
//	----------+--------+--------+
//	           56       60       64
//
// Entries follow, each at a multiple of 8, with zeros in between. The last entry of a
// closed segment is a filler up to the end of the file. If less space than an entry's
// header is left there, it is zeros instead.
//
// salt is chosen at random whenever a file becomes a segment, and is part of the checksum
// of every entry. epoch is that of the shard's owner at that time, and prepared is the
// log's time then, in nanoseconds since the Unix epoch. The checksum is CRC-32C of the
// bytes before it. Magic, version and checksum have the same place in every version of the
// format. Versions 1 and 2 differ only in the format of the caller's entries, see
// [Options]: a program that knows only version 1 refuses logs of version 2.
const (
	segmentMagic   = "curfewlg"
	segmentVersion = 2 // the latest that this program reads
	headerSize     = 64
)

// segment is an open segment file.
type segment struct {
	name    string
	number  uint32
	salt    uint64
	epoch   uint64
	size    int64
	made    hook.Instant
	file    vfs.File
	version byte
	bad     *Damage // why the segment cannot be read; its file is not open then

	last wlog.Index // the last entry of kind Data; valid once the segment is closed

	readers int  // belongs to the table
	dropped bool // belongs to the table
}

// index returns the index of the entry that begins off bytes into the file.
func (g *segment) index(off int64) wlog.Index {
	return wlog.Index(g.number)<<32 | wlog.Index(off)
}

// locate is the inverse of index.
func locate(at wlog.Index) (number uint32, off int64) {
	return uint32(at >> 32), int64(uint32(at))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header returns the file's first bytes.
func (g *segment) header(shard uint32) []byte {
	b := append(make([]byte, 0, headerSize), segmentMagic...)
	b = append(b, max(g.version, 1), 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, shard)
	b = binary.LittleEndian.AppendUint32(b, g.number)
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, g.salt)
	b = binary.LittleEndian.AppendUint64(b, g.epoch)
	b = binary.LittleEndian.AppendUint64(b, uint64(g.size))
	b = binary.LittleEndian.AppendUint64(b, uint64(g.made))
	b = binary.LittleEndian.AppendUint32(b, 0)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// open opens a segment and reads its header. A segment with a damaged header is returned
// with bad set. The error may be a wlog.ErrNewer.
func open(fsys vfs.FS, f named, mode vfs.Mode) (*segment, error) {
	file, err := fsys.Open(f.Name, mode)
	if err != nil {
		return nil, err
	}
	g := &segment{name: f.Name, number: f.number, size: f.Size, file: file}
	err = g.readHeader(f.shard)
	if err == nil {
		return g, nil
	}
	g.file = nil
	_ = file.Close() // nothing was written
	if d, ok := errors.AsType[*Damage](err); ok {
		g.bad = d
		return g, nil
	}
	return nil, err
}

func (g *segment) readHeader(shard uint32) error {
	if g.size < headerSize {
		return g.damage(0, fmt.Sprintf("a file of %d bytes is too short to be a segment", g.size))
	}
	var b [headerSize]byte
	if err := g.read(b[:], 0); err != nil {
		return err
	}
	if string(b[:8]) != segmentMagic {
		return g.damage(0, "no segment begins here")
	}
	if crc32.Checksum(b[:60], castagnoli) != binary.LittleEndian.Uint32(b[60:]) {
		return g.damage(0, "the checksum of the segment's header does not match")
	}
	if b[8] > segmentVersion {
		return fmt.Errorf("%s: format version %d: %w, this one reads up to version %d: start the version that wrote it, or a later one",
			g.name, b[8], wlog.ErrNewer, segmentVersion)
	}
	return g.parseHeader(b[:], shard)
}

// parseHeader reads a header with a valid checksum.
func (g *segment) parseHeader(b []byte, shard uint32) error {
	g.version = b[8]
	g.salt = binary.LittleEndian.Uint64(b[24:])
	g.epoch = binary.LittleEndian.Uint64(b[32:])
	g.made = hook.Instant(binary.LittleEndian.Uint64(b[48:]))
	s, n := binary.LittleEndian.Uint32(b[12:]), binary.LittleEndian.Uint32(b[16:])
	if s != shard || n != g.number {
		return g.damage(12, fmt.Sprintf("the file is segment %08x of shard %d", n, s))
	}
	if size := binary.LittleEndian.Uint64(b[40:]); size != uint64(g.size) || size%page != 0 || size > maxFile {
		return g.damage(40, fmt.Sprintf("the file has %d bytes and should have %d", g.size, size))
	}
	return nil
}

// maxFile is the maximum size of a segment: one with the largest possible entry.
const maxFile = wlog.MaxEntry + maxSegment

// read fills p from the file. A file that is too short is damaged.
func (g *segment) read(p []byte, off int64) error {
	n, err := g.file.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == io.EOF { //nolint:errorlint // io.ReaderAt returns it bare
		return g.damage(off+int64(n), "the file ends here")
	}
	return fmt.Errorf("%s at byte %d: %w", g.name, off, err)
}

func (g *segment) damage(off int64, reason string) *Damage {
	return &Damage{File: g.name, Offset: off, Reason: reason}
}

// maker makes segments. A file gets the name of a segment only when its header is on the
// disk, and space for the rest is allocated. So a file with that name and without a valid
// header is damaged, and an append needs no space.
type maker struct {
	*storage
	epoch uint64
}

// segment makes a segment of size bytes, out of a spare file of that size unless spare is
// nil. If it fails for lack of space or of descriptors, the spare file can still be used
// later.
func (m *maker) segment(number uint32, size int64, spare *named) (*segment, error) {
	file, name, err := m.file(number, size, spare)
	if err != nil {
		return nil, err
	}
	g := &segment{
		name:    fileName(m.shard, number, segmentFile),
		number:  number,
		salt:    salt(),
		epoch:   m.epoch,
		size:    size,
		made:    m.Clock(),
		file:    file,
		version: m.Version,
	}
	if err := m.publish(g, name); err != nil {
		return nil, m.discard(file, name, spare, err)
	}
	return g, nil
}

// file opens the spare file, or creates a new one.
func (m *maker) file(number uint32, size int64, spare *named) (vfs.File, string, error) {
	if spare != nil {
		file, err := m.fs.Open(spare.Name, m.mode(vfs.Write))
		return file, spare.Name, err
	}
	name := fileName(m.shard, number, newFile)
	file, err := m.fs.Open(name, m.mode(vfs.Create))
	if err != nil {
		return nil, "", err
	}
	if err := file.Allocate(size); err != nil {
		return nil, "", m.discard(file, name, nil, err)
	}
	return file, name, nil
}

// publish writes the header and gives the file its name, durably.
func (m *maker) publish(g *segment, name string) error {
	if err := g.file.Writev(0, [][]byte{g.header(m.shard), zeros[headerSize:]}); err != nil {
		return err
	}
	if err := g.file.Sync(); err != nil {
		return err
	}
	if err := m.fs.Rename(name, g.name); err != nil {
		return err
	}
	if err := m.fs.Sync(); err != nil {
		return errors.Join(err, m.fs.Rename(g.name, name)) // discard removes the file by its old name
	}
	return nil
}

// discard removes a file that did not become a segment, unless it is a spare. If that
// fails, the next owner tries again.
func (m *maker) discard(file vfs.File, name string, spare *named, reason error) error {
	err := errors.Join(reason, file.Close())
	if spare != nil {
		return err
	}
	return errors.Join(err, m.fs.Remove(name))
}

func salt() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}
