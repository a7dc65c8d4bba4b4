package journal

import "testing"

func TestRecordSet(t *testing.T) {
	s := newRecordSet()
	s.add(Run{Record{1, 10}, 3})
	s.add(Run{Record{2, 100}, 5_000_000})
	if len(s.single) != 3 {
		t.Errorf("%d records for themselves", len(s.single))
	}
	for r, want := range map[Record]bool{
		{1, 9}: false, {1, 10}: true, {1, 12}: true, {1, 13}: false,
		{2, 99}: false, {2, 100}: true, {2, 5_000_099}: true, {2, 5_000_100}: false, {3, 100}: false,
	} {
		if got := s.has(r); got != want {
			t.Errorf("%v: %t", r, got)
		}
	}
}
