package journal

import (
	"cmp"
	"errors"
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

	"github.com/curfewmq/curfew/core/wlog"
)

// owner is what queues are to a shard: it has records in the log, settles them,
// and moves them when asked to. Operations are "+id,padding;", "-id;",
// "=id,value;", which changes a record, and "_id;", which settles one that is
// accounted for later.
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

	dead sync.Map // dead letters, by what died
	many sync.Map // what died with others, in one commit

	held      map[int]bool // records that are on their way in a redrive, or whose dead letter is
	brought   sync.Map     // the records that are durable
	confirmed sync.Map     // durable changes of records, by record
	mu        sync.Mutex   // guards what follows
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
	w.grown, w.held = map[int]int64{}, map[int]bool{}
	s, err := Open(t.Context(), engine, 1, func(extent uint32, _ wlog.Index, ops []byte) error {
		fold(string(ops), func(id int, op string) {
			w.extent[id], w.size[id] = extent, int64(len(op))
			w.ops[id] = cmp.Or(w.ops[id], op)
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
		live = append(live, Delta{w.extent[id], w.size[id]})
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
	tn.ops.WriteString(op)
	if _, value, ok := strings.Cut(w.ops[id], "="); ok { // it is moved
		fmt.Fprintf(&tn.ops, "=%d,%s", id, value)
		defer func() { w.ops[id] += "=" + value }()
	}
	w.extent[id], w.size[id], w.ops[id] = extent, int64(len(op))+w.grown[id], op
	tn.live = append(tn.live, Delta{extent, w.size[id]})
	return tn
}

// settle takes the record at place i of ids out.
func (w *owner) settle(tn *turn, i int) *turn {
	if tn == nil {
		tn = new(turn)
	}
	id := w.ids[i]
	fmt.Fprintf(&tn.ops, "-%d;", id)
	tn.live = append(tn.live, Delta{w.extent[id], -w.size[id]})
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
			if home := w.s.Home(w.extent[id]); home == 0 || home > upTo || w.held[id] {
				continue
			}
			tn.live = append(tn.live, Delta{w.extent[id], -w.size[id]})
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

// operations tell what those of owners do.
var operations = Operations{without, recordsOf}

func without(ops []byte, parts Parts) []byte {
	var kept []byte
	for op := range strings.SplitAfterSeq(string(ops), ";") {
		switch {
		case strings.HasPrefix(op, "+") && parts&Records != 0:
		case strings.HasPrefix(op, "-") && parts&Settlements != 0:
		default:
			kept = append(kept, op...)
		}
	}
	return kept
}

func recordsOf(ops []byte) (brought iter.Seq[Record], settled iter.Seq[Run]) {
	var in []Record
	var out []Run
	fold(string(ops), func(id int, _ string) { in = append(in, Record{Ref: uint64(id)}) }, func(id int) { out = append(out, Run{Record{Ref: uint64(id)}, 1}) })
	return slices.Values(in), slices.Values(out)
}

// fold carries out operations.
func fold(ops string, add func(id int, op string), remove func(id int), change ...func(id int, op string)) {
	for op := range strings.SplitAfterSeq(ops, ";") {
		number, _, _ := strings.Cut(strings.Trim(op, "+-=_;"), ",")
		id, _ := strconv.Atoi(number)
		switch {
		case strings.HasPrefix(op, "+"):
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

// records is what entries amount to.
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
}

// However commits, appends, trims, moves and restarts fall, what is left of the
// log always says the same as the whole of it would, and no entry brings back what
// one before it settled: a record that was settled ahead of what waited for space
// was there again once that was written, until the settlement was written again.
// After each entry a dead letter is in one place, unless it was settled there: then it
// is in none, as what settled it could be written before the entry that had moved it.
// Not so what was moved with others, in one commit: that stays in its old place, too,
// until all of them are settled or there is space for the commit.
func TestTrimmingNeverTakesALiveRecord(t *testing.T) {
	for seed := range uint64(20 / fewer) {
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
			if settled[id] {
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
			case !died && (there || settled[to.(int)]) && !w.withOthers(from):
				t.Errorf("record %d, which became %d, is still there after entry %q", from, to, entry)
			}
		}
	}
	l.trimmed = func(before wlog.Index) error {
		trims++
		l.mu.Lock()
		defer l.mu.Unlock()
		if !maps.Equal(l.folded(), ever) {
			return fmt.Errorf("trimming before %d took a live record", before)
		}
		return nil
	}
	w = newOwnerOf(t, engine(l), Options{
		Extent: int64(50 + rng.IntN(500)),
		Entry:  100 + rng.IntN(400),
		Slack:  int64(100 + rng.IntN(1000)),

		Operations: operations,
		OnFailed: func(err error) {
			t.Error(err)
		},
	})
	l.fits = func(n int) bool { return n <= 20 || n/20 != rng2.IntN(20) } // sometimes only less fits
	many := 5 + rng.IntN(100)                                             // records, about
	old := w.s.Current()
	for range 3000 {
		w.act(rng, many, old)
		switch rng.IntN(100) {
		case 0:
			old = w.s.Current()
		case 1:
			time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
		case 2, 3, 4, 5, 6:
			w.move()
		}
		if rng.IntN(50) == 0 {
			w.s.SetLowSpace(rng.IntN(2) == 0)
		}
		if rng.IntN(20) == 0 {
			l.keep(wlog.Purpose(rng.IntN(3)))
		}
		if rng.IntN(200) == 0 {
			w.restart(t, l, engine(l))
			old = w.s.Current()
		}
		for range rng.IntN(3) {
			l.gate <- struct{}{}
		}
		if rng.IntN(3) == 0 {
			synctest.Wait()
		}
	}
	w.finish(t, l)
	if trims < 10 {
		t.Errorf("trimmed %d times: that tests little", trims)
	}
}

func (w *owner) withOthers(id any) bool {
	many, _ := w.many.Load(id)
	return many == true
}

func number(s string) (n int) {
	n, _ = strconv.Atoi(strings.Trim(s, ";"))
	return n
}

// act does one thing that a queue might do.
func (w *owner) act(rng *rand.Rand, many int, old uint32) {
	w.goOn()
	n := len(w.ids)
	switch {
	case n > 8 && rng.IntN(12) == 0:
		w.several(rng)
	case rng.IntN(2*many) >= n && rng.IntN(10) == 0:
		w.enqueue(old, rng.IntN(60)) // in a turn that began long ago
	case rng.IntN(2*many) >= n:
		var tn *turn
		for in := w.s.Extent(); tn == nil || rng.IntN(3) == 0; {
			w.next++
			tn = w.write(tn, in, w.next, rng.IntN(60))
			w.ids = append(w.ids, w.next)
		}
		w.commit(tn)
	case rng.IntN(4) == 0: // dead-letter
		from := rng.IntN(n)
		w.next++
		w.dead.Store(w.ids[from], w.next)
		w.commit(w.write(w.settle(nil, from), w.s.Extent(), w.next, rng.IntN(60)))
		w.ids = append(w.ids, w.next)
	default: // mostly the oldest
		tn := w.settle(nil, min(rng.IntN(n), rng.IntN(n), rng.IntN(n)))
		if n > 1 && rng.IntN(4) == 0 {
			w.change(tn, rng.IntN(n-1))
		}
		if n > 1 && rng.IntN(4) == 0 {
			i := rng.IntN(n - 1)
			w.change(tn, i)
			w.grow(tn, i, 1+rng.Int64N(4))
		}
		w.commit(tn)
	}
}

// goOn accounts for what has arrived.
func (w *owner) goOn() {
	w.mu.Lock()
	arrived := w.arrived
	w.arrived = nil
	w.mu.Unlock()
	for _, a := range arrived {
		tn := new(turn)
		if _, ok := w.extent[a.from]; !ok {
			panic("gone")
		}
		tn.live = append(tn.live, Delta{w.extent[a.from], -w.size[a.from]})
		if a.remove {
			fmt.Fprintf(&tn.ops, "-%d;", a.from)
		}
		w.forget(a.from)
		delete(w.held, a.from)
		w.commit(tn)
	}
}

// several does something with several records.
func (w *owner) several(rng *rand.Rand) {
	n := 1 + rng.IntN(4)
	at := rng.IntN(len(w.ids) - n)
	tn := new(turn)
	switch rng.IntN(5) {
	case 0: // purge
		for range n {
			w.settle(tn, at)
		}
	case 1: // dead-letter several to another queue
		in := w.s.Extent()
		for range n {
			w.next++
			w.dead.Store(w.ids[at], w.next)
			w.many.Store(w.ids[at], n > 1)
			w.write(w.settle(tn, at), in, w.next, rng.IntN(60))
			w.ids = append(w.ids, w.next)
		}
	case 2, 3: // redrive, or dead-letter at least once
		remove := rng.IntN(2) == 0
		in := w.s.Extent()
		for range n {
			id := w.ids[at]
			w.ids = slices.Delete(w.ids, at, at+1)
			w.held[id] = true
			w.next++
			w.write(tn, in, w.next, rng.IntN(60))
			w.ids = append(w.ids, w.next)
			if !remove {
				for from, to := range w.dead.Range {
					if to == id { // what has removed it is accounted for later
						w.many.Store(from, true)
					}
				}
				w.dead.Store(id, w.next)
				w.many.Store(id, n > 1)
				fmt.Fprintf(&tn.ops, "_%d;", id)
			}
			tn.arrivals = append(tn.arrivals, arrival{id, remove})
		}
	case 4: // a transaction in two queues that also settles
		for range 2 {
			in := w.s.Extent()
			for range n {
				w.next++
				w.write(tn, in, w.next, rng.IntN(60))
				w.ids = append(w.ids, w.next)
			}
			w.settle(tn, at)
			if i := rng.IntN(len(w.ids)); rng.IntN(2) == 0 {
				w.change(tn, i)
				w.grow(tn, i, 3)
			}
		}
	}
	w.commit(tn)
}

// change changes the record at a place of ids.
func (w *owner) change(tn *turn, i int) {
	w.next++
	op := fmt.Sprintf("=%d,%d;", w.ids[i], w.next)
	tn.ops.WriteString(op)
	w.ops[w.ids[i]] = changed(w.ops[w.ids[i]], op)
}

// grow makes the record at a place of ids longer.
func (w *owner) grow(tn *turn, i int, by int64) {
	id := w.ids[i]
	w.grown[id] += by
	w.size[id] += by
	tn.live = append(tn.live, Delta{w.extent[id], by})
}

func (w *owner) restart(t *testing.T, l *memLog, engine wlog.Engine) {
	t.Helper()
	l.keep(wlog.Bringing)
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
}

// finish settles everything and expects the log to shrink to next to nothing.
func (w *owner) finish(t *testing.T, l *memLog) {
	t.Helper()
	l.keep(wlog.Bringing)
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

// An owner that does not answer is asked again after a second, not more often.
func TestReclaimIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{}
		w := newOwner(t, l, Options{Extent: 100, Slack: 200})
		w.enqueue(1, 10)
		fill := func() {
			for range 50 {
				w.s.Commit(make([]byte, 20), nil, nil)
				synctest.Wait()
			}
		}
		fill()
		fill()
		if got := w.s.Stats().Reclaims; got != 1 {
			t.Errorf("asked %d times at once, want once", got)
		}
		time.Sleep(roundTimeout)
		synctest.Wait()
		if got := w.s.Stats().Reclaims; got != 2 {
			t.Errorf("asked %d times in a second, want twice", got)
		}
		if w.move() != 1 {
			t.Error("it was not asked to move the one record there is")
		}
		synctest.Wait()
		if st := w.s.Stats(); st.LogBytes > 300 || st.Reclaims != 2 {
			t.Errorf("afterwards: %+v", st)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := w.s.Stats().Reclaims; got != 2 {
			t.Errorf("asked again with nothing left to gain")
		}
	})
}

// With little space left what died is worth having back, whatever lives before it:
// a backlog that nobody takes kept the disk full for good. Without much to gain
// nothing is moved, as that takes space that settles need.
func TestLittleSpaceIsSpentOnMovingWhereThatGivesItBack(t *testing.T) {
	for _, tt := range []struct {
		name    string
		padding int
		dead    int // records of 100 bytes
		asked   uint64
	}{
		{"one small record at the front", 10, 50, 1},
		{"a large record at the front", 500, 50, 1},
		{"little is dead", 500, 30, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newOwner(t, &memLog{}, Options{Extent: 1000, Slack: 100_000})
				w.enqueue(1, tt.padding)
				for range tt.dead {
					w.s.Commit(make([]byte, 100), nil, nil)
					synctest.Wait()
				}
				w.s.SetLowSpace(true)
				synctest.Wait()
				if st := w.s.Stats(); st.Reclaims != tt.asked || !st.Low || w.s.CaughtUp() == nil {
					t.Errorf("asked to move %d times, want %d; %+v", st.Reclaims, tt.asked, st)
				}
				w.move()
				behind := w.s.CaughtUp()
				w.s.SetLowSpace(false)
				<-behind
				synctest.Wait()
				if got := w.s.Stats().LogBytes < 1500; got != (tt.asked == 1) {
					t.Errorf("%d bytes are left", w.s.Stats().LogBytes)
				}
			})
		})
	}
}

// Where another node has too little space for its copy of the log, dead bytes are had back that were not worth it otherwise, and publishers do
// not wait for that.
func TestLogIsKeptSmallForOthers(t *testing.T) {
	for _, tt := range []struct {
		name  string
		live  int // bytes
		dead  int
		asked uint64
	}{
		{"much is dead", 4000, 3000, 1},
		{"little is dead", 4000, 1500, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newOwner(t, &memLog{}, Options{Extent: 1000, Slack: 100_000})
				w.enqueue(1, tt.live)
				for range tt.dead / 100 {
					w.s.Commit(make([]byte, 100), nil, nil)
					synctest.Wait()
				}
				if st := w.s.Stats(); st.Reclaims != 0 {
					t.Errorf("before: %+v", st)
				}
				w.s.SetTight(true)
				synctest.Wait()
				if st := w.s.Stats(); st.Reclaims != tt.asked || st.Low || w.s.CaughtUp() != nil {
					t.Errorf("asked to move %d times, want %d; %+v", st.Reclaims, tt.asked, st)
				}
				w.move()
				synctest.Wait()
				if got := w.s.Stats().LogBytes < int64(tt.live+1500); got != (tt.asked == 1) {
					t.Errorf("%d bytes are left", w.s.Stats().LogBytes)
				}
			})
		})
	}
}

func TestNothingIsTrimmedBeforeRecovered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{}
		first := open(t, l, Options{})
		for i := range 10 {
			first.Commit(fmt.Appendf(nil, "+%d,;", i), []Delta{{first.Extent(), 4}}, nil)
			synctest.Wait()
		}
		var at []string
		o := Options{Extent: 8, Slack: 1, Reclaim: func(uint32) { t.Error("reclaims") }}
		s, err := Open(t.Context(), memEngine{l}, 1, func(extent uint32, i wlog.Index, ops []byte) error {
			at = append(at, fmt.Sprintf("%d:%s", extent, ops))
			return nil
		}, o)
		if err != nil {
			t.Fatal(err)
		}
		if want := "1:+0,; 1:+1,; 2:+2,; 2:+3,; 3:+4,;"; strings.Join(at[:5], " ") != want {
			t.Errorf("replayed %v, want %v", at[:5], want)
		}
		if got := s.Extent(); got != 6 {
			t.Errorf("commits go to extent %d, want 6", got)
		}
		s.Commit([]byte("-0;-1;-2;"), nil, nil)
		synctest.Wait()
		if got := len(l.bodies()); got != 11 {
			t.Errorf("%d entries left, want all 11", got)
		}
		s.Recovered([]Delta{{3, 20}, {4, 20}, {5, 20}})
		synctest.Wait()
		if got := len(l.bodies()); got != 7 {
			t.Errorf("%d entries left, want the 7 from the third extent on", got)
		}
	})
}

func TestOpenSaysWhy(t *testing.T) {
	broken := errors.New("no such operation")
	l := &memLog{entries: []stored{{1, []byte("x")}}}
	_, err := Open(t.Context(), memEngine{l}, 7, func(uint32, wlog.Index, []byte) error { return broken }, Options{})
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "shard 7") {
		t.Errorf("got %v", err)
	}
}
