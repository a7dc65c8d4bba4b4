package store

import (
	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/wlog/seg"
)

// LogStats is the state of a log.
type LogStats struct {
	Shard uint32 // 0: the definitions'
	journal.Stats
	Disk seg.Stats
}

// Logs returns the state of all logs, in the order of their shards.
func (s *Store) Logs() []LogStats {
	all := make([]LogStats, 0, 1+len(s.shards))
	all = append(all, s.logStats(definitionsShard, s.meta))
	for _, d := range s.shards {
		all = append(all, s.logStats(d.number, d.Writer))
	}
	return all
}

func (s *Store) logStats(number uint32, j *journal.Writer) LogStats {
	disk, _ := s.engine.Stats(number)
	return LogStats{Shard: number, Stats: j.Stats(), Disk: disk}
}
