package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Import converts the logs of a broker that was alone into logs of a cluster, or into logs
// of the present format. A vhost's definitions and messages go to one shard. Operations are
// copied as they are, so that no detail is lost and no plugin is needed; only the numbers
// of queues change.
type Import struct {
	From    *seg.Reader
	Shards  uint32   // of vhosts in the cluster, 1 to [MaxShards]
	Modules []Module // for the registry; their revisions need not be set
	// To returns where a shard's log is written. It is called once for each.
	To func(shard uint32) (ImportLog, error)

	from   *importSource
	vhosts []*importedVHost
	queues map[uint64]importedQueue
	logs   []ImportLog
}

// ImportLog takes the entries of a log, in order, with the times when they were written.
type ImportLog interface {
	Append(ctx context.Context, at hook.Instant, entry []byte) error
}

// Imported counts the contents of an import.
type Imported struct {
	VHosts, Queues, Modules int
	Entries                 int   // with messages, in the broker's logs
	Bytes                   int64 // of them
}

// importedVHost is a vhost with its place in the cluster.
type importedVHost struct {
	Placement
	definitions []byte // nil = there are none yet: the owner makes the vhost
}

// importedQueue is a queue, or an exchange that holds messages.
type importedQueue struct {
	name  string
	shard uint32
	to    uint64 // its number in the cluster
}

// Run writes the logs of the cluster.
func (i *Import) Run(ctx context.Context) (done Imported, err error) {
	if i.Shards < 1 || i.Shards > MaxShards {
		return done, fmt.Errorf("%d shards: a cluster has 1 to %d", i.Shards, MaxShards)
	}
	if !slices.Contains(i.From.Shards(), registryShard) {
		return done, errors.New("there is no log of definitions, shard 0: it is no data folder of a broker")
	}
	if i.from, err = readSource(ctx, i.From); err != nil {
		return done, fmt.Errorf("definitions: %w", err)
	}
	if err := i.place(); err != nil {
		return done, err
	}
	at := i.from.at
	for shard := range i.Shards + 1 {
		log, err := i.To(shard)
		if err != nil {
			return done, err
		}
		i.logs = append(i.logs, log)
	}
	if err := i.writeRegistry(ctx, at); err != nil {
		return done, err
	}
	for _, v := range i.vhosts {
		if err := i.writeVHost(ctx, at, v); err != nil {
			return done, err
		}
	}
	done.VHosts, done.Modules = len(i.vhosts), len(i.Modules)
	for _, v := range i.from.vhosts {
		if v.state != nil {
			done.Queues += v.state.Queues()
		}
	}
	return done, i.writeMessages(ctx, &done)
}

// place gives the vhosts places, by their names, and the queues numbers.
func (i *Import) place() error {
	i.queues = map[uint64]importedQueue{}
	all := i.from.vhosts
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(btoi(a != DefaultVHost), btoi(b != DefaultVHost)), cmp.Compare(a, b))
	})
	for n, name := range names {
		v := all[name]
		shard := uint32(n)%i.Shards + 1
		i.vhosts = append(i.vhosts, &importedVHost{
			Placement:   Placement{VHost: name, Shard: shard, Number: uint64(n) + 1, Metadata: v.metadata},
			definitions: v.definitions,
		})
		if v.state == nil {
			continue
		}
		for id, what := range v.state.Stored {
			if other, twice := i.queues[id]; twice {
				return fmt.Errorf("number %d is that of %s and of %s in vhost '%s'", id, other.name, what, name)
			}
			i.queues[id] = importedQueue{name: what + " in vhost '" + name + "'", shard: shard, to: i.from.moved(id, shard)}
		}
	}
	return nil
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// writeRegistry writes the registry, without members: the cluster adds them when it begins.
func (i *Import) writeRegistry(ctx context.Context, at hook.Instant) error {
	defs := amqp.AppendTable(nil, defineNoPlacements(uint64(len(i.vhosts))))
	for _, v := range i.vhosts {
		defs = amqp.AppendTable(defs, definePlacement(&v.Placement))
	}
	defs = slices.Concat(defs, i.from.registry.definitions(scope{kind: scopeUsers}), i.from.registry.definitions(scope{kind: scopeGlobals}))
	err := inPieces(defs, func(piece []byte) error { return i.logs[registryShard].Append(ctx, at, piece) })
	size := 0
	for n := range i.Modules {
		m := i.Modules[n]
		if size += len(m.Bytes); err == nil && (len(i.Modules) > MaxModules || size > maxModuleBytes) {
			err = fmt.Errorf("there are %d modules, the first %d of which have %d bytes: a cluster has up to %d with up to %d together",
				len(i.Modules), n+1, size, MaxModules, maxModuleBytes)
		}
		if err != nil {
			return err
		}
		m.Revision = newRevision()
		if err = CheckModule(&m); err != nil {
			return err
		}
		for def := range m.definitions() {
			if err = i.logs[registryShard].Append(ctx, at, amqp.AppendTable(nil, def)); err != nil {
				return err
			}
		}
	}
	return err
}

// importPiece is how many bytes of definitions an entry has, about.
const importPiece = 1 << 20

// inPieces calls fn with definitions in pieces, each for one entry.
func inPieces(defs []byte, fn func([]byte) error) error {
	for len(defs) > 0 {
		n := 0
		for n < len(defs) && n < importPiece {
			d, _, err := definition.Next(defs[n:])
			if err != nil {
				return err
			}
			n += d.Size
		}
		if err := fn(defs[:n]); err != nil {
			return err
		}
		defs = defs[n:]
	}
	return nil
}

// writeVHost writes the definitions of a vhost, and checks that a node of a cluster will
// read the same vhost from them.
func (i *Import) writeVHost(ctx context.Context, at hook.Instant, v *importedVHost) error {
	if v.definitions == nil {
		return nil
	}
	number := func(id uint64) uint64 { return i.from.moved(id, v.Shard) }
	var defs []byte
	check := vhost.NewDefinitions(nil, nil)
	for d, err := range definition.Parse(v.definitions) {
		if err != nil {
			return err
		}
		moved := amqp.AppendTable(nil, vhost.Moved(d, v.Number, number))
		defs = append(defs, moved...)
		if d, _, err = definition.Next(moved); err == nil && !vhost.ForPlugins(d.Op) {
			err = check.Apply(d)
		}
		if err != nil {
			return fmt.Errorf("vhost '%s': %w", v.VHost, err)
		}
	}
	if check.Placement() != v.Number {
		return fmt.Errorf("vhost '%s': its definitions do not begin with it", v.VHost)
	}
	defs = amqp.AppendTable(defs, numbersDefinition(v.VHost, i.from.given()))
	return inPieces(defs, func(piece []byte) error { return i.logs[v.Shard].Append(ctx, at, piece) })
}

// writeMessages writes the operations of all queues that there are.
func (i *Import) writeMessages(ctx context.Context, done *Imported) error {
	var at hook.Instant
	s := queue.Splitter{
		Number: func(id uint64) (to uint64, journal int, ok bool) {
			q, ok := i.queues[id]
			return q.to, int(q.shard), ok
		},
		Put: func(journal int, entry []byte, last uint64) error {
			err := i.logs[journal].Append(ctx, at, entry)
			if errors.Is(err, wlog.ErrTooLarge) {
				err = fmt.Errorf("%s: %w: let consumers take that message, or delete the queue, and import again", i.nameOf(last), err)
			}
			return err
		},
	}
	for _, shard := range i.From.Shards() {
		if shard == registryShard {
			continue
		}
		err := i.From.Read(ctx, shard, func(index wlog.Index, h *wlog.Header, entry []byte) error {
			at = max(at, h.Time)
			done.Entries++
			done.Bytes += int64(len(entry))
			return i.from.divide(index, entry, &s, func(*definition.Definition) error { return nil })
		})
		if err != nil {
			return err
		}
	}
	return s.Flush()
}

// nameOf names the queue that has a number in the cluster.
func (i *Import) nameOf(to uint64) string {
	for _, q := range i.queues {
		if q.to == to {
			return q.name
		}
	}
	return fmt.Sprintf("queue %d", to)
}

// Versions of the logs of a broker that is alone, see [seg.Options].
const (
	// mixedFormat: shard 0 has the definitions of all vhosts, and a queue's messages are in any other shard.
	mixedFormat = 1
	// aloneFormat: shard 0 is a registry, and each vhost lies whole in another shard, as in a cluster.
	aloneFormat = 2
)

// convert converts the logs of earlier versions to the present format. The old logs stay in
// the folder [seg.ReplacedFolder]. They are in force until the new logs are complete; from
// then on the new logs are in force.
func convert(ctx context.Context, o *Options, p *progress) error {
	version, err := seg.Version(o.Dir)
	if err != nil || version != mixedFormat {
		return err
	}
	from, err := seg.NewReader(o.Dir)
	if err != nil {
		return err
	}
	o.Log.Info("the data is being converted to the format of this version: earlier versions refuse it afterwards")
	began := o.Clock()
	done, err := importInto(ctx, from, o, p)
	if err != nil {
		hint := ""
		if errors.Is(err, wlog.ErrFull) || vfs.NoSpace(err) {
			hint = "; the conversion needs as much free space as the logs take: make space, and start the broker again"
		}
		return fmt.Errorf("the data cannot be converted to the format of this version, and is unchanged: %w%s", errors.Join(err, from.Abandon(), from.Close()), hint)
	}
	if err := errors.Join(from.Replace(), from.Close()); err != nil {
		return fmt.Errorf("the data is complete in the format of this version, but not in its place: start the broker again, which continues: %w", err)
	}
	o.Log.Info("the data is in the format of this version", "vhosts", done.VHosts, "queues", done.Queues, "bytes", done.Bytes,
		"seconds", o.Clock().Sub(began).Seconds(), "old_logs", seg.ReplacedFolder)
	return nil
}

// importInto writes the logs that replace the reader's.
func importInto(ctx context.Context, from *seg.Reader, o *Options, p *progress) (done Imported, err error) {
	into, err := from.Next()
	if err != nil {
		return done, err
	}
	c := &conversion{total: from.Bytes(), progress: p}
	engine, err := seg.New(into, seg.Options{
		Durability: seg.Flush, // Close makes everything durable
		Short:      []uint32{registryShard}, SegmentSize: o.SegmentSize, Version: aloneFormat,
		Clock: func() hook.Instant { return hook.Instant(c.now.Load()) },
	})
	if err != nil {
		return done, err
	}
	i := Import{From: from, Shards: uint32(o.Shards), To: func(shard uint32) (ImportLog, error) {
		log, err := engine.Open(ctx, shard, func(wlog.Index, []byte) error { return nil })
		return convertedLog{log, shard, c}, err
	}}
	done, err = i.Run(ctx)
	if errors.Is(err, errNeverRan) {
		err = nil // a broker ended before it had made anything
	}
	return done, errors.Join(err, engine.Close())
}

// conversion is how far a conversion is.
type conversion struct {
	now         atomic.Int64 // when the latest entry was written; segments are made with it in the background
	done, total int64        // bytes
	progress    *progress
}

// convertedLog is the log of a shard in the making.
type convertedLog struct {
	wlog.Log
	shard uint32
	*conversion
}

// Append implements [ImportLog].
func (l convertedLog) Append(ctx context.Context, at hook.Instant, entry []byte) error {
	l.now.Store(int64(at))
	_, err := l.Log.Append(ctx, entry, wlog.Bringing)
	l.done += int64(len(entry))
	l.progress.report(l.shard, l.done, l.total)
	return err
}
