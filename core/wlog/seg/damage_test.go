package seg

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// logOf makes a log of several segments, and returns its files and the offsets of the entries in each.
func logOf(t *testing.T, segments uint32) (*crashfs.FS, []vfs.Stat, map[string][]int64) {
	t.Helper()
	fsys := crashfs.New(1)
	rng := rand.New(rand.NewPCG(1, 1))
	s := openShard(t, fsys, Options{SegmentSize: minSegment, inline: true})
	begins := map[string][]int64{}
	for s.active.number < segments || s.end < minSegment/2 {
		number, off := locate(s.append(t, strings.Repeat("m", rng.IntN(1200))))
		name := fileName(0, number, segmentFile)
		begins[name] = append(begins[name], off)
	}
	s.close(t)
	return fsys, logFiles(t, fsys)[:segments], begins
}

// TestEveryBitCounts inverts bits of closed segments, and of the last segment before its last entry.
func TestEveryBitCounts(t *testing.T) {
	fsys, files, begins := logOf(t, 3)
	step := int64(131)
	if os.Getenv("SIMULATION_SEEDS") != "" {
		step = 1
	}
	for i, f := range files {
		end := f.Size
		if i == len(files)-1 {
			end = begins[f.Name][len(begins[f.Name])-1]
		}
		for bit := int64(0); bit < end*8; bit += step {
			off := bit / 8
			fsys.Flip(f.Name, off, uint(bit%8))
			if d := onlyDamage(t, fsys); d.File != f.Name || !covers(begins[f.Name], d.Offset, off) {
				t.Fatalf("bit %d of byte %d of %s: reported %v", bit%8, off, f.Name, d)
			}
			if bit%(97*step) == 0 {
				if d := damageOf(t, fsys); d.File != f.Name {
					t.Fatalf("bit %d of byte %d of %s: Open reported %v", bit%8, off, f.Name, d)
				}
			}
			fsys.Flip(f.Name, off, uint(bit%8))
		}
	}
	if d := damages(t, fsys); len(d) > 0 {
		t.Fatalf("with all bits as they were: %v", d[0])
	}
}

// covers reports whether damage reported at an offset is in the header or entry to which the byte at off belongs.
func covers(begins []int64, reported, off int64) bool {
	if off < headerSize {
		return reported < headerSize
	}
	thing := int64(headerSize) // the Takeover of the first segment, or an entry
	for _, b := range begins {
		if b <= off {
			thing = b
		}
	}
	return reported >= thing && reported <= off
}

func damages(t *testing.T, fsys vfs.FS) (all []*Damage) {
	t.Helper()
	reports, err := Verify(t.Context(), fsys)
	must(t, err)
	for _, r := range reports {
		all = append(all, r.Damage...)
	}
	return all
}

func onlyDamage(t *testing.T, fsys vfs.FS) *Damage {
	t.Helper()
	all := damages(t, fsys)
	if len(all) != 1 {
		t.Fatalf("got damage %v, want one", all)
	}
	return all[0]
}

func TestDamage(t *testing.T) {
	for _, tc := range []struct {
		name   string
		damage func(t *testing.T, fsys *crashfs.FS, files []vfs.Stat)
		file   int // number of the segment that the report names
		want   string
	}{
		{"a segment is missing", func(t *testing.T, fsys *crashfs.FS, files []vfs.Stat) {
			t.Helper()
			must(t, fsys.Remove(files[1].Name))
		}, 2, "at byte 0: the file is missing"},
		{"the last segment is missing", func(t *testing.T, fsys *crashfs.FS, files []vfs.Stat) {
			t.Helper()
			must(t, fsys.Remove(files[3].Name))
		}, 4, "at byte 0: the file is missing"},
		{"the first segment is missing", func(t *testing.T, fsys *crashfs.FS, files []vfs.Stat) {
			t.Helper()
			must(t, fsys.Remove(files[0].Name))
		}, 1, "00000-00000001.seg at byte 0: the file is missing"},
		{"the first segments are missing", func(t *testing.T, fsys *crashfs.FS, files []vfs.Stat) {
			t.Helper()
			must(t, errors.Join(fsys.Remove(files[0].Name), fsys.Remove(files[1].Name), fsys.Remove(files[2].Name)))
		}, 1, "the file is missing, and those after it up to 00000-00000003.seg"},
		{"all segments are missing", func(t *testing.T, fsys *crashfs.FS, files []vfs.Stat) {
			t.Helper()
			for _, f := range files {
				must(t, fsys.Remove(f.Name))
			}
		}, 1, "00000-00000001.seg at byte 0: the file is missing"},
		{"segments exchanged", func(t *testing.T, fsys *crashfs.FS, files []vfs.Stat) {
			t.Helper()
			must(t, errors.Join(fsys.Rename(files[1].Name, "x"), fsys.Rename(files[2].Name, files[1].Name), fsys.Rename("x", files[2].Name)))
		}, 2, "at byte 12: the file is segment 00000003 of shard 0"},
		{"a file from elsewhere", func(t *testing.T, fsys *crashfs.FS, files []vfs.Stat) {
			t.Helper()
			overwrite(t, fsys, files[1].Name, 0, make([]byte, minSegment))
		}, 2, "at byte 0: no segment begins here"},
		{"too short", func(t *testing.T, fsys *crashfs.FS, files []vfs.Stat) {
			t.Helper()
			replace(t, fsys, files[1].Name, []byte("curfewlg"))
		}, 2, "at byte 0: a file of 8 bytes is too short to be a segment"},
		{"cut short", func(t *testing.T, fsys *crashfs.FS, files []vfs.Stat) {
			t.Helper()
			replace(t, fsys, files[3].Name, read(t, fsys, files[3])[:8192])
		}, 4, "at byte 40: the file has 8192 bytes and should have 16384"},
		{"zeros in the middle", func(t *testing.T, fsys *crashfs.FS, files []vfs.Stat) {
			t.Helper()
			overwrite(t, fsys, files[1].Name, 4096, make([]byte, 4096))
		}, 2, "and the log goes on in 00000-00000002.seg at byte "},
		{"zeros at the beginning of the last segment", func(t *testing.T, fsys *crashfs.FS, files []vfs.Stat) {
			t.Helper()
			overwrite(t, fsys, files[3].Name, headerSize, make([]byte, 200))
		}, 4, "at byte 64: no entry begins there, and the log goes on in 00000-00000004.seg at byte "},
		{"a segment of another log", func(t *testing.T, fsys *crashfs.FS, files []vfs.Stat) {
			t.Helper()
			other := crashfs.New(1)
			s := openShard(t, other, Options{SegmentSize: minSegment, inline: true})
			s.fillUntil(t, 3, 100)
			s.close(t)
			replace(t, fsys, files[1].Name, read(t, other, vfs.Stat{Name: files[1].Name, Size: minSegment}))
		}, 2, "at byte 64: the entry before it should be 0x"},
		{"no header, and no entries yet", func(t *testing.T, fsys *crashfs.FS, files []vfs.Stat) {
			t.Helper()
			replace(t, fsys, fileName(0, 5, segmentFile), make([]byte, minSegment))
		}, 5, "at byte 0: no segment begins here"},
		{"an unexpected file", func(t *testing.T, fsys *crashfs.FS, files []vfs.Stat) {
			t.Helper()
			for _, number := range []uint32{5, 6} {
				g := &segment{number: number, size: minSegment}
				replace(t, fsys, fileName(0, number, segmentFile), append(g.header(0), make([]byte, minSegment-headerSize)...))
			}
		}, 6, "at byte 0: the log ends in 00000-00000004.seg"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fsys, files, _ := logOf(t, 4)
			tc.damage(t, fsys, files)
			d := damageOf(t, fsys)
			if d.File != fileName(0, uint32(tc.file), segmentFile) || !strings.Contains(d.Error(), tc.want) {
				t.Errorf("Open: got %v, want %q in segment %d", d, tc.want, tc.file)
			}
			if got := damages(t, fsys); len(got) == 0 || got[0].Error() != d.Error() {
				t.Errorf("Verify: got %v, want first %v", got, d)
			}
		})
	}
}

// replace writes a new file with these contents under a name.
func replace(t *testing.T, fsys vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := fsys.Open("new", vfs.Create)
	must(t, err)
	must(t, errors.Join(f.Writev(0, [][]byte{b}), f.Sync(), f.Close(), fsys.Rename("new", name), fsys.Sync()))
}

func TestNewerSegment(t *testing.T) {
	fsys, files, _ := logOf(t, 2)
	b := read(t, fsys, files[1])[:headerSize]
	b[8] = 3
	binary.LittleEndian.PutUint32(b[60:], crc32.Checksum(b[:60], castagnoli))
	overwrite(t, fsys, files[1].Name, 0, b)
	const want = "00000-00000002.seg: format version 3: written by a newer version, this one reads up to version 2: start the version that wrote it, or a later one"
	_, err := tryOpen(t, fsys, small())
	if !errors.Is(err, wlog.ErrNewer) || !strings.Contains(err.Error(), want) {
		t.Errorf("Open: got error %v, want %q", err, want)
	}
	if _, err := Verify(t.Context(), fsys); !errors.Is(err, wlog.ErrNewer) {
		t.Errorf("Verify: got error %v, want %v", err, wlog.ErrNewer)
	}
}

// An entry of a future version is not the end of the log, wherever it is.
func TestNewerEntry(t *testing.T) {
	fsys := crashfs.New(1)
	s := openShard(t, fsys, small())
	at := s.append(t, "from the future")
	name, salt := s.active.name, s.active.salt
	s.close(t)
	_, off := locate(at)
	b := read(t, fsys, vfs.Stat{Name: name, Size: off + wlog.HeaderSize})[off:]
	b[4] = 2
	sealHeader(b, at, salt)
	overwrite(t, fsys, name, off, b)
	_, err := tryOpen(t, fsys, small())
	if want := fmt.Sprintf("%s at byte %d: entry of format version 2: ", name, off); !errors.Is(err, wlog.ErrNewer) || !strings.Contains(errorText(err), want) {
		t.Errorf("got error %v, want %q", err, want)
	}
}

// sealHeader corrects the checksum of an entry's header, from the description of the format alone.
func sealHeader(b []byte, at wlog.Index, salt uint64) {
	place := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, salt), uint64(at))
	binary.LittleEndian.PutUint32(b[44:], crc32.Checksum(append(place, b[:44]...), crc32.MakeTable(crc32.Castagnoli)))
}

// Bytes that can be read only with errors are not cut off.
func TestReadErrors(t *testing.T) {
	fsys, _, _ := logOf(t, 2)
	for n := range 12 {
		fsys.FailNth(crashfs.OpRead, n)
		s, err := tryOpen(t, fsys, Options{SegmentSize: minSegment, inline: true})
		if err == nil {
			s.close(t)
			continue // everything was read before the error
		}
		if !errors.Is(err, crashfs.ErrInjected) || errors.Is(err, wlog.ErrDamaged) {
			t.Errorf("read %d: got error %v, want %v", n, err, crashfs.ErrInjected)
		}
	}
	fsys.Inject(nil)
	if d := damages(t, fsys); len(d) > 0 {
		t.Errorf("after failed reads: %v", d[0])
	}
}

// Cut reports whether an entry was cut off at the end of the log.
func TestCut(t *testing.T) {
	for _, tc := range []struct {
		name string
		tear func(t *testing.T, fsys *crashfs.FS, name string, last int64)
		cut  bool
	}{
		{"nothing", func(*testing.T, *crashfs.FS, string, int64) {}, false},
		{"the body", func(t *testing.T, fsys *crashfs.FS, name string, last int64) {
			t.Helper()
			overwrite(t, fsys, name, last+wlog.HeaderSize+500, make([]byte, 200))
		}, true},
		{"all of it", func(t *testing.T, fsys *crashfs.FS, name string, last int64) {
			t.Helper()
			overwrite(t, fsys, name, last, make([]byte, 2000))
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fsys := crashfs.New(1)
			s := openShard(t, fsys, small())
			s.append(t, "stays")
			_, last := locate(s.append(t, strings.Repeat("x", 1000)))
			name := s.active.name
			s.close(t)
			tc.tear(t, fsys, name, last)

			reports, err := Verify(t.Context(), fsys)
			must(t, err)
			if got := reports[0].Cut; (got != nil) != tc.cut || got != nil && (got.File != name || got.Offset != last) {
				t.Errorf("Verify: got cut %v", got)
			}
			var told []string
			o := small()
			o.Events.Cut = func(shard uint32, file string, offset int64) {
				told = append(told, fmt.Sprint(shard, file, offset))
			}
			s = openShard(t, fsys, o)
			s.close(t)
			if (len(told) > 0) != tc.cut || tc.cut && told[0] != fmt.Sprint(0, name, last) {
				t.Errorf("Cut was told %q", told)
			}
			if s.found[0] != "stays" {
				t.Errorf("got %.100q, want the entry before", s.found)
			}
		})
	}
}

// An entry with a wrong checksum and entries behind it was called damaged and, in the next line, unfinished, "which is no damage"; and the
// time of the last entry was missing.
func TestDamagedIsNotCut(t *testing.T) {
	fsys := crashfs.New(1)
	s := openShard(t, fsys, small())
	s.append(t, "stays")
	_, off := locate(s.append(t, strings.Repeat("x", 1000)))
	s.append(t, "behind it")
	name := s.active.name
	s.close(t)
	overwrite(t, fsys, name, off+wlog.HeaderSize+500, make([]byte, 200))

	reports, err := Verify(t.Context(), fsys)
	must(t, err)
	r := reports[0]
	if len(r.Damage) != 1 || r.Damage[0].Offset != off || r.Cut != nil {
		t.Errorf("got damage %v and cut %v, want damage at %d alone", r.Damage, r.Cut, off)
	}
	if r.Time == 0 || r.Epoch == 0 {
		t.Errorf("the last entry that is whole: got time %d and epoch %d", r.Time, r.Epoch)
	}
}

// A segment that is full up to its last few bytes has no filler.
func TestEveryBitCountsWithoutFiller(t *testing.T) {
	const rest = 24
	fsys := crashfs.New(1)
	s := openShard(t, fsys, small())
	s.append(t, strings.Repeat("x", 40_000))
	_, err := s.appendAnyhow([]byte(strings.Repeat("x", int(s.active.size-s.end)-wlog.HeaderSize-rest)))
	must(t, err)
	name, size, end := s.active.name, s.active.size, s.end
	s.append(t, "in the next segment")
	s.close(t)
	if end != size-rest {
		t.Fatalf("%d bytes are left, want %d", size-end, rest)
	}
	for bit := range int64(rest * 8) {
		fsys.Flip(name, end+bit/8, uint(bit%8))
		if d := onlyDamage(t, fsys); d.File != name || d.Offset != end {
			t.Fatalf("byte %d: reported %v", end+bit/8, d)
		}
		fsys.Flip(name, end+bit/8, uint(bit%8))
	}
	s = openShard(t, fsys, small())
	if len(s.found) != 3 {
		t.Errorf("%d entries are left of 3", len(s.found))
	}
	s.close(t)
}
