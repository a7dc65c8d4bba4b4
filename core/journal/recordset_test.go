package journal

import "testing"

func TestRecordSet(t *testing.T) {
	s := newRecordSet()
	s.add(Run{Record: Record{1, 10}, Count: 3})
	s.add(Run{Record: Record{2, 100}, Count: 5_000_000})
	s.add(Run{Record: Record{1, 300}, Count: 100})
	if len(s.single) != 3 {
		t.Errorf("%d records for themselves", len(s.single))
	}
	for r, want := range map[Record]bool{
		{1, 9}: false, {1, 10}: true, {1, 12}: true, {1, 13}: false,
		{1, 299}: false, {1, 300}: true, {1, 399}: true, {1, 400}: false,
		{2, 99}: false, {2, 100}: true, {2, 5_000_099}: true, {2, 5_000_100}: false, {3, 100}: false,
	} {
		if got := s.has(r); got != want {
			t.Errorf("%v: %t", r, got)
		}
	}
}
