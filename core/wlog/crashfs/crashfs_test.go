package crashfs

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/core/wlog/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func create(t *testing.T, s *FS, name string) vfs.File {
	t.Helper()
	f, err := s.Open(name, vfs.Create)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// put writes a sector full of one letter.
func put(t *testing.T, f vfs.File, sector int, letter byte) {
	t.Helper()
	if err := f.Writev(int64(sector)*Sector, [][]byte{bytes.Repeat([]byte{letter}, Sector)}); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// letters returns the first letter of each sector of a file; "absent" if there
// is none.
func letters(t *testing.T, s *FS, name string) string {
	t.Helper()
	f, err := s.Open(name, vfs.Read)
	if err != nil {
		return "absent"
	}
	var found []byte
	for off := int64(0); ; off += Sector {
		p := make([]byte, Sector)
		n, _ := f.ReadAt(p, off)
		if n == 0 {
			return string(found)
		}
		if n < Sector || !bytes.Equal(p, bytes.Repeat(p[:1], Sector)) {
			t.Errorf("sector %d is torn", off/Sector)
		}
		found = append(found, max(p[0], '.'))
	}
}

// outcomes collects what is found after losing power with each of many seeds.
func outcomes(t *testing.T, prepare func(s *FS)) []string {
	t.Helper()
	var found []string
	for seed := range uint64(300) {
		s := New(seed)
		prepare(s)
		after := s.LosePower()
		if got := letters(t, after, "a"); !slices.Contains(found, got) {
			found = append(found, got)
		}
	}
	slices.Sort(found)
	return found
}

func TestLosePower(t *testing.T) {
	for _, tc := range []struct {
		name    string
		prepare func(t *testing.T, s *FS)
		want    []string
	}{
		{"all synced", func(t *testing.T, s *FS) {
			t.Helper()
			f := create(t, s, "a")
			put(t, f, 0, 'x')
			must(t, errors.Join(f.Sync(), s.Sync()))
		}, []string{"x"}},
		{"name not synced", func(t *testing.T, s *FS) {
			t.Helper()
			f := create(t, s, "a")
			put(t, f, 0, 'x')
			must(t, f.Sync())
		}, []string{"absent", "x"}},
		{"second write not synced", func(t *testing.T, s *FS) {
			t.Helper()
			f := create(t, s, "a")
			put(t, f, 0, 'x')
			must(t, errors.Join(f.Sync(), s.Sync()))
			put(t, f, 0, 'y')
		}, []string{"x", "y"}},
		{"two writes in any order", func(t *testing.T, s *FS) {
			t.Helper()
			f := create(t, s, "a")
			put(t, f, 1, 'x')
			must(t, errors.Join(f.Sync(), s.Sync()))
			put(t, f, 0, 'y')
			put(t, f, 1, 'z')
		}, []string{".x", ".z", "yx", "yz"}},
		{"a write torn", func(t *testing.T, s *FS) {
			t.Helper()
			f := create(t, s, "a")
			must(t, errors.Join(f.Allocate(2*Sector), f.Sync(), s.Sync()))
			must(t, f.Writev(0, [][]byte{bytes.Repeat([]byte("x"), 2*Sector)}))
		}, []string{"..", ".x", "x.", "xx"}},
		{"a failed sync is not made good by another", func(t *testing.T, s *FS) {
			t.Helper()
			f := create(t, s, "a")
			put(t, f, 0, 'x')
			must(t, errors.Join(f.Sync(), s.Sync()))
			put(t, f, 0, 'y')
			s.FailNth(OpSync, 0)
			if err := f.Sync(); !errors.Is(err, ErrInjected) {
				t.Errorf("got error %v, want %v", err, ErrInjected)
			}
			must(t, f.Sync())
		}, []string{"x", "y"}},
		{"a failed sync of names is", func(t *testing.T, s *FS) {
			t.Helper()
			f := create(t, s, "a")
			put(t, f, 0, 'x')
			must(t, f.Sync())
			s.FailNth(OpSyncDir, 0)
			if err := s.Sync(); !errors.Is(err, ErrInjected) {
				t.Errorf("got error %v, want %v", err, ErrInjected)
			}
			must(t, s.Sync())
		}, []string{"x"}},
		{"a rename not synced", func(t *testing.T, s *FS) {
			t.Helper()
			f, g := create(t, s, "a"), create(t, s, "b")
			put(t, f, 0, 'x')
			put(t, g, 0, 'y')
			must(t, errors.Join(f.Sync(), g.Sync(), s.Sync()))
			must(t, s.Rename("b", "a"))
		}, []string{"x", "y"}},
		{"a removal not synced", func(t *testing.T, s *FS) {
			t.Helper()
			f := create(t, s, "a")
			put(t, f, 0, 'x')
			must(t, errors.Join(f.Sync(), s.Sync(), s.Remove("a")))
		}, []string{"absent", "x"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := outcomes(t, func(s *FS) { tc.prepare(t, s) })
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestKillKeepsWhatWasSeen(t *testing.T) {
	kept, lost := false, false
	for seed := range uint64(50) {
		s := New(seed)
		lock, err := s.Open("LOCK", vfs.Lock)
		must(t, err)
		put(t, create(t, s, "a"), 0, 'x')
		s = s.Kill()
		if got := letters(t, s, "a"); got != "x" {
			t.Fatalf("after Kill: got %q, want x", got)
		}
		if _, err := s.Open("LOCK", vfs.Lock); err != nil {
			t.Errorf("the lock outlives its process: %v", err)
		}
		if err := lock.Writev(0, nil); !errors.Is(err, ErrPower) {
			t.Errorf("a killed process writes on: %v", err)
		}
		switch letters(t, s.LosePower(), "a") {
		case "x":
			kept = true
		default:
			lost = true
		}
	}
	if !kept || !lost {
		t.Errorf("what was not synced before Kill: kept %t, lost %t, want both", kept, lost)
	}
}

func TestCutPower(t *testing.T) {
	s := New(1)
	f := create(t, s, "a")
	s.CutPower(1)
	put(t, f, 0, 'x')
	for range 3 {
		if err := f.Writev(0, [][]byte{[]byte("y")}); !errors.Is(err, ErrPower) {
			t.Errorf("got error %v, want %v", err, ErrPower)
		}
	}
	if _, err := f.ReadAt(make([]byte, 1), 0); !errors.Is(err, ErrPower) {
		t.Errorf("read: got error %v, want %v", err, ErrPower)
	}
}

func TestFailNth(t *testing.T) {
	s := New(1)
	f := create(t, s, "a")
	s.FailNth(OpWrite, 2)
	for i := range 5 {
		err := f.Writev(0, [][]byte{{1}})
		if got, want := errors.Is(err, ErrInjected), i == 2; got != want {
			t.Errorf("write %d: got error %v", i, err)
		}
	}
	if got := s.Count(OpWrite); got != 5 {
		t.Errorf("counted %d writes, want 5", got)
	}
}

func TestSpace(t *testing.T) {
	s := New(1)
	s.SetSpace(1000)
	f, g := create(t, s, "a"), create(t, s, "b")
	must(t, f.Allocate(600))
	if err := g.Allocate(600); !vfs.NoSpace(err) {
		t.Errorf("got error %v, want that there is no space", err)
	}
	must(t, f.Allocate(500)) // it has them
	must(t, s.Remove("a"))
	must(t, g.Allocate(1000))
}

func TestFlip(t *testing.T) {
	s := New(1)
	f := create(t, s, "a")
	put(t, f, 0, 'x')
	s.Flip("a", 3, 0)
	p := make([]byte, 4)
	if _, err := f.ReadAt(p, 0); err != nil || string(p) != "xxxy" {
		t.Errorf("got %q, %v, want xxxy", p, err)
	}
}

// What a disk loses followed from the order of a map, and not from the seed.
func TestSeedDecides(t *testing.T) {
	lose := func(seed uint64) (found []string) {
		s := New(seed)
		names := []string{"a", "b", "c", "d", "e", "f"}
		for _, name := range names {
			f := create(t, s, name)
			must(t, errors.Join(f.Sync(), s.Sync()))
			for sector := range 8 {
				put(t, f, sector, 'x')
			}
		}
		s = s.LosePower()
		for _, name := range names {
			found = append(found, letters(t, s, name))
		}
		return found
	}
	for seed := range uint64(20) {
		if first, again := lose(seed), lose(seed); !slices.Equal(first, again) {
			t.Fatalf("seed %d leaves %q, and then %q", seed, first, again)
		}
	}
}
