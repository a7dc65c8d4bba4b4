package journal

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/campaign"
	"github.com/curfewmq/curfew/core/wlog"
)

// owner is what queues are to a shard: it has records in the log, settles them,
// and moves them when asked to. Operations are "+id,padding;", "-id;",
// "=id,value;", which changes a record, "_id;", which settles one that is
// accounted for later, and "^id;", which marks all records below id. "*id,padding;" is
// a copy of one that is marked.
type owner struct {
	s      *Writer
	extent map[int]uint32 // of the live records
	size   map[int]int64
	grown  map[int]int64 // by how much records are larger than the operations that brought them
	ops    map[int]string
	ids    []int
	next   int
	asked  chan uint32
	ledger *ledger // may be nil
	marks  bool    // it marks records
	marked int     // records below it are
	found  records // what the log amounted to when it was opened

	dead sync.Map // dead letters, by what died

	held      map[int]bool // records that are on their way in a redrive, or whose dead letter is
	brought   sync.Map     // the records that are durable
	confirmed sync.Map     // durable changes of records, by record
	mu        sync.Mutex   // guards the fields below
	arrived   []arrival
}

// arrival is what has to be accounted for, or settled, once something is durable.
type arrival struct {
	from   int
	remove bool // else a run has removed it
}

// model is the completer of a commit.
type model struct {
	of       *owner
	ops      string
	arrivals []arrival
}

func (m *model) Durable() {
	fold(m.ops, func(id int, op string) { m.of.brought.Store(id, "") }, func(int) {}, func(id int, op string) {
		_, value, _ := strings.Cut(op, ",")
		m.of.confirmed.Store(id, value)
	})
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	m.of.arrived = append(m.of.arrived, m.arrivals...)
}

func (*model) Failed(error) {}

func newOwner(t *testing.T, l *memLog, o Options) *owner {
	t.Helper()
	return newOwnerOf(t, memEngine{l}, o)
}

func newOwnerOf(t *testing.T, engine wlog.Engine, o Options) *owner {
	t.Helper()
	w := &owner{asked: make(chan uint32, 1)}
	o.Reclaim = func(upTo uint32) {
		select {
		case <-w.asked:
		default:
		}
		w.asked <- upTo
	}
	w.open(t, engine, o)
	return w
}

// open replays the log and accounts for what it finds.
func (w *owner) open(t *testing.T, engine wlog.Engine, o Options) {
	t.Helper()
	w.extent, w.size, w.ops, w.ids = map[int]uint32{}, map[int]int64{}, map[int]string{}, nil
	w.grown, w.held, w.found = map[int]int64{}, map[int]bool{}, records{}
	s, err := Open(t.Context(), engine, 1, func(extent uint32, _ wlog.Index, ops []byte) error {
		w.found.fold(string(ops))
		fold(string(ops), func(id int, op string) {
			w.extent[id], w.size[id] = extent, int64(len(op))
			w.ops[id] = cmp.Or(w.ops[id], "+"+op[1:])
		}, w.forget, func(id int, op string) {
			if w.ops[id] != "" {
				w.ops[id] = changed(w.ops[id], op)
			}
		})
		return nil
	}, o)
	if err != nil {
		t.Fatal(err)
	}
	var live []Delta
	for id := range w.extent {
		live = append(live, Delta{Extent: w.extent[id], Records: 1, Bytes: w.size[id]})
		w.ids = append(w.ids, id)
	}
	slices.Sort(w.ids)
	w.s = s
	s.Recovered(live)
}

func (w *owner) forget(id int) {
	delete(w.extent, id)
	delete(w.size, id)
	delete(w.ops, id)
	delete(w.grown, id)
}

// enqueue commits a record and accounts it to extent.
func (w *owner) enqueue(extent uint32, padding int) (id int) {
	w.next++
	w.commit(w.write(nil, extent, w.next, padding))
	w.ids = append(w.ids, w.next)
	return w.next
}

type turn struct {
	ops  strings.Builder
	live []Delta

	arrivals []arrival
}

func (w *owner) write(tn *turn, extent uint32, id, padding int) *turn {
	if tn == nil {
		tn = new(turn)
	}
	op := fmt.Sprintf("+%d,%s;", id, strings.Repeat(".", padding))
	if id < w.marked {
		tn.ops.WriteString("*" + op[1:])
	} else {
		tn.ops.WriteString(op)
	}
	if _, value, ok := strings.Cut(w.ops[id], "="); ok { // it is moved
		fmt.Fprintf(&tn.ops, "=%d,%s", id, value)
		defer func() { w.ops[id] += "=" + value }()
	}
	w.extent[id], w.size[id], w.ops[id] = extent, int64(len(op))+w.grown[id], op
	tn.live = append(tn.live, Delta{Extent: extent, Records: 1, Bytes: w.size[id]})
	return tn
}

// settle takes the record at place i of ids out.
func (w *owner) settle(tn *turn, i int) *turn {
	if tn == nil {
		tn = new(turn)
	}
	id := w.ids[i]
	fmt.Fprintf(&tn.ops, "-%d;", id)
	tn.live = append(tn.live, Delta{Extent: w.extent[id], Records: -1, Bytes: -w.size[id]})
	w.forget(id)
	w.ids = slices.Delete(w.ids, i, i+1)
	return tn
}

func (w *owner) commit(tn *turn) {
	var c Completer
	if w.ledger != nil {
		c = w.ledger.commit(tn.ops.String())
	} else {
		c = &model{w, tn.ops.String(), tn.arrivals}
	}
	w.s.Commit([]byte(tn.ops.String()), tn.live, c)
}

// move does what Reclaim asked for, if it did, in calls that are as small beside
// the log's segments as those of queues are.
func (w *owner) move() (moved int) {
	const call = 1 << 10 // bytes
	select {
	case upTo := <-w.asked:
		tn, in := new(turn), uint32(0)
		for _, id := range w.ids {
			if w.extent[id] > upTo || w.held[id] {
				continue
			}
			tn.live = append(tn.live, Delta{Extent: w.extent[id], Records: -1, Bytes: -w.size[id]})
			if tn.ops.Len() == 0 {
				in = w.s.Extent()
			}
			w.write(tn, in, id, int(w.size[id]-w.grown[id])-len(fmt.Sprintf("+%d,;", id)))
			moved++
			if tn.ops.Len() >= call {
				w.s.Relocate([]byte(tn.ops.String()), tn.live)
				tn = new(turn)
			}
		}
		w.s.Relocate([]byte(tn.ops.String()), tn.live)
	default:
	}
	return moved
}

// marksOf returns below which ids operations mark records.
func marksOf(ops string) iter.Seq[int] {
	return func(yield func(int) bool) {
		for op := range strings.SplitAfterSeq(ops, ";") {
			if strings.HasPrefix(op, "^") && !yield(number(op[1:])) {
				return
			}
		}
	}
}

func bringing(op string) bool { return strings.HasPrefix(op, "+") || strings.HasPrefix(op, "*") }

// fold carries out operations, but for marks.
func fold(ops string, add func(id int, op string), remove func(id int), change ...func(id int, op string)) {
	for op := range strings.SplitAfterSeq(ops, ";") {
		number, _, _ := strings.Cut(strings.Trim(op, "+*-=_;"), ",")
		id, _ := strconv.Atoi(number)
		switch {
		case bringing(op):
			add(id, op)
		case strings.HasPrefix(op, "-"), strings.HasPrefix(op, "_"):
			remove(id)
		case strings.HasPrefix(op, "=") && change != nil:
			change[0](id, op)
		}
	}
}

// changed is an operation that brings a record, after another that changes it.
func changed(op, change string) string {
	op, _, _ = strings.Cut(op, "=")
	_, value, _ := strings.Cut(change, ",")
	return op + "=" + value
}

// records is what entries amount to. The key 0 has below which id records are marked, if any are.
type records map[int]string

func (r records) fold(entry string) {
	fold(entry, func(id int, op string) {
		if r[id] == "" {
			r[id] = op
		}
	}, func(id int) { delete(r, id) }, func(id int, op string) {
		if r[id] != "" {
			r[id] = changed(r[id], op)
		}
	})
	for before := range marksOf(entry) {
		r[0] = strconv.Itoa(max(number(r[0]), before))
	}
}

// same reports whether there are the same records, of which the same are marked.
func (r records) same(o records) bool { return maps.Equal(r.each(), o.each()) }

// each returns the records, each with its mark.
func (r records) each() records {
	out := records{}
	for id, op := range r {
		switch {
		case id == 0:
		case id < number(r[0]):
			out[id] = "*" + op[1:]
		default:
			out[id] = op
		}
	}
	return out
}

// However commits, appends, trims, moves and restarts fall, what is left of the
// log always says the same as the whole of it would, and no entry brings back what
// one before it settled. What was marked stays so. After each entry a dead letter is in one place, or was settled there.
// Nothing that was committed waits for space: whatever has no grant is not committed, and in the end there is space for it.
func TestCampaignTrimming(t *testing.T) {
	for seed := range campaign.Size(t, "SIMULATION_SEEDS", 5, 20) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				trimAtRandom(t, rand.New(rand.NewPCG(seed, 1)), func(l *memLog) wlog.Engine { return memEngine{l} })
			})
		})
	}
}

func trimAtRandom(t *testing.T, rng *rand.Rand, engine func(*memLog) wlog.Engine) {
	t.Helper()
	var w *owner
	trims, rng2 := 0, rand.New(rand.NewPCG(rng.Uint64(), 2)) // for the shard's goroutine
	l := &memLog{gate: make(chan struct{}, 10_000)}
	ever, settled := records{}, map[int]bool{}
	l.written = func(entry string) {
		ever.fold(entry)
		fold(entry, func(int, string) {}, func(id int) { settled[id] = true })
		for id := range ever {
			if id > 0 && settled[id] {
				t.Errorf("record %d, which was settled, is back after entry %q", id, entry)
			}
		}
		for id := range w.brought.Range {
			if settled[id.(int)] {
				w.brought.Delete(id)
				continue
			}
			value, ok := w.confirmed.Load(id)
			if !ok {
				value = ""
			}
			_, is, _ := strings.Cut(strings.Trim(ever[id.(int)], ";"), "=")
			was, now := number(value.(string)), number(is)
			if ever[id.(int)] == "" || now < was {
				t.Errorf("record %d, which was durable as %v, is %q after entry %q", id, value, ever[id.(int)], entry)
			}
		}
		for from, to := range w.dead.Range {
			switch died, there := settled[from.(int)], ever[to.(int)] != ""; {
			case died && settled[to.(int)]:
				w.dead.Delete(from)
			case died && !there && !settled[to.(int)]:
				t.Errorf("record %d, which became %d, is lost after entry %q", from, to, entry)
			case !died && (there || settled[to.(int)]):
				t.Errorf("record %d, which became %d, is still there after entry %q", from, to, entry)
			}
		}
	}
	l.trimmed = func(before wlog.Index) error {
		trims++
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.folded().same(ever) {
			return fmt.Errorf("trimming before %d took a live record, or the mark of one", before)
		}
		return nil
	}
	extent := int64(50 + rng.IntN(500))
	if rng.IntN(2) == 0 { // a small disk
		l.room = 20*(extent+mostOfTurn) + 6000 + int64(rng.IntN(20_000))
	}
	w = newOwnerOf(t, engine(l), Options{
		Extent: extent,
		Entry:  100 + rng.IntN(400),
		Slack:  int64(100 + rng.IntN(1000)),
		Unit:   extent + mostOfTurn,
		Moves:  mostOfTurn,

		OnFailed: func(err error) {
			t.Error(err)
		},
	})
	w.marks = true
	l.fits = func(n int) bool { return n <= 20 || n/20 != rng2.IntN(20) } // sometimes another process has filled the disk
	many := 5 + rng.IntN(100)                                             // records, about
	old := w.s.Extent()
	for range 3000 {
		w.act(rng, many, old)
		switch rng.IntN(100) {
		case 0:
			old = w.s.Extent()
		case 1:
			time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
		case 2, 3, 4, 5, 6:
			w.move()
		}
		if rng.IntN(50) == 0 {
			w.s.SetLowSpace(rng.IntN(2) == 0)
		}
		if rng.IntN(200) == 0 {
			w.restart(t, l, engine(l))
			old = w.s.Extent()
		}
		for range rng.IntN(3) {
			l.gate <- struct{}{}
		}
		if rng.IntN(3) == 0 {
			synctest.Wait()
		}
	}
	w.finish(t, l)
	if l.overfull > 0 {
		t.Errorf("%d entries had no space", l.overfull)
	}
	if trims < 10 {
		t.Errorf("trimmed %d times: that tests little", trims)
	}
}

func number(s string) (n int) {
	n, _ = strconv.Atoi(strings.Trim(s, ";"))
	return n
}

func (w *owner) restart(t *testing.T, l *memLog, engine wlog.Engine) {
	t.Helper()
	for range 5000 - len(l.gate) {
		l.gate <- struct{}{}
	}
	if err := w.s.Sync(); err != nil {
		t.Fatal(err)
	}
	w.goOn()
	if err := w.s.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := w.s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for len(l.gate) > 0 {
		<-l.gate
	}
	before := maps.Clone(w.ops)
	w.open(t, engine, w.s.o)
	if !maps.Equal(before, w.ops) {
		t.Fatalf("after a restart there are %v, want %v", w.ops, before)
	}
	for id, op := range w.found.each() {
		if marked := op[0] == '*'; marked != (id < w.marked) {
			t.Errorf("after a restart record %d is marked: %v", id, marked)
		}
	}
}

// finish settles everything and expects the log to shrink to next to nothing.
func (w *owner) finish(t *testing.T, l *memLog) {
	t.Helper()
	w.s.SetLowSpace(false)
	for len(w.ids) > 0 {
		w.commit(w.settle(nil, 0))
	}
	for range 5000 {
		l.gate <- struct{}{}
	}
	if err := w.s.Sync(); err != nil {
		t.Error(err)
	}
	w.goOn()
	if err := w.s.Sync(); err != nil {
		t.Error(err)
	}
	st := w.s.Stats()
	if st.Live != 0 || st.Extents != 1 || st.LogBytes >= w.s.o.Extent {
		t.Errorf("with nothing live there are %+v", st)
	}
	if err := w.s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
