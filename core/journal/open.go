package journal

import (
	"context"
	"fmt"
	"sync"

	"github.com/curfewmq/curfew/core/wlog"
)

// Open opens a shard's log and hands every entry in it to fn, in order, with the
// extent it is in. fn must not keep ops. An error of fn ends the replay and is
// returned.
//
// Nothing is trimmed before Recovered has said what of it all is live.
func Open(ctx context.Context, engine wlog.Engine, shard uint32, fn func(extent uint32, at wlog.Index, ops []byte) error, o Options) (*Writer, error) {
	s := newWriter(o.withDefaults())
	log, err := engine.Open(ctx, shard, func(at wlog.Index, entry []byte) error {
		return fn(s.extents.append(at, s.o.Size(len(entry))), at, entry)
	})
	if err != nil {
		return nil, fmt.Errorf("journal: shard %d: %w", shard, err)
	}
	s.log = log
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	s.extent.Store(s.extents.current())
	return s, nil
}

func newWriter(o Options) *Writer {
	s := &Writer{
		most:    wlog.MaxEntry,
		o:       o,
		closing: make(chan struct{}),
		gather:  commitQueue{most: o.Entry},
		extents: newExtents(o.Extent),
		entries: newMeasures(),
	}
	s.work = s.run
	s.resting = sync.NewCond(&s.mu)
	return s
}

// Recovered says what is live of the entries that were replayed. It is called
// once, before the first commit.
func (s *Writer) Recovered(live []Delta) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range live {
		s.extents.add(d)
	}
	s.recovered = true
	s.wakeRunner()
}
