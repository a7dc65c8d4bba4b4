package cluster

import (
	"slices"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/sdk/hook"
)

// shortages are the shards for whose logs disks lack space: this node's, and, as far as they say so, those of the others. Any goroutine may
// use them.
type shortages struct {
	crowded func(shard uint32, low bool) // hears of the others'; nil = nobody wants to know

	mu     sync.Mutex // guards the rest
	short  []uint32   // here, in order
	others map[wlog.NodeID]shortageReport
	told   []uint32 // what crowded knows
}

// shortageReport is what a node has said last.
type shortageReport struct {
	short []uint32
	at    hook.Instant
}

// reportLasts is how long a report counts: nodes say it again each second.
const reportLasts = 10 * time.Second

// note passes on what the local logs say of their space, and remembers it.
func (s *shortages) note(next func(uint32, *seg.Shortage)) func(uint32, *seg.Shortage) {
	return func(shard uint32, low *seg.Shortage) {
		s.set(shard, low != nil)
		if next != nil {
			next(shard, low)
		}
	}
}

func (s *shortages) set(shard uint32, low bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, known := slices.BinarySearch(s.short, shard)
	switch {
	case low && !known:
		s.short = slices.Insert(s.short, i, shard)
	case !low && known:
		s.short = slices.Delete(s.short, i, i+1)
	}
}

// own returns the shards that this node's disk lacks space for.
func (s *shortages) own() []uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.short)
}

// heard takes what another node's disk lacks space for, and owns short.
func (s *shortages) heard(from wlog.NodeID, short []uint32, now hook.Instant) {
	if s.crowded == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock() // crowded is told one thing after the other
	if s.others == nil {
		s.others = map[wlog.NodeID]shortageReport{}
	}
	s.others[from] = shortageReport{short, now}
	var all []uint32
	for node, r := range s.others {
		if now.Sub(r.at) > reportLasts {
			delete(s.others, node)
			continue
		}
		all = append(all, r.short...)
	}
	slices.Sort(all)
	was := s.told
	s.told = slices.Compact(all)
	for _, shard := range s.told {
		s.crowded(shard, true) // each time: who listens may not have listened before
	}
	for _, shard := range was {
		if !slices.Contains(s.told, shard) {
			s.crowded(shard, false)
		}
	}
}
