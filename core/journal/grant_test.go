package journal

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// grants opens a log with room for so many bytes. Its unit is 1000.
func grants(t *testing.T, room int64, o Options) (*Writer, *memLog) {
	t.Helper()
	l := &memLog{room: room}
	o.Extent, o.Entry, o.Size, o.Moves = 1000, 500, wlog.EntrySize, 500
	return open(t, l, o), l
}

func TestGrants(t *testing.T) {
	const reserve = 12_500 + 9*100
	for _, tt := range []struct {
		name    string
		room    int64
		records int32
		bytes   int64
		want    bool
	}{
		{name: "there is space", room: reserve + 100, bytes: 100, want: true},
		{name: "the reserve stays", room: reserve + 99, bytes: 100},
		{name: "live records need space when they end", room: reserve + 100 + 10*endBytes - 1, records: 10, bytes: 100},
		{name: "and have it", room: reserve + 100 + 10*endBytes, records: 10, bytes: 100, want: true},
		{name: "a large record is to be moved", room: 12_500 + 3*5000 + 16_000 - 1, bytes: 5000},
		{name: "and can be", room: 12_500 + 3*5000 + 16_000, bytes: 5000, want: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, _ := grants(t, tt.room, Options{})
			s.Recovered([]Delta{{Extent: 1, Records: tt.records, Bytes: 1}})
			s.mu.Lock()
			s.look(true)
			s.mu.Unlock()
			if got := s.Grant(tt.bytes); got != tt.want {
				t.Errorf("granted: %v, want %v", got, tt.want)
			}
			if tt.want && s.Grant(100) {
				t.Error("the same space is granted twice")
			}
		})
	}
}

// Who waits gets in in order, and only then others do. An alarm says meanwhile that there is no space.
func TestGrantsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full []bool
		s, l := grants(t, 12_000, Options{OnFull: func(f bool) { full = append(full, f) }})
		var got []int64
		for _, n := range []int64{400, 100, 300} {
			if s.Grant(n) {
				t.Fatal("granted")
			}
			s.Await(n, func() { got = append(got, n) })
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(got) > 0 || s.CaughtUp() == nil || !s.Stats().Full || !slices.Equal(full, []bool{true}) {
			t.Errorf("without space: %v; %+v, full went %v", got, s.Stats(), full)
		}
		l.mu.Lock()
		l.room = 25_000
		l.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		if !slices.Equal(got, []int64{400, 100, 300}) || s.CaughtUp() != nil || !slices.Equal(full, []bool{true, false}) {
			t.Errorf("with space: %v; full went %v", got, full)
		}
		if !s.Grant(100) {
			t.Error("another one is not granted")
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A publisher's next batch could get in before the one that had waited: there was space again as soon as that was taken out of the line.
func TestNothingIsGrantedBeforeThoseThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := grants(t, 16_000, Options{})
		const most = 300
		held := 0
		for s.Grant(most) {
			held++
		}
		in := false
		s.Await(most, func() {
			if in = true; s.Grant(1) {
				t.Error("something else is granted before it is let in")
			}
		})
		for range held {
			s.Return(most)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if held == 0 || !in || !s.Grant(1) {
			t.Errorf("%d grants were given back: in %v", held, in)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Nothing waits for the space of a log that is closed, or has failed.
func TestGrantsOfALogThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, fails := range []bool{false, true} {
			s, l := grants(t, 1000, Options{})
			in := 0
			s.Await(100, func() { in++ })
			time.Sleep(time.Second)
			synctest.Wait()
			if fails {
				l.refuse = func(int) error { return wlog.ErrLost }
				s.Commit([]byte("x"), nil, nil)
				time.Sleep(time.Second)
				synctest.Wait()
			}
			_ = s.Close(t.Context())
			synctest.Wait()
			s.Await(100, func() { in++ })
			if in != 2 || !s.Grant(100) {
				t.Errorf("fails %v: %d of 2 are let in", fails, in)
			}
		}
	})
}

// Dead letters move while publishers wait, until what is left is for the settlements. All logs of a disk have to have space for them.
func TestMovesOfADisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		disk := &Space{OnMoves: func() { told++ }}
		one, l := grants(t, 17_000, Options{Space: disk})
		other, _ := grants(t, 50_000, Options{Space: disk})
		if one.Grant(100) || !disk.Moves(500) {
			t.Error("what moves is treated as what publishers bring")
		}
		disk.Take(800)
		if disk.Moves(500) {
			t.Error("it has space that was taken")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if told > 0 {
			t.Error("told that there is space")
		}
		disk.Give(800)
		l.mu.Lock()
		l.room = 18_000
		l.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		if told != 1 || !disk.Moves(500) {
			t.Errorf("told %d times that there is space", told)
		}
		for _, s := range []*Writer{one, other} {
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if !disk.Moves(1 << 40) {
			t.Error("a log that is closed keeps something from moving")
		}
	})
}

// Where space is scarce, only what ends records is committed.
func TestChangesAreNotCommittedWhereSpaceIsScarce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for room, want := range map[int64]bool{6900: false, 7100: true} {
			s, _ := grants(t, room, Options{})
			if got := s.TryCommit([]byte("=1,2;")); got != want {
				t.Errorf("room for %d: %v", room, got)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// Dead letters waited for ever for a log without space that was closed meanwhile, as one is whose shard goes to another node: nothing
// told them that they may move.
func TestALogThatEndsKeepsNothingFromMoving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := 0
		disk := &Space{OnMoves: func() { told++ }}
		one, _ := grants(t, 1000, Options{Space: disk})
		other, _ := grants(t, 50_000, Options{Space: disk})
		if disk.Moves(500) {
			t.Error("there is space")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if err := one.Close(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if told != 1 || !disk.Moves(500) {
			t.Errorf("told %d times that they may move", told)
		}
		if err := other.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A log that saw much space, and was idle while another one filled the disk, granted what was not there.
func TestGrantsOfADiskThatAnotherLogHasFilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, all := &Space{}, &sharedRoom{left: 60_000}
		busy, idle := all.open(t, disk), all.open(t, disk)
		all.fill(busy, 100)
		for _, n := range []int64{100, 2000, 20_000} {
			if idle.Grant(n) {
				t.Errorf("%d bytes are granted where %d are left", n, all.left)
				idle.Return(n)
			}
		}
		for _, s := range []*Writer{busy, idle} {
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// A log with a large record needs more space to move one than the others. These filled the disk up to what they need: then nothing moved, in
// any of them.
func TestLargeRecordsOfAnotherLogCanMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, all := &Space{}, &sharedRoom{left: 60_000}
		large, small := all.open(t, disk), all.open(t, disk)
		if !large.Grant(4000) {
			t.Fatal("not granted")
		}
		large.Commit(make([]byte, 4000), []Delta{{Extent: 1, Records: 1, Bytes: 4000}}, nil)
		large.Return(4000)
		all.fill(small, 100)
		large.mu.Lock()
		large.look(true)
		large.mu.Unlock()
		if !disk.Moves(500) {
			t.Errorf("nothing moves where %d are left", all.left)
		}
		for _, s := range []*Writer{large, small} {
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// sharedRoom is what logs have in common that write to the same disk.
type sharedRoom struct {
	mu   sync.Mutex // guards left
	left int64
}

// roomyLog is a log on such a disk.
type roomyLog struct {
	memLog
	disk *sharedRoom
}

func (l *roomyLog) Append(ctx context.Context, entry []byte, p wlog.Purpose) (wlog.Index, error) {
	l.disk.mu.Lock()
	defer l.disk.mu.Unlock()
	if l.disk.left -= wlog.EntrySize(len(entry)); l.disk.left < 0 {
		panic("the disk is full")
	}
	return l.memLog.Append(ctx, entry, p)
}

func (l *roomyLog) Room() int64 {
	l.disk.mu.Lock()
	defer l.disk.mu.Unlock()
	return l.disk.left
}

type roomyEngine struct {
	memEngine
	log *roomyLog
}

func (e roomyEngine) Open(context.Context, uint32, func(wlog.Index, []byte) error) (wlog.Log, error) {
	return e.log, nil
}

func (d *sharedRoom) open(t *testing.T, s *Space) *Writer {
	t.Helper()
	w, err := Open(t.Context(), roomyEngine{log: &roomyLog{disk: d}}, 1, nil, Options{
		Extent: 1000, Entry: 500, Size: wlog.EntrySize, Moves: 500, Space: s,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Recovered(nil)
	return w
}

// fill commits records of so many bytes to a log as long as they are granted.
func (d *sharedRoom) fill(w *Writer, bytes int) {
	for w.Grant(int64(bytes)) {
		w.Commit(make([]byte, bytes), []Delta{{Extent: w.Extent(), Records: 1, Bytes: int64(bytes)}}, nil)
		w.Return(int64(bytes))
		synctest.Wait()
	}
}

// A large message made the log keep more space than others need until nothing in the log was live. There are always definitions: so it did for
// ever, long after the message was gone.
func TestSpaceForALargeRecordIsKeptUntilTheRecordIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l := grants(t, 60_000, Options{})
		if !s.Grant(5000) {
			t.Fatal("not granted")
		}
		in := s.Extent()
		s.Commit(make([]byte, 5000), []Delta{{Extent: in, Records: 1, Bytes: 5000}}, nil)
		s.Return(5000)
		synctest.Wait()
		s.Commit([]byte("definitions"), []Delta{{Extent: s.Extent(), Bytes: 11}}, nil)
		l.mu.Lock()
		l.room = l.used + 20_000
		l.mu.Unlock()
		s.mu.Lock()
		s.look(true)
		s.mu.Unlock()
		if s.Grant(100) {
			t.Error("the space for the large record is granted")
		}
		s.Commit([]byte("settled"), []Delta{{Extent: in, Records: -1, Bytes: -5000}}, nil)
		synctest.Wait()
		if !s.Grant(100) {
			t.Error("space is kept for a record that is gone")
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
