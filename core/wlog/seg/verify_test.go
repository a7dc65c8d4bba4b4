package seg

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/vfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

// twoShards makes a directory with a shard of two segments and one of a few entries, at a fixed time.
func twoShards(t *testing.T) *crashfs.FS {
	t.Helper()
	fsys := crashfs.New(1)
	o := Options{SegmentSize: minSegment, inline: true, Clock: func() hook.Instant { return 1_700_000_000_000_000_001 }}
	e := newEngine(t, fsys, o)
	for _, shard := range []struct {
		number  uint32
		entries []string
	}{
		{0, []string{"first", strings.Repeat("x", 9000), strings.Repeat("y", 9000)}},
		{12, []string{"other shard"}},
	} {
		l, err := e.Open(t.Context(), shard.number, nil)
		must(t, err)
		for _, entry := range shard.entries {
			_, err := l.Append(t.Context(), []byte(entry), wlog.Bringing)
			must(t, err)
		}
	}
	must(t, e.Close())
	return fsys
}

func TestVerify(t *testing.T) {
	fsys := twoShards(t)
	before := fileNames(t, fsys)
	reports, err := Verify(t.Context(), fsys)
	must(t, err)
	if len(reports) != 2 {
		t.Fatalf("got reports of %d shards, want 2", len(reports))
	}
	got := reports[0]
	want := ShardReport{Shard: 0, Segments: 3, Entries: 3, Bytes: 18005, First: 1<<32 + 112, Last: 2<<32 + 64, Epoch: 1, Time: 1_700_000_000_000_000_001}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if reports[1].Shard != 12 || reports[1].Entries != 1 {
		t.Errorf("second shard: got %+v", reports[1])
	}
	if after := fileNames(t, fsys); after != before {
		t.Errorf("Verify changed the directory from %s to %s", before, after)
	}
}

func TestVerifyNothing(t *testing.T) {
	fsys := crashfs.New(1)
	reports, err := Verify(t.Context(), fsys)
	if err != nil || len(reports) > 0 {
		t.Errorf("got %v, %v, want nothing", reports, err)
	}
	if stats, err := fsys.List(); err != nil || len(stats) > 0 {
		t.Errorf("Verify left %v, %v", stats, err)
	}
	if _, err := Verify(t.Context(), vfs.Dir("/does/not/exist")); err == nil {
		t.Error("a directory that does not exist was verified")
	}
}

// A copy on a read-only disk has a lock file that cannot be locked.
func TestVerifyReadOnly(t *testing.T) {
	fsys := twoShards(t)
	failAll(fsys, crashfs.OpWrite)
	reports, err := Verify(t.Context(), fsys)
	if err != nil || len(reports) != 2 {
		t.Errorf("got %v, %v, want two reports", reports, err)
	}
}

const dumped = `shard 0
00000-00000001.seg: 16384 bytes, prepared 2023-11-14T22:13:20.000000001Z in epoch 1
0x100000040: takeover, 0 bytes, epoch 1, 2023-11-14T22:13:20.000000001Z
0x100000070: data, 5 bytes, epoch 1, 2023-11-14T22:13:20.000000001Z
  first
0x1000000a8: data, 9000 bytes, epoch 1, 2023-11-14T22:13:20.000000001Z
  xxxxxxxxxxxxxxxxxxxx
0x100002400: filler, 7120 bytes, epoch 1, 2023-11-14T22:13:20.000000001Z
00000-00000002.seg: 16384 bytes, prepared 2023-11-14T22:13:20.000000001Z in epoch 1
0x200000040: data, 9000 bytes, epoch 1, 2023-11-14T22:13:20.000000001Z
  yyyyyyyyyyyyyyyyyyyy
shard 12
00012-00000001.seg: 16384 bytes, prepared 2023-11-14T22:13:20.000000001Z in epoch 1
0x100000040: takeover, 0 bytes, epoch 1, 2023-11-14T22:13:20.000000001Z
0x100000070: data, 11 bytes, epoch 1, 2023-11-14T22:13:20.000000001Z
  other shard
`

func decode(w io.Writer, _ wlog.Index, entry []byte) error {
	_, err := fmt.Fprintf(w, "  %.20s\n", entry)
	return err
}

func TestDump(t *testing.T) {
	fsys := twoShards(t)
	var out strings.Builder
	must(t, Dump(t.Context(), fsys, &out, decode))
	if out.String() != dumped {
		t.Errorf("got\n%s\nwant\n%s", &out, dumped)
	}
	out.Reset()
	must(t, Dump(t.Context(), fsys, &out, nil))
	if got, want := strings.Count(out.String(), "\n"), strings.Count(dumped, "\n")-4; got != want {
		t.Errorf("without a decoder: %d lines, want %d", got, want)
	}
}

func TestDumpOfADamagedLog(t *testing.T) {
	fsys := twoShards(t)
	fsys.Flip("00000-00000001.seg", 5000, 3)
	var out strings.Builder
	err := Dump(t.Context(), fsys, &out, decode)
	if !errors.Is(err, wlog.ErrDamaged) {
		t.Errorf("got error %v, want %v", err, wlog.ErrDamaged)
	}
	want := strings.Replace(dumped, `0x1000000a8: data, 9000 bytes, epoch 1, 2023-11-14T22:13:20.000000001Z
  xxxxxxxxxxxxxxxxxxxx
0x100002400: filler, 7120 bytes, epoch 1, 2023-11-14T22:13:20.000000001Z
`, "DAMAGED: 00000-00000001.seg at byte 168: the checksum of the entry's body does not match, and the log goes on in 00000-00000001.seg at byte 9216\n", 1)
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
}

func TestDumpOfAnUnfinishedEntry(t *testing.T) {
	fsys := twoShards(t)
	fsys.Flip("00012-00000001.seg", 112+wlog.HeaderSize, 0)
	var out strings.Builder
	must(t, Dump(t.Context(), fsys, &out, nil))
	if want := "ends unfinished: 00012-00000001.seg at byte 112: the checksum of the entry's body does not match\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("got\n%s\nwant at its end\n%s", &out, want)
	}
}

func TestDumpFails(t *testing.T) {
	fsys := twoShards(t)
	err := Dump(t.Context(), fsys, io.Discard, func(io.Writer, wlog.Index, []byte) error { return errBroken })
	if want := "shard 0: entry 0x100000070: broken"; !errors.Is(err, errBroken) || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}

func TestProgress(t *testing.T) {
	fsys := crashfs.New(1)
	o := Options{SegmentSize: 8 << 20, inline: true}
	var told []int64
	o.Events.Progress = func(shard uint32, done, total int64) {
		if shard != 0 || done > total || len(told) > 0 && done < told[len(told)-1] {
			t.Errorf("shard %d: %d of %d bytes after %v", shard, done, total, told)
		}
		told = append(told, done)
	}
	s := openShard(t, fsys, o)
	s.fillUntil(t, 7, 1<<20)
	s.close(t)
	told = nil
	s = openShard(t, fsys, o)
	s.close(t)
	if len(told) < 3 {
		t.Errorf("while 40 MiB were replayed Progress was called with %v", told)
	}
}
