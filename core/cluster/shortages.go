package cluster

import (
	"slices"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/sdk/hook"
)

// shortages are the shards for whose logs a disk lacks space: this node's disk, and those of other nodes, as they report. Any goroutine may
// use them.
type shortages struct {
	crowded func(shard uint32, low bool) // called about other nodes' disks; nil = it is not called

	mu     sync.Mutex // guards the rest
	short  []uint32   // of this node's disk, in order
	others map[wlog.NodeID]shortageReport
	told   []uint32 // shards about which crowded was last called with true
}

// shortageReport is the last report of a node.
type shortageReport struct {
	short []uint32
	at    hook.Instant
}

// reportLasts is how long a report counts. Nodes repeat theirs each second.
const reportLasts = 10 * time.Second

// note returns a function that stores a shortage of the local logs and passes it to next.
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

// own returns the shards for which this node's disk lacks space.
func (s *shortages) own() []uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.short)
}

// heard takes a report of another node. The caller must not change short any more.
func (s *shortages) heard(from wlog.NodeID, short []uint32, now hook.Instant) {
	if s.crowded == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock() // while crowded is called, so that its calls follow one another
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
		s.crowded(shard, true) // repeated, because the shard's listener may have been registered later
	}
	for _, shard := range was {
		if !slices.Contains(s.told, shard) {
			s.crowded(shard, false)
		}
	}
}
