package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/quorum"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// Made is the folder, in the making, of a node that brings the data with which a new
// cluster begins: the data of a broker that was alone, or a copy of a node of another
// cluster. The folder has another name until it is complete, so that after an interruption
// a node either has all of it or does not start. A Made belongs to one goroutine.
type Made struct {
	dir    string // the data directory
	shards uint32
	number wlog.NodeID
	writes uint32 // format of the logs; 0 = the first
	engine *seg.Engine
	logs   []*quorum.Founding
	ended  bool
	unlock func() error
}

// unfinishedFolder is the name of the folder until it is complete.
const unfinishedFolder = "cluster.unfinished"

// Make begins to make a node's folder in an empty data directory, for a cluster with shards
// logs of vhosts. It removes the unfinished folder of an earlier call.
func Make(dir string, shards uint32) (*Made, error) {
	if shards < 1 || shards > 255 {
		return nil, fmt.Errorf("%d shards: a cluster has 1 to 255", shards)
	}
	if err := checkUnmade(dir); err != nil {
		return nil, err
	}
	d, err := vfs.Make(dir)
	if err != nil {
		return nil, err
	}
	unlock, err := seg.Lock(d)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	m := &Made{dir: dir, shards: shards, number: newNumber(), unlock: unlock}
	if err = checkUnmade(dir); err == nil { // another process may have come and gone before the lock
		err = os.RemoveAll(filepath.Join(dir, unfinishedFolder))
	}
	if err == nil {
		err = m.begin()
	}
	if err != nil {
		return nil, errors.Join(err, unlock())
	}
	return m, nil
}

// Mark makes nodes refuse a data directory until the data that is being made in it is
// complete. The caller has locked the directory. Unmark undoes Mark.
func Mark(dir string) error {
	if err := os.Mkdir(filepath.Join(dir, unfinishedFolder), 0o700); err != nil {
		return err
	}
	return vfs.Dir(dir).Sync()
}

// Unmark undoes Mark.
func Unmark(dir string) error { return os.RemoveAll(filepath.Join(dir, unfinishedFolder)) }

// checkUnmade refuses a data directory that holds anything except the remains of an unfinished Make.
func checkUnmade(dir string) error {
	all, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range all {
		switch e.Name() {
		case unfinishedFolder, "LOCK", "lost+found":
		default:
			return fmt.Errorf("%s is not empty: there is %s; name a folder that is empty or missing", dir, e.Name())
		}
	}
	return nil
}

func (m *Made) begin() error {
	made, err := vfs.Make(filepath.Join(m.dir, unfinishedFolder))
	if err != nil {
		return err
	}
	m.engine, err = seg.New(made, seg.Options{Durability: seg.Fsync, Short: []uint32{Registry}})
	return err
}

// Number returns the number of the node.
func (m *Made) Number() wlog.NodeID { return m.number }

// Found begins an empty log of a shard. The Made finishes it.
func (m *Made) Found(ctx context.Context, shard uint32) (*quorum.Founding, error) {
	return m.add(quorum.Found(ctx, m.engine, shard, m.number))
}

// Refound begins the log of a shard with a copy, see [quorum.Refound].
func (m *Made) Refound(ctx context.Context, c *Copy, shard uint32) (*quorum.Founding, error) {
	none := func(wlog.Index, []byte) error { return nil }
	return m.add(quorum.Refound(ctx, c.entries(ctx, shard), c.id.Number, m.engine, shard, m.number, none))
}

func (m *Made) add(f *quorum.Founding, err error) (*quorum.Founding, error) {
	if err == nil {
		m.logs = append(m.logs, f)
	}
	return f, err
}

// Finish completes the folder, after all shards were founded. When it returns without an
// error, the folder is that of a node.
func (m *Made) Finish(ctx context.Context) error {
	if len(m.logs) != int(m.shards)+1 {
		return fmt.Errorf("%d of %d shards were founded", len(m.logs), m.shards+1)
	}
	m.ended = true
	var err error
	for _, l := range m.logs {
		err = errors.Join(err, l.Finish(ctx))
	}
	folder := vfs.Dir(filepath.Join(m.dir, unfinishedFolder))
	if err = errors.Join(err, m.engine.Close()); err == nil {
		id := identity{Format: identityFormat, Number: m.number, Started: true, Seed: m.number, Shards: m.shards, Writes: m.writes}
		err = id.save(folder)
	}
	if err == nil {
		err = os.Rename(string(folder), Folder(m.dir))
	}
	if err != nil {
		return errors.Join(err, m.unlock())
	}
	return errors.Join(vfs.Dir(m.dir).Sync(), m.unlock(), vfs.Dir(filepath.Dir(filepath.Clean(m.dir))).Sync())
}

// Close removes the unfinished folder, unless Finish was called.
func (m *Made) Close() error {
	if m.ended {
		return nil
	}
	m.ended = true
	var err error
	for _, l := range m.logs {
		err = errors.Join(err, l.Abandon())
	}
	return errors.Join(err, m.engine.Close(), os.RemoveAll(filepath.Join(m.dir, unfinishedFolder)), m.unlock())
}

// Copy is a copy of a node's folder that no node has open. It is only read.
type Copy struct {
	reader *seg.Reader
	id     identity
}

// OpenCopy opens a copy of a node's data directory.
func OpenCopy(dir string) (*Copy, error) {
	in, _ := LogsIn(dir)
	folder := vfs.Dir(in)
	id, ok, err := loadIdentity(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && !ok:
		return nil, fmt.Errorf("%s is not a copy of a node's data folder: there is no %s", dir, filepath.Join("cluster", identityFile))
	case err != nil:
		return nil, fmt.Errorf("%s: %w", folder, err)
	case id.writes() > Format:
		return nil, fmt.Errorf("%s: %w: format %d of logs, this version reads %d to %d", folder, wlog.ErrNewer, id.writes(), FirstFormat, Format)
	case !id.member():
		return nil, fmt.Errorf("%s is the data folder of a node that did not belong to a cluster yet: there is nothing to restore", dir)
	}
	reader, err := seg.NewReader(folder)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", folder, err)
	}
	return &Copy{reader: reader, id: id}, nil
}

// Shards returns how many shards of vhosts the cluster had.
func (c *Copy) Shards() uint32 { return c.id.Shards }

// Node returns the address of the node in its cluster.
func (c *Copy) Node() string { return c.id.Address }

func (c *Copy) entries(ctx context.Context, shard uint32) quorum.Entries {
	return func(fn func(at wlog.Index, entry []byte) error) error {
		return c.reader.Read(ctx, shard, func(at wlog.Index, _ *wlog.Header, entry []byte) error { return fn(at, entry) })
	}
}

// Close unlocks the copy for other processes.
func (c *Copy) Close() error { return c.reader.Close() }

// Restore makes a node's folder from a copy, for a new cluster.
func Restore(ctx context.Context, c *Copy, dir string) (entries int, err error) {
	m, err := Make(dir, c.Shards())
	if err != nil {
		return 0, err
	}
	return m.restore(ctx, c)
}

// RestoreIn is Restore for a data directory that the caller has locked, and marked with
// [Mark]. Other things may be in it.
func RestoreIn(ctx context.Context, c *Copy, dir string) (entries int, err error) {
	m := &Made{dir: dir, shards: c.Shards(), number: newNumber(), unlock: func() error { return nil }}
	if err := m.begin(); err != nil {
		return 0, err
	}
	return m.restore(ctx, c)
}

func (m *Made) restore(ctx context.Context, c *Copy) (entries int, err error) {
	m.writes = c.id.Writes
	for shard := range c.Shards() + 1 {
		var f *quorum.Founding
		if f, err = m.Refound(ctx, c, shard); err != nil {
			return 0, errors.Join(fmt.Errorf("shard %d: %w%s", shard, err, copyHint(err)), m.Close())
		}
		entries += f.Entries()
	}
	return entries, m.Finish(ctx)
}

func copyHint(err error) string {
	if errors.Is(err, quorum.ErrNothing) || errors.Is(err, quorum.ErrNoVote) || errors.Is(err, quorum.ErrIncomplete) || errors.Is(err, wlog.ErrDamaged) {
		return "; restore the copy of another node"
	}
	return ""
}
