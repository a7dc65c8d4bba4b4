package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/sdk/hook"
)

// importSource has the definitions in the logs of a broker that is alone, in either format.
type importSource struct {
	registry *importFold // has users and global parameters
	vhosts   map[string]sourceVHost
	at       hook.Instant // when the last definition of the registry was written
	last     uint64       // the highest number that a queue got in any of the logs
	shards   uint64       // number of shards, if each numbers its queues by itself; 0 = the numbers are unique in all shards together
}

type sourceVHost struct {
	metadata    vhost.Metadata
	state       *vhost.Definitions // nil = the vhost is placed in a shard, and was not made there yet
	definitions []byte             // those in force, as they were written
}

func readSource(ctx context.Context, from *seg.Reader) (*importSource, error) {
	version, err := from.Version()
	if err != nil {
		return nil, err
	}
	s := &importSource{vhosts: map[string]sourceVHost{}}
	if s.registry = newImportFold(scopeOfMixed); version == aloneFormat {
		s.registry = newImportFold(registryScopeOf)
	}
	err = from.Read(ctx, registryShard, func(index wlog.Index, h *wlog.Header, entry []byte) error {
		s.at = h.Time
		return s.registry.entry(0, index, entry)
	})
	if err == nil {
		err = s.registry.done()
	}
	if err != nil {
		return nil, err
	}
	if version == aloneFormat {
		return s, s.readShards(ctx, from)
	}
	s.last = s.registry.numbers
	for name, v := range s.registry.vhosts {
		s.vhosts[name] = sourceVHost{v.vhost.Metadata(), v.vhost, s.registry.definitions(scope{scopeVHost, name})}
	}
	return s, nil
}

// readShards reads the definitions in the shards of vhosts. It keeps only vhosts that the
// registry places in the shard.
func (s *importSource) readShards(ctx context.Context, from *seg.Reader) error {
	folds := map[uint32]*importFold{}
	skip := &queue.Splitter{Number: func(uint64) (uint64, int, bool) { return 0, 0, false }}
	for _, shard := range from.Shards() {
		if shard == registryShard {
			continue
		}
		f := newImportFold(scopeOfShard)
		folds[shard] = f
		err := from.Read(ctx, shard, func(index wlog.Index, _ *wlog.Header, entry []byte) error {
			return s.divide(index, entry, skip, func(d *definition.Definition) error { return f.read(0, d) })
		})
		if err == nil {
			err = f.err()
		}
		if err != nil {
			return err
		}
		s.last, s.shards = max(s.last, f.numbers), max(s.shards, uint64(shard))
	}
	for name, p := range s.registry.registry.placements {
		v := sourceVHost{metadata: p.Metadata}
		if f := folds[p.Shard]; f != nil {
			if of := f.scopes[scope{scopeVHost, name}]; of != nil && of.vhost.Placement() == p.Number {
				v.state, v.definitions = of.vhost, f.definitions(scope{scopeVHost, name})
			}
		}
		s.vhosts[name] = v
	}
	return nil
}

// divide passes the operations of an entry on to a splitter, and its definitions to a function.
func (*importSource) divide(at wlog.Index, entry []byte, ops *queue.Splitter, defs func(*definition.Definition) error) (err error) {
	for len(entry) > 0 && err == nil {
		if entry[0] != 0 {
			entry, err = ops.Entry(entry)
			continue
		}
		var d *definition.Definition
		if d, entry, err = definition.Next(entry); err == nil {
			err = defs(d)
		}
	}
	if err != nil {
		return fmt.Errorf("entry %#x: %w", at, err)
	}
	return nil
}

// moved returns the number that a queue gets in the given shard; no other queue gets the
// same one. An example: two shards number their queues by themselves. Then queues 1, 2, 3
// of shard 1 become 2, 4, 6, and queues 1, 2, 3 of shard 2 become 3, 5, 7.
func (s *importSource) moved(id uint64, shard uint32) uint64 {
	n := id >> shardBits
	if s.shards > 0 {
		n = n*s.shards + id&(1<<shardBits-1) - 1
	}
	return n<<shardBits | uint64(shard)
}

// given returns a bound of the numbers that moved gives to queues, in all shards, without
// the bits for the shard.
func (s *importSource) given() uint64 {
	if s.shards > 0 {
		return (s.last + 1) * s.shards
	}
	return s.last
}

// importFold reads the definitions of a log. For each scope it keeps the definitions in
// force, as they were written.
type importFold struct {
	fold
	kept     map[scope]*keptScope
	registry registryState
	numbers  uint64 // that were given to queues
}

// keptScope has the definitions of a scope, and the state that they build, without policies
// and parameters.
type keptScope struct {
	applier
	definitions []byte
}

// Apply adds the next definition.
func (k *keptScope) Apply(d *definition.Definition) error {
	if resets(d.Op) {
		k.definitions = nil
	}
	k.definitions = amqp.AppendTable(k.definitions, d.Fields)
	if vhost.ForPlugins(d.Op) {
		return nil
	}
	return k.applier.Apply(d)
}

func newImportFold(scopeOf func(d *definition.Definition) (scope, error)) *importFold {
	f := &importFold{kept: map[scope]*keptScope{}, registry: newRegistryState()}
	f.fold = newFold(scopeOf, f.begin)
	f.given = func(number uint64) { f.numbers = max(f.numbers, number) }
	return f
}

// scopeOfMixed returns the scope of a definition in the format before this one.
func scopeOfMixed(d *definition.Definition) (scope, error) { return scopeOf(d), nil }

func (f *importFold) begin(of scope) *foldScope {
	s, k := &foldScope{}, &keptScope{}
	switch of.kind {
	case scopeVHost:
		s.vhost = vhost.NewDefinitions(nil, nil)
		k.applier = s.vhost
	case scopeUsers:
		k.applier = auth.New(auth.Options{})
	case scopeGlobals:
		k.applier = globalValues{}
	case scopeMembers, scopePlacements, scopeModule:
		k.applier = &f.registry
	case scopeShard:
		k.applier = noState{}
	default:
		return nil
	}
	s.state, f.kept[of] = k, k
	return s
}

// definitions returns the definitions in force of a scope.
func (f *importFold) definitions(of scope) []byte {
	if f.scopes[of] == nil {
		return nil
	}
	return f.kept[of].definitions
}

// done returns the failures that were not voided.
func (f *importFold) done() error {
	err := f.err()
	if err == nil && len(f.definitions(scope{kind: scopeUsers})) == 0 && len(f.registry.placements) == 0 {
		for range f.vhosts {
			return nil
		}
		return errNeverRan
	}
	return err
}

var errNeverRan = errors.New("there are no virtual hosts and no users: no broker has run on it")
