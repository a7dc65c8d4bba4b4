package seg

import (
	"crypto/rand"
	"encoding/binary"
	"errors"

	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// maker makes segments. A file gets the name of a segment only when its header is on the disk, and space for the rest is allocated. So a
// file with that name and without a valid header is damaged, and an append needs no space.
type maker struct {
	*storage
	epoch uint64
}

// segment makes a segment of size bytes, out of a spare file of that size unless spare is nil. If it fails for lack of space or of
// descriptors, the spare file can still be used later.
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

// discard removes a file that did not become a segment, unless it is a spare. If that fails, the next owner tries again.
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
