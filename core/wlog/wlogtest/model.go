package wlogtest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/curfewmq/curfew/core/wlog"
)

// Model records the entries that were appended to a shard, and checks its replay. It belongs to one goroutine.
type Model struct {
	acked   []entry // entries for which Append returned an index
	doubt   []entry // later entries, whose Append failed: a first part of them may be there
	trimmed wlog.Index
	safe    int // number of acked entries that are certainly durable
	count   uint64
	loses   bool
}

// entry is an appended entry. Its contents follow from its number and size.
type entry struct {
	at     wlog.Index
	number uint64
	size   int
}

// Body returns the contents of the n-th entry, of size bytes. They differ for each n unless the size is small.
func Body(n uint64, size int) []byte {
	b := make([]byte, size)
	rng := rand.New(rand.NewPCG(n, uint64(size)))
	for i := 0; i < size; i += 8 {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], rng.Uint64())
		copy(b[i:], word[:])
	}
	return b
}

// Next returns the next entry to append, of size bytes.
func (m *Model) Next(size int) []byte {
	m.count++
	return Body(m.count, size)
}

// Count returns the number of the entry that Next returned last.
func (m *Model) Count() uint64 { return m.count }

// Appended records the result of appending the entry that Next returned last.
func (m *Model) Appended(at wlog.Index, size int, err error) error {
	return m.AppendedAs(m.count, at, size, err)
}

// AppendedAs records the result of appending an entry, which has a number and a size. It is called in the order of the numbers.
func (m *Model) AppendedAs(number uint64, at wlog.Index, size int, err error) error {
	e := entry{at: at, number: number, size: size}
	if err != nil {
		m.doubt = append(m.doubt, e)
		return nil
	}
	if len(m.doubt) > 0 {
		return fmt.Errorf("entry %d was appended, and entry %d before it was not", number, m.doubt[0].number)
	}
	if n := len(m.acked); n > 0 && m.acked[n-1].at >= at {
		return fmt.Errorf("append returned index %#x after %#x", at, m.acked[n-1].at)
	}
	m.acked = append(m.acked, e)
	return nil
}

// Refused records that the last entry was refused with ErrFull.
func (m *Model) Refused() { m.count-- }

// Trimmed records a Trim.
func (m *Model) Trimmed(before wlog.Index) { m.trimmed = max(m.trimmed, before) }

// MayLose allows the last entries to be lost, because they were not synced before a loss of power.
func (m *Model) MayLose() { m.loses = true }

// Len returns how many entries the shard must have at least.
func (m *Model) Len() int { return len(m.kept()) }

// At returns the index of the i-th of these entries.
func (m *Model) At(i int) wlog.Index { return m.kept()[i].at }

func (m *Model) kept() []entry {
	i := 0
	for i < len(m.acked) && m.acked[i].at < m.trimmed {
		i++
	}
	return m.acked[i:]
}

// Replay checks the replay of one opening of the shard.
type Replay struct {
	m    *Model
	next int // index in acked; -1 before the first entry
	new  int // number of doubtful entries that were replayed
}

// Replay returns a Replay. Pass its Entry to Open, and call its Done after Open has returned without an error.
func (m *Model) Replay() *Replay { return &Replay{m: m, next: -1} }

// Entry checks an entry.
func (r *Replay) Entry(at wlog.Index, body []byte) error {
	if r.next < 0 {
		if err := r.begin(at); err != nil {
			return err
		}
	}
	if r.next == len(r.m.acked) {
		return r.last(at, body)
	}
	e := r.m.acked[r.next]
	r.next++
	return e.check(at, body)
}

// begin finds the first entry. Trimmed entries may still be there, but none may be missing after it.
func (r *Replay) begin(at wlog.Index) error {
	kept := r.m.kept()
	r.next = len(r.m.acked) - len(kept)
	if len(kept) > 0 && at > kept[0].at {
		return fmt.Errorf("replay begins with entry %#x, and %#x is missing", at, kept[0].at)
	}
	for r.next > 0 && r.m.acked[r.next-1].at >= at {
		r.next--
	}
	return nil
}

// last checks an entry behind the acknowledged ones: it must be the next doubtful one.
func (r *Replay) last(at wlog.Index, body []byte) error {
	if r.new == len(r.m.doubt) {
		return fmt.Errorf("entry %#x with %d bytes was never acknowledged", at, len(body))
	}
	d, before := &r.m.doubt[r.new], wlog.Index(0)
	if r.new > 0 {
		before = r.m.doubt[r.new-1].at
	} else if n := len(r.m.acked); n > 0 {
		before = r.m.acked[n-1].at
	}
	r.new++
	if at <= before {
		return fmt.Errorf("entry %#x follows entry %#x", at, before)
	}
	d.at = at
	return d.check(at, body)
}

func (e entry) check(at wlog.Index, body []byte) error {
	if at != e.at {
		return fmt.Errorf("entry %d lies at %#x, want %#x", e.number, at, e.at)
	}
	if !bytes.Equal(body, Body(e.number, e.size)) {
		return fmt.Errorf("entry %d at %#x has other contents than were appended", e.number, at)
	}
	return nil
}

// Done checks that all entries were replayed. They are durable from now on, because the new owner has made them so.
func (r *Replay) Done() error {
	m := r.m
	none := r.next < 0
	if none {
		r.next = len(m.acked) - len(m.kept())
	}
	if r.next < len(m.acked) && (!m.loses || r.next < m.safe) {
		return fmt.Errorf("%d entries are missing from %#x on", len(m.acked)-r.next, m.acked[r.next].at)
	}
	if none {
		r.next = 0
	}
	m.acked = m.acked[:r.next]
	m.acked = append(m.acked, m.doubt[:r.new]...)
	m.doubt, m.loses, m.safe = nil, false, len(m.acked)
	return nil
}

// ReadBack checks that a random part of every entry can be read.
func (m *Model) ReadBack(t *testing.T, l wlog.Log, rng *rand.Rand) {
	t.Helper()
	for _, e := range m.kept() {
		from := rng.IntN(e.size + 1)
		p := make([]byte, rng.IntN(e.size-from+1))
		if err := l.ReadAt(t.Context(), e.at, from, p); err != nil {
			t.Fatalf("ReadAt(%#x, %d, %d bytes): %v", e.at, from, len(p), err)
		}
		if want := Body(e.number, e.size)[from:][:len(p)]; !bytes.Equal(p, want) {
			t.Fatalf("ReadAt(%#x, %d, %d bytes): got other bytes than were appended", e.at, from, len(p))
		}
	}
}
