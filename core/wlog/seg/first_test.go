package seg

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// A trimmed log could lose its oldest segments, and confirmed messages with them, without a report: the next segment passed for its
// beginning.
func TestALostOldestSegmentIsNoticedAfterATrim(t *testing.T) {
	fsys := crashfs.New(1)
	s := openShard(t, fsys, small())
	s.fillUntil(t, 6, 1000)
	must(t, s.Trim(wlog.Index(3)<<32|headerSize))
	s.close(t)
	fsys = fsys.LosePower()
	if d := damages(t, fsys); len(d) > 0 {
		t.Fatalf("nothing is lost yet, and there is damage: %v", d)
	}
	must(t, fsys.Remove("00000-00000003.seg"))
	const want = "00000-00000003.seg at byte 0: the file is missing"
	if d := damageOf(t, fsys); !strings.HasSuffix(d.Error(), want) {
		t.Errorf("Open: got %v, want %s", d, want)
	}
	if d := onlyDamage(t, fsys); !strings.HasSuffix(d.Error(), want) {
		t.Errorf("Verify: got %v, want %s", d, want)
	}
	var out strings.Builder
	if err := Dump(t.Context(), fsys, &out, nil); !errors.Is(err, wlog.ErrDamaged) || !strings.Contains(out.String(), "DAMAGED: "+want) {
		t.Errorf("Dump: got %v and\n%s", err, out.String())
	}
	must(t, fsys.Remove("00000-00000004.seg"))
	if d := onlyDamage(t, fsys); !strings.HasSuffix(d.Error(), want+", and those after it up to 00000-00000004.seg") {
		t.Errorf("two are missing: got %v", d)
	}
}

// A log of an older version does not record where it begins, until it is opened.
func TestWhereALogBeginsIsWrittenDownAtOpening(t *testing.T) {
	fsys, files, _ := logOf(t, 4)
	must(t, fsys.Remove("00000-00000001.first"))
	must(t, fsys.Remove(files[0].Name))
	if d := damages(t, fsys); len(d) > 0 {
		t.Errorf("nobody knows that a segment is missing, and it is reported: %v", d)
	}
	openShard(t, fsys, small()).close(t)
	fsys = fsys.LosePower()
	must(t, fsys.Remove(files[1].Name))
	if d := onlyDamage(t, fsys); d.File != files[1].Name {
		t.Errorf("got %v, want %s missing", d, files[1].Name)
	}
}

// The power goes after each step of opening and trimming a log: no segment counts as missing, and the remaining entries are there.
func TestPowerLossAtEachStepOfATrim(t *testing.T) {
	for _, durability := range []Durability{Fsync, Flush} {
		for _, fresh := range []bool{true, false} {
			for step, over := 0, false; !over; step++ {
				for seed := range uint64(max(4/fewer, 1)) {
					name := fmt.Sprintf("durability %d, fresh %v, step %d, seed %d", durability, fresh, step, seed)
					over = trimUntilDark(t, name, durability, fresh, step, seed)
				}
			}
		}
	}
}

// trimUntilDark loses power after step steps, and reports whether all of them had been done before.
func trimUntilDark(t *testing.T, name string, durability Durability, fresh bool, step int, seed uint64) (over bool) {
	t.Helper()
	fsys := crashfs.New(seed)
	o := small()
	o.Durability = durability
	var kept []string
	fill := func(s *shard) wlog.Index {
		s.fillUntil(t, 5, 1000)
		at := s.append(t, "stays")
		kept = append(kept, "stays")
		return at
	}
	var before wlog.Index
	if !fresh { // like an older version
		s := openShard(t, fsys, o)
		before = fill(s)
		s.close(t)
		must(t, errors.Join(fsys.Remove("00000-00000001.first"), fsys.Sync()))
		fsys.CutPower(step)
	}
	s, err := tryOpen(t, fsys, o)
	if err == nil {
		if fresh {
			before = fill(s)
			must(t, s.sync())
			fsys.CutPower(step)
		}
		err = s.Trim(before)
		_ = s.engine.Close()
	}
	if err != nil && !errors.Is(err, crashfs.ErrPower) {
		t.Fatalf("%s: %v", name, err)
	}
	fsys = fsys.LosePower()
	if d := damages(t, fsys); len(d) > 0 {
		t.Fatalf("%s: %v", name, d)
	}
	s = openShard(t, fsys, o)
	defer s.close(t)
	if !slices.Contains(s.found, "stays") {
		t.Errorf("%s: what was not trimmed is gone", name)
	}
	return err == nil
}

// On a disk without space for a name, a log can begin and be trimmed nevertheless.
func TestAFullDiskDoesNotKeepWhatIsTrimmed(t *testing.T) {
	fsys := crashfs.New(1)
	full := func(op crashfs.Op) error {
		if op.Kind == crashfs.OpCreate && strings.HasSuffix(op.Name, ".first") {
			return syscall.ENOSPC
		}
		return nil
	}
	fsys.Inject(full)
	s := openShard(t, fsys, small())
	s.fillUntil(t, 4, 1000)
	must(t, s.Trim(wlog.Index(3)<<32|headerSize))
	if _, err := fsys.Open("00000-00000002.seg", vfs.Read); err == nil {
		t.Error("what was trimmed stays")
	}
	fsys.Inject(nil)
	must(t, s.Trim(wlog.Index(4)<<32|headerSize))
	s.close(t)
	must(t, fsys.Remove("00000-00000004.seg"))
	if d := onlyDamage(t, fsys); d.File != "00000-00000004.seg" {
		t.Errorf("got %v, want segment 4 missing", d)
	}
}
