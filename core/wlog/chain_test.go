package wlog

import (
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

func TestChain(t *testing.T) {
	type step struct {
		at    Index
		kind  Kind
		epoch uint64
		prev  Index
		want  string // "live", "void" or "error"
	}
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{"one owner", []step{{1, Takeover, 1, 0, "live"}, {2, Data, 1, 1, "live"}, {5, Data, 1, 2, "live"}, {6, Filler, 1, 5, "live"}}},
		{"begins anywhere, because the rest was trimmed", []step{{40, Data, 3, 39, "live"}, {41, Data, 3, 40, "live"}}},
		{"two owners", []step{{1, Takeover, 1, 0, "live"}, {2, Takeover, 2, 1, "live"}, {3, Data, 2, 2, "live"}}},
		{"epochs may be left out", []step{{1, Takeover, 1, 0, "live"}, {2, Takeover, 9, 1, "live"}}},
		{"a former owner is late", []step{
			{1, Takeover, 1, 0, "live"},
			{2, Takeover, 2, 1, "live"},
			{3, Data, 1, 1, "void"},
			{4, Data, 2, 2, "live"},
			{5, Data, 1, 3, "void"},
			{6, Data, 2, 4, "live"},
		}},
		{"a takeover comes after what its writer had not seen", []step{
			{1, Takeover, 1, 0, "live"}, {2, Data, 1, 1, "live"}, {3, Takeover, 2, 1, "void"}, {4, Data, 1, 2, "live"}, {5, Takeover, 2, 4, "live"},
		}},
		{"two take over at once", []step{{1, Takeover, 1, 0, "live"}, {2, Takeover, 2, 1, "live"}, {3, Takeover, 2, 1, "void"}, {4, Data, 2, 2, "live"}}},
		{"an entry is missing", []step{{1, Takeover, 1, 0, "live"}, {3, Data, 1, 2, "error"}}},
		{"a takeover is missing", []step{{1, Takeover, 1, 0, "live"}, {3, Data, 2, 1, "error"}}},
		{"an index comes twice", []step{{1, Takeover, 1, 0, "live"}, {1, Data, 1, 1, "error"}}},
		{"an index goes back", []step{{5, Takeover, 1, 0, "live"}, {4, Data, 1, 5, "error"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var c Chain
			for _, s := range tc.steps {
				void, err := c.Follow(s.at, &Header{Kind: s.kind, Epoch: s.epoch, Prev: s.prev})
				got := map[bool]string{true: "void", false: "live"}[void]
				if err != nil {
					got = "error"
				}
				if got != s.want {
					t.Errorf("entry %d: got %s (%v), want %s", s.at, got, err, s.want)
				}
				if got == "live" && (c.Last != s.at || c.Epoch != s.epoch) {
					t.Errorf("after entry %d the chain is at %d in epoch %d", s.at, c.Last, c.Epoch)
				}
			}
		})
	}
}

func TestNextContinuesTheChain(t *testing.T) {
	var c, reader Chain
	clock := []hook.Instant{100, 90, 200} // set back once
	for i, want := range []hook.Instant{100, 100, 200} {
		h := c.Next(Data, 4, clock[i])
		at := Index(i + 1)
		c.Appended(at, &h)
		if h.Time != want || h.Shard != 4 {
			t.Errorf("entry %d: got time %d and shard %d, want %d and 4", at, h.Time, h.Shard, want)
		}
		if void, err := reader.Follow(at, &h); void || err != nil {
			t.Errorf("entry %d: void %t, error %v", at, void, err)
		}
	}
	if reader != c {
		t.Errorf("reader is at %+v, writer at %+v", reader, c)
	}
}
