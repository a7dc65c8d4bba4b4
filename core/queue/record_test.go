package queue

import (
	"testing"
)

// memoryJournal is a journal that makes everything durable at once and begins a
// new extent now and then.
type memoryJournal struct {
	entries []entry
	extent  uint32
	used    map[uint32]int64
}

type entry struct {
	extent uint32
	ops    []byte
}

var _ Journal = (*memoryJournal)(nil)

func (j *memoryJournal) Commit(ops []byte, live []Delta, c Completer) {
	if len(ops) > 0 {
		if len(j.entries)%10 == 0 {
			j.extent++
		}
		j.entries = append(j.entries, entry{j.extent, append([]byte(nil), ops...)})
	}
	j.account(live)
	if c != nil {
		c.Durable(0, 0)
	}
}

func (j *memoryJournal) Move(ops []byte, live []Delta) { j.Commit(ops, live, nil) }

func (j *memoryJournal) Err() error { return nil }

func (j *memoryJournal) Extent() uint32 {
	if j.extent == 0 {
		j.extent = 1
	}
	return j.extent
}

func (j *memoryJournal) account(ds []Delta) {
	if j.used == nil {
		j.used = map[uint32]int64{}
	}
	for _, d := range ds {
		j.used[d.Extent] += d.Bytes
	}
}

// trim drops the oldest entries up to the first extent that is of use.
func (j *memoryJournal) trim() {
	for len(j.entries) > 0 && j.used[j.entries[0].extent] == 0 && j.entries[0].extent < j.extent {
		j.entries = j.entries[1:]
	}
}

// check fails unless what is of use in the journal is what the queue holds.
func (j *memoryJournal) check(t *testing.T, q *Queue) {
	t.Helper()
	var used, want int64
	for e, n := range j.used {
		if n < 0 {
			t.Fatalf("extent %d: %d bytes are of use", e, n)
		}
		used += n
	}
	if q.contents == nil {
		return
	}
	for l := range q.levels {
		for _, c := range q.levels[l].chunks {
			for i := range c.slots {
				if s := &c.slots[i]; !s.is(gone) {
					want += weight(s)
				}
			}
		}
	}
	if used != want {
		t.Fatalf("%d bytes of the journal are of use, want %d", used, want)
	}
}
