package seg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/campaign"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// copied writes the files of a snapshot to a new directory, and closes it.
func copied(t *testing.T, s *Snapshot) *crashfs.FS {
	t.Helper()
	to := crashfs.New(1)
	for _, f := range s.Files {
		b := make([]byte, f.Bytes)
		if _, err := f.ReadAt(b, 0); err != nil && (!errors.Is(err, io.EOF) || f.Bytes > 0) {
			t.Fatalf("%s: %v", f.Name, err)
		}
		file, err := to.Open(f.Name, vfs.Create)
		must(t, err)
		must(t, errors.Join(file.Writev(0, [][]byte{b}), file.Allocate(f.Size), file.Close()))
	}
	must(t, s.Close())
	return to
}

// replayed returns the entries of all shards of a directory.
func replayed(t *testing.T, fsys vfs.FS, shards uint32) (found [][]string) {
	t.Helper()
	e := newEngine(t, fsys, small())
	defer func() { must(t, e.Close()) }()
	for shard := range shards {
		var entries []string
		_, err := e.Open(t.Context(), shard, func(_ wlog.Index, entry []byte) error {
			entries = append(entries, string(entry))
			return nil
		})
		must(t, err)
		found = append(found, entries)
	}
	return found
}

// A snapshot has every entry that was appended before it and none of later ones. Of trimmed entries it has at most the latest. This holds
// whatever is appended and trimmed while the snapshot is copied.
func TestCampaignSnapshot(t *testing.T) {
	for seed := range campaign.Size(t, "SIMULATION_SEEDS", 0, 60) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) { newSnapshooter(t, seed).run() })
	}
}

// snapshooter is a run of TestCampaignSnapshot, with several shards.
type snapshooter struct {
	*testing.T
	rng     *rand.Rand
	fs      *crashfs.FS
	engine  *Engine
	logs    []wlog.Log
	entries [][]string
	trimmed []int // how many of the entries may be gone
	at      [][]wlog.Index
}

func newSnapshooter(t *testing.T, seed uint64) *snapshooter {
	t.Helper()
	s := &snapshooter{T: t, rng: rand.New(rand.NewPCG(seed, 2)), fs: crashfs.New(seed)}
	o := Options{SegmentSize: 16 << 10 << s.rng.IntN(3), first: minSegment, inline: s.rng.IntN(2) > 0, Durability: Durability(s.rng.IntN(2))}
	s.engine = newEngine(t, s.fs, o)
	for shard := range uint32(3) {
		l, err := s.engine.Open(t.Context(), shard, func(wlog.Index, []byte) error { return nil })
		must(t, err)
		s.logs = append(s.logs, l)
	}
	s.entries, s.at, s.trimmed = make([][]string, 3), make([][]wlog.Index, 3), make([]int, 3)
	return s
}

// step appends to a shard, or trims it.
func (s *snapshooter) step() {
	i := s.rng.IntN(len(s.logs))
	if n := len(s.at[i]); n > 0 && s.rng.IntN(6) == 0 {
		s.trimmed[i] += s.rng.IntN(n - s.trimmed[i])
		must(s.T, s.logs[i].Trim(s.at[i][s.trimmed[i]]))
		return
	}
	entry := fmt.Sprintf("%d-%d-", i, len(s.entries[i])) + strings.Repeat("x", s.rng.IntN(1<<s.rng.IntN(15)))
	at, err := wlog.Index(0), error(nil)
	l := s.logs[i].(*shardLog)
	if left := int(l.active.size-l.end) - wlog.HeaderSize - s.rng.IntN(80); s.rng.IntN(8) == 0 && left > 20 { // to the end of the segment, or nearly so
		entry += strings.Repeat("x", max(0, left-len(entry)))
		at, err = l.appendAnyhow([]byte(entry[:left]))
		entry = entry[:left]
	} else {
		at, err = l.Append(s.Context(), []byte(entry), wlog.Bringing)
	}
	must(s.T, err)
	s.entries[i], s.at[i] = append(s.entries[i], entry), append(s.at[i], at)
}

func (s *snapshooter) run() {
	for range 4 {
		for range s.rng.IntN(60) {
			s.step()
		}
		had, gone := slices.Clone(s.entries), slices.Clone(s.trimmed)
		snapshot, err := s.engine.Snapshot()
		must(s.T, err)
		for range s.rng.IntN(60) {
			s.step()
		}
		s.compare("online", copied(s.T, snapshot), had, gone)
		for shard := range uint32(3) {
			if st, _ := s.engine.Stats(shard); st.PinnedBytes != 0 {
				s.Errorf("shard %d: %d bytes are pinned by nobody", shard, st.PinnedBytes)
			}
		}
	}
	must(s.T, s.engine.Close())
	snapshot, err := ReadSnapshot(s.Context(), s.fs)
	must(s.T, err)
	s.compare("offline", copied(s.T, snapshot), s.entries, s.trimmed)
}

// compare checks the replay of a snapshot's copy.
func (s *snapshooter) compare(when string, fsys *crashfs.FS, had [][]string, gone []int) {
	reports, err := Verify(s.Context(), fsys)
	must(s.T, err)
	for i := range reports {
		if r := &reports[i]; len(r.Damage) > 0 || r.Cut != nil {
			s.Fatalf("%s: shard %d: damage %v, cut %v", when, r.Shard, r.Damage, r.Cut)
		}
	}
	for shard, found := range replayed(s.T, fsys, 3) {
		first := len(had[shard]) - len(found)
		if first < 0 || first > gone[shard] || !slices.Equal(found, had[shard][first:]) {
			s.Fatalf("%s: shard %d: replayed %d entries, of %d that there were and of which %d were trimmed", when, shard, len(found), len(had[shard]), gone[shard])
		}
	}
}

// Trimmed files of a snapshot keep their space on the disk, which the statistics show, and are not reused.
func TestSnapshotPinsFiles(t *testing.T) {
	fsys := crashfs.New(1)
	s := openShard(t, fsys, small())
	defer s.close(t)
	s.append(t, "find me")
	s.fillUntil(t, 3, 5000)
	snapshot, err := s.engine.Snapshot()
	must(t, err)
	last := s.append(t, "last")
	must(t, s.Trim(last))
	st, _ := s.engine.Stats(0)
	if want := snapshot.Files[1].Size + snapshot.Files[2].Size; st.PinnedBytes != want {
		t.Errorf("%d bytes are pinned, want %d", st.PinnedBytes, want)
	}
	s.fillUntil(t, 6, 5000)
	b := make([]byte, snapshot.Files[1].Bytes)
	if _, err := snapshot.Files[1].ReadAt(b, 0); err != nil || !strings.Contains(string(b), "find me") {
		t.Errorf("the file was used again (error %v)", err)
	}
	must(t, snapshot.Close())
	if st, _ = s.engine.Stats(0); st.PinnedBytes != 0 {
		t.Errorf("%d bytes are pinned after Close", st.PinnedBytes)
	}
}

// A snapshot outlives the engine.
func TestSnapshotOfAClosedEngine(t *testing.T) {
	fsys := crashfs.New(1)
	s := openShard(t, fsys, small())
	s.append(t, "a")
	snapshot, err := s.engine.Snapshot()
	must(t, err)
	s.close(t)
	if got := replayed(t, copied(t, snapshot), 1)[0]; !slices.Equal(got, []string{"a"}) {
		t.Errorf("got %q", got)
	}
	if _, err := s.engine.Snapshot(); !errors.Is(err, wlog.ErrClosed) {
		t.Errorf("got error %v, want %v", err, wlog.ErrClosed)
	}
}

func TestNoSnapshotOfALogThatFailed(t *testing.T) {
	fsys := crashfs.New(1)
	s := openShard(t, fsys, small())
	defer s.engine.Close()
	fsys.FailNth(crashfs.OpSync, 0)
	if _, err := s.Append(t.Context(), []byte("a"), wlog.Bringing); err == nil {
		t.Fatal("the append did not fail")
	}
	if _, err := s.engine.Snapshot(); !errors.Is(err, wlog.ErrLost) || !strings.Contains(err.Error(), "shard 0: ") {
		t.Errorf("got error %v, want %v", err, wlog.ErrLost)
	}
}

func TestReadSnapshotRefuses(t *testing.T) {
	fsys := crashfs.New(1)
	s := openShard(t, fsys, small())
	s.append(t, "a")
	s.append(t, "b")
	if _, err := ReadSnapshot(t.Context(), fsys); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("beside an engine: got error %v, want %v", err, vfs.ErrLocked)
	}
	s.close(t)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ReadSnapshot(canceled, fsys); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: got error %v", err)
	}
	fsys.Flip(logFiles(t, fsys)[0].Name, headerSize+2*wlog.HeaderSize, 1) // in the body of "a"
	if _, err := ReadSnapshot(t.Context(), fsys); !errors.Is(err, wlog.ErrDamaged) {
		t.Errorf("got error %v, want %v", err, wlog.ErrDamaged)
	}
	e := newEngine(t, fsys, small()) // the lock was released
	must(t, e.Close())
}
