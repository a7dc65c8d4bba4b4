package seg

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/vfs"
	"github.com/curfewmq/curfew/core/wlog/wlogtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// largeEntry is larger than a segment of these tests.
const largeEntry = 100_000

func TestConformance(t *testing.T) {
	for _, tc := range []struct {
		name       string
		durability Durability
	}{{"fsync", Fsync}, {"flush", Flush}} {
		t.Run(tc.name, func(t *testing.T) {
			wlogtest.Run(t, func(t *testing.T) wlogtest.Backend {
				t.Helper()
				dir := vfs.Dir(t.TempDir())
				o := Options{SegmentSize: 64 << 10, Durability: tc.durability}
				return wlogtest.Backend{
					Engine:     func(t *testing.T) wlog.Engine { t.Helper(); return newEngine(t, dir, o) },
					LargeEntry: largeEntry,
				}
			})
		})
	}
}

func TestConformanceOnCrashFS(t *testing.T) {
	wlogtest.Run(t, func(*testing.T) wlogtest.Backend {
		fsys := crashfs.New(1)
		return wlogtest.Backend{
			Engine: func(t *testing.T) wlog.Engine {
				t.Helper()
				fsys.Inject(nil)
				return newEngine(t, fsys, Options{SegmentSize: 64 << 10})
			},
			Crash: func(*testing.T) { fsys = fsys.LosePower() },
			SetFull: func(_ *testing.T, full bool) {
				fsys.SetSpace(map[bool]int64{true: 0, false: 1 << 40}[full])
			},
			Break:      func(*testing.T) { failAll(fsys, crashfs.OpSync) },
			LargeEntry: largeEntry,
		}
	})
}

func TestOptions(t *testing.T) {
	for _, tc := range []struct {
		name    string
		options Options
		want    string // part of the error; "" = there is none
	}{
		{"defaults", Options{}, ""},
		{"smallest", Options{SegmentSize: 16 << 10}, ""},
		{"largest", Options{SegmentSize: 1 << 30}, ""},
		{"too small", Options{SegmentSize: 12 << 10}, "segment size 12288: not a multiple of 4096 between 16384 and 1073741824"},
		{"too large", Options{SegmentSize: 1<<30 + 4096}, "segment size 1073745920"},
		{"odd", Options{SegmentSize: 1<<20 + 1}, "segment size 1048577"},
		{"negative", Options{SegmentSize: -4096}, "segment size -4096"},
		{"durability", Options{Durability: 7}, "durability 7: neither fsync nor flush"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, err := New(crashfs.New(1), tc.options)
			if err == nil {
				must(t, e.Close())
			}
			if got := errorText(err); tc.want == "" && err != nil || !strings.Contains(got, tc.want) {
				t.Errorf("got error %q, want %q", got, tc.want)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestFileNames(t *testing.T) {
	for _, tc := range []struct {
		name          string
		shard, number uint32
		kind          fileKind
		ok            bool
	}{
		{"00003-0000002a.seg", 3, 42, segmentFile, true},
		{"00003-0000002a.spare", 3, 42, spareFile, true},
		{"4294967295-ffffffff.new", 1<<32 - 1, 1<<32 - 1, newFile, true},
		{name: "3-0000002a.seg"},
		{name: "00003-2a.seg"},
		{name: "00003-0000002A.seg"},
		{name: "00003-0000002a.seg.bak"},
		{name: "00003-0000002a.seg~"},
		{name: "00003-0000002a"},
		{name: "LOCK"},
		{name: ""},
	} {
		got, ok := parseName(tc.name)
		if ok != tc.ok || ok && (got.shard != tc.shard || got.number != tc.number || got.kind != tc.kind) {
			t.Errorf("%q: got %+v, %t", tc.name, got, ok)
		}
	}
}
