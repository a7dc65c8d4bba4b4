package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/sdk/hook"
)

// DefaultVHost is the vhost that a new data directory has.
const DefaultVHost = "/"

// Open recovers what the logs hold. The end of ctx ends it, with an error.
func Open(ctx context.Context, o Options) (*Store, error) {
	s := &Store{
		log: o.Log, spread: uint64(o.Shards), worthwhile: cmp.Or(o.Extent, minCompactBytes),
		alarms: newAlarms(o.Log, o.Telemetry),
		making: vhost.Config{Chain: o.Chain, Clock: o.Clock, Log: o.Log, Telemetry: o.Telemetry, MaxBindings: o.Bindings},
		disk:   disk{dir: o.Dir, changed: make(chan struct{}, 1), ended: make(chan struct{})},
		vhosts: vhosts{all: map[string]vhostEntry{}},
	}
	s.disk.limit.Store(max(o.DiskLimit, 0))
	s.keeper = newKeeper(s, scope{kind: scopeUsers})
	s.users = auth.New(auth.Options{Hashing: o.Hashing, Keeper: s.keeper, VHost: s.vhosts.has})
	s.globals = globals{keeper: newKeeper(s, scope{kind: scopeGlobals}), all: map[string]json.RawMessage{}}
	r := &recovery{store: s, options: o, began: o.Clock(), reported: o.Clock(), vhosts: map[string]*recoveringVHost{}, rewrites: rewrites{}}
	var err error
	s.engine, err = seg.New(o.Dir, seg.Options{
		Durability: o.Durability, Firm: []uint32{definitionsShard}, Short: []uint32{definitionsShard},
		SegmentSize: o.SegmentSize, Clock: o.Clock, Events: r.events(),
	})
	if err != nil {
		return nil, err
	}
	if err := r.run(ctx); err != nil {
		return nil, errors.Join(err, s.abandon(ctx))
	}
	s.watchDisk()
	return s, nil
}

// abandon closes what was opened.
func (s *Store) abandon(ctx context.Context) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	cancel() // nothing was committed that would be worth waiting for
	for _, d := range s.shards {
		if d.Writer != nil {
			_ = d.Close(ctx)
		}
	}
	if s.meta != nil {
		_ = s.meta.Close(ctx)
	}
	return s.engine.Close()
}

// recovery is the making of a store from its logs.
type recovery struct {
	store   *Store
	options Options
	vhosts  map[string]*recoveringVHost
	people  bool        // users were defined
	doubt   replayError // of definitions of users

	rewrites rewrites

	began, reported hook.Instant
	entries         int
	bytes           int64
	messages        int
	queues          int
}

func (r *recovery) events() seg.Events {
	s := r.store
	return seg.Events{
		Space:    s.space,
		Progress: r.progress,
		Cut: func(shard uint32, file string, offset int64) {
			s.log.Warn("the last entry of a log was not finished, and is dropped: nobody was told that it was durable",
				"shard", shard, "file", file, "offset", offset)
		},
	}
}

// recoveringVHost is a vhost in the making.
type recoveringVHost struct {
	keeper      *definitionLog
	definitions *vhost.Definitions
	doubt       replayError
}

// replayError is the first definition that made no sense, nil if all did. What a definition builds on may have been given back to
// the disk with the front of the log: then what replaces all of them follows.
type replayError struct{ err error }

// note takes in what came of a definition, which may make all those before it void.
func (d *replayError) note(err error, anew bool) {
	if anew {
		d.err = nil
	}
	if d.err == nil {
		d.err = err
	}
}

func (r *recovery) run(ctx context.Context) error {
	if err := r.openDefinitions(ctx); err != nil {
		return errorOf(definitionsShard, err)
	}
	if err := r.makeShards(ctx); err != nil {
		return err
	}
	shells, err := r.makeVHosts()
	if err == nil {
		err = r.makeUsers()
	}
	if err != nil {
		return errorOf(definitionsShard, err)
	}
	restorers := make([]*queue.Replayer, len(r.store.shards))
	for i, d := range r.store.shards {
		if restorers[i], err = r.openShard(ctx, d, shells); err != nil {
			return errorOf(d.number, err)
		}
	}
	for i, d := range r.store.shards { // now that all are there: what dies in one shard may go to another
		d.Recovered(nil) // the queues have accounted for theirs
		restorers[i].Start()
	}
	r.store.recovered.Store(true)
	r.summarise()
	return nil
}

// opNumbers is a definition of our own: numbers up to "last" were given to queues.
const (
	opNumbers = "numbers"
	fieldLast = "last"
)

func numbersDefinition(vhost string, last uint64) amqp.Table {
	return amqp.Table{{Key: "op", Value: opNumbers}, {Key: "vhost", Value: vhost}, {Key: fieldLast, Value: int64(last)}}
}

func (r *recovery) openDefinitions(ctx context.Context) error {
	s := r.store
	o := journal.Options{
		Extent: cmp.Or(r.options.Extent, definitionsExtent), Slack: s.worthwhile, Reclaim: s.reclaim,
		Purpose: wlog.Moving, // they are small, and who comes to make room may have to declare something first
		OnFull:  func(full bool) { s.alarms.wait(definitionsShard, full) },
		OnFailed: func(err error) {
			s.alarms.fail(definitionsShard)
			s.log.Error("the log of definitions failed: nothing durable can be declared or deleted until the broker is started again", "error", err)
			s.running.Go(func() {
				for _, v := range s.VHosts() {
					v.FailDefinitions(err)
				}
			})
		},
	}
	var err error
	s.meta, err = journal.Open(ctx, s.engine, definitionsShard, r.define, o)
	if err != nil {
		return err
	}
	if err := r.doubts(); err != nil {
		return err
	}
	var live []journal.Delta
	for _, v := range r.vhosts {
		live = append(live, v.keeper.tally.uses...)
	}
	live = append(live, s.keeper.tally.uses...)
	live = append(live, s.globals.keeper.tally.uses...)
	s.meta.Recovered(live)
	return nil
}

// define takes in an entry of definitions.
func (r *recovery) define(extent uint32, at wlog.Index, ops []byte) error {
	r.count(ops)
	for def, err := range vhost.ParseDefinitions(ops) {
		if err == nil {
			err = r.apply(extent, &def)
		}
		if err != nil {
			return fmt.Errorf("entry %#x: %w", at, err)
		}
	}
	return nil
}

func (r *recovery) apply(extent uint32, def *vhost.Definition) error {
	if def.Op == opRewrite {
		return r.applyPart(extent, def)
	}
	r.rewrites.pass(extent, def)
	if t := r.tallyOf(def); t != nil {
		t.recall(extent, def.Size, resets(def))
	}
	return r.take(def)
}

// applyPart takes in a part of a rewrite.
func (r *recovery) applyPart(extent uint32, def *vhost.Definition) error {
	p, err := partOf(def)
	if err != nil {
		return err
	}
	k, err := r.keeperOf(p.of)
	if err != nil {
		return fmt.Errorf("definition %q: %w", def.Op, err)
	}
	if k != nil {
		k.tally.add(extent, int64(def.Size))
	}
	w := r.rewrites.found(extent, &p, def.Size)
	if w == nil {
		return nil
	}
	if k == nil {
		k = r.vhost(p.of.vhost).keeper
	}
	k.tally = w.tally
	for def, err := range vhost.ParseDefinitions(w.definitions) {
		if err == nil {
			err = r.take(&def)
		}
		if err != nil {
			return fmt.Errorf("rewritten %s %q: %w", p.of.kind, p.of.vhost, err)
		}
	}
	return nil
}

// keeperOf is where a part of a rewrite is accounted; nil if it is of a vhost that is not there, or not yet: an unfinished
// rewrite makes none, nor does what is left of the last one, which deleted it.
func (r *recovery) keeperOf(of scope) (*definitionLog, error) {
	switch of.kind {
	case scopeVHost:
		if v := r.vhosts[of.vhost]; v != nil {
			return v.keeper, nil
		}
		return nil, nil
	case scopeUsers:
		return r.store.keeper, nil
	case scopeGlobals:
		return r.store.globals.keeper, nil
	}
	return nil, fmt.Errorf("of %q, which is unknown", of.kind)
}

// resets reports whether nothing that was defined before counts any more.
func resets(def *vhost.Definition) bool {
	return auth.Resets(def.Op) || def.Op == opNoGlobals || def.Resets()
}

// tallyOf is where a definition is accounted; nil if it is of a vhost that is gone.
func (r *recovery) tallyOf(def *vhost.Definition) *logUsage {
	switch of := scopeOf(def); {
	case of.kind == scopeUsers:
		return &r.store.keeper.tally
	case of.kind == scopeGlobals:
		return &r.store.globals.keeper.tally
	case def.Op == opNumbers && r.vhosts[of.vhost] == nil:
		return nil
	default:
		return &r.vhost(of.vhost).keeper.tally
	}
}

// take takes in what a definition says.
func (r *recovery) take(def *vhost.Definition) error {
	s := r.store
	switch {
	case def.Op == opNumbers:
		last, _ := def.Fields().Lookup(fieldLast)
		n, _ := last.(int64)
		r.number(uint64(n))
	case auth.IsUserOp(def.Op):
		r.people = true
		r.doubt.note(s.users.Apply(def.Op, def.Fields()), auth.Resets(def.Op))
	case definesGlobals(def.Op):
		return s.globals.apply(def.Op, def.Fields())
	case def.Deletes():
		delete(r.vhosts, def.VHost)
	default:
		if id, ok := def.Number(); ok {
			r.number(id >> shardBits)
		}
		v := r.vhost(def.VHost)
		v.doubt.note(v.definitions.Apply(def), def.Resets())
	}
	return nil
}

// doubts are the definitions that made no sense.
func (r *recovery) doubts() error {
	errs := []error{r.doubt.err}
	for _, v := range r.vhosts {
		errs = append(errs, v.doubt.err)
	}
	return errors.Join(errs...)
}

// number takes note of a number that was given to a queue.
func (r *recovery) number(n uint64) {
	r.store.numbers.Store(max(r.store.numbers.Load(), n))
}

func (r *recovery) vhost(name string) *recoveringVHost {
	v := r.vhosts[name]
	if v == nil {
		v = &recoveringVHost{keeper: newKeeper(r.store, scope{scopeVHost, name}), definitions: vhost.NewDefinitions(r.options.Rules)}
		r.vhosts[name] = v
	}
	return v
}

// makeShards makes the shards that are to be opened: those that are asked for, and those that have a log.
func (r *recovery) makeShards(ctx context.Context) error {
	n := uint32(r.options.Shards)
	logs, err := r.store.engine.Shards(ctx)
	if err != nil {
		return err
	}
	for _, number := range logs {
		n = max(n, number)
	}
	if n > MaxShards {
		return fmt.Errorf("shard %d: the highest number is %d", n, MaxShards)
	}
	for number := uint32(1); number <= n; number++ {
		r.store.shards = append(r.store.shards, &shard{number: number, store: r.store})
	}
	return nil
}

// makeVHosts makes the vhosts and their durable queues, which are empty yet.
func (r *recovery) makeVHosts() (shells []*queue.Mailbox, err error) {
	if len(r.vhosts) == 0 && !r.people {
		return nil, r.createDefaults()
	}
	for name, v := range r.vhosts {
		made := r.store.newVHost(name, vhost.Metadata{}, v.keeper)
		r.store.vhosts.add(made)
		more, err := made.Restore(v.definitions, r.place)
		if err != nil {
			return nil, err
		}
		shells = append(shells, more...)
		v.keeper.tally.least = int64(len(made.Definitions()))
	}
	r.queues = len(shells)
	return shells, nil
}

// createDefaults makes the default vhost and writes its definitions, the first ones.
func (r *recovery) createDefaults() error {
	k := r.vhost(DefaultVHost).keeper
	v := r.store.newVHost(DefaultVHost, vhost.Metadata{Description: "Default virtual host"}, k)
	r.store.vhosts.add(v)
	k.Rewrite(slices.Values([][]byte{v.Definitions()}))
	return k.WaitDurable()
}

// makeUsers gives a data directory that never had users those of a new one.
func (r *recovery) makeUsers() error {
	s := r.store
	s.keeper.tally.least = int64(len(s.users.Definitions()))
	if r.people {
		return nil
	}
	return s.users.CreateDefaults()
}

// place finds the place of a queue that there was before.
func (r *recovery) place(id uint64) (*queue.Storage, error) {
	shard := id & (1<<shardBits - 1)
	if shard == 0 || shard > uint64(len(r.store.shards)) {
		return nil, fmt.Errorf("number %d: there is no shard %d", id, shard)
	}
	return r.store.shards[shard-1].record(id), nil
}

// openShard fills the shard's queues, which are to be started then.
func (r *recovery) openShard(ctx context.Context, d *shard, shells []*queue.Mailbox) (*queue.Replayer, error) {
	var own []*queue.Mailbox
	for _, q := range shells {
		if q.Config().Storage.Journal == queue.Journal(d) {
			own = append(own, q)
		}
	}
	messages := queue.NewReplayer(own)
	replay := func(extent uint32, at wlog.Index, ops []byte) error {
		r.count(ops)
		if err := messages.Apply(extent, ops); err != nil {
			return fmt.Errorf("entry %#x: %w", at, err)
		}
		return nil
	}
	j, err := journal.Open(ctx, r.store.engine, d.number, replay, journal.Options{
		Extent:   cmp.Or(r.options.Extent, min(messagesExtent, r.store.engine.SegmentSize()/extentsPerSegment)),
		Slack:    cmp.Or(r.options.Extent, min(messagesExtent, slackSegments*r.store.engine.SegmentSize())),
		Size:     wlog.EntrySize,
		OnFull:   func(full bool) { r.store.alarms.wait(d.number, full) },
		OnFailed: d.failed,
		Reclaim:  d.reclaim,
	})
	if err != nil {
		return nil, err
	}
	d.open(j)
	r.messages += messages.Fill()
	return messages, nil
}

func (r *recovery) count(ops []byte) {
	r.entries++
	r.bytes += int64(len(ops))
}

// progress reports how far the reading of a shard has come, once a second.
func (r *recovery) progress(shard uint32, done, total int64) {
	now := r.options.Clock()
	if now.Sub(r.reported) < time.Second {
		return
	}
	r.reported = now
	r.store.log.Info("recovering", "shard", shard, "bytes", done, "of", total, "seconds", now.Sub(r.began).Seconds())
}

func (r *recovery) summarise() {
	if r.entries == 0 {
		return
	}
	ended := r.options.Clock()
	r.store.log.Info("recovered", "queues", r.queues, "messages", r.messages, "entries", r.entries, "bytes", r.bytes,
		"seconds", ended.Sub(r.began).Seconds())
	if s := r.options.Telemetry.Spans(); s != nil {
		s.Recovered(&telemetry.Recovery{
			Began: r.began, Ended: ended, Bytes: r.bytes, Entries: r.entries, Messages: r.messages, Queues: r.queues,
		})
	}
}
