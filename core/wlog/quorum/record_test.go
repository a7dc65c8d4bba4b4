package quorum

import (
	"bytes"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/curfewmq/curfew/core/wlog"
)

func entry(index, term uint64, data string) *raftpb.Entry {
	return &raftpb.Entry{Index: new(index), Term: new(term), Type: raftpb.EntryNormal.Enum(), Data: []byte(data)}
}

func replayed(t *testing.T, ops ...[]byte) *disk {
	t.Helper()
	d := &disk{conf: &raftpb.ConfState{}}
	for i, b := range ops {
		if err := d.replay(wlog.Index(i+1), b); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// A replay finds the records that were written.
func TestRecords(t *testing.T) {
	conf := &raftpb.ConfState{Voters: []uint64{1, 2, 1 << 60}, Learners: []uint64{4}, VotersOutgoing: []uint64{5, 6}, LearnersNext: []uint64{7}, AutoLeave: new(true)}
	h := hardState{7, 2, 11}
	one := appendBeginning(appendHardState(nil, hardState{3, 1, 10}), recAnew, position{10, 3}, conf)
	two := appendEntry(appendEntry(appendTime(appendHardState(nil, h), kept{6, -3}), entry(11, 3, "eleven")), entry(12, 7, ""))
	d := replayed(t, one, two)
	if d.hard != h || d.time != (kept{6, -3}) || d.base != (position{10, 3}) || !proto.Equal(d.conf, conf) || d.last() != (position{12, 7}) {
		t.Errorf("got %+v from %+v to %+v, %v", d.hard, d.base, d.last(), d.conf)
	}
	e := d.entries[0]
	if got := two[e.off : e.off+int(e.size)]; e.at != 2 || !bytes.Equal(got, []byte("eleven")) {
		t.Errorf("entry 11 is %q at %d", got, e.at)
	}
}

// A trimmed local log may begin anywhere: with entries that were replaced or trimmed later, and with beginnings that were not the last one.
func TestReplayOfATrimmedLog(t *testing.T) {
	conf := &raftpb.ConfState{Voters: []uint64{1}}
	entries := func(from, to uint64) (b []byte) {
		for i := from; i <= to; i++ {
			b = appendEntry(b, entry(i, 1, "x"))
		}
		return b
	}
	begins := func(index uint64) []byte { return appendBeginning(nil, recBeginning, position{index, 1}, conf) }
	for name, tc := range map[string]struct {
		log        [][]byte
		base, last uint64
	}{
		"from its beginning":                {[][]byte{append(entries(48, 51), begins(47)...)}, 47, 51},
		"an older beginning":                {[][]byte{entries(48, 51), begins(44), begins(47), begins(49)}, 49, 51},
		"an older beginning first":          {[][]byte{begins(38), entries(48, 51), begins(47)}, 47, 51},
		"all is trimmed":                    {[][]byte{entries(48, 51), begins(51)}, 51, 51},
		"nothing but a beginning":           {[][]byte{begins(51)}, 51, 51},
		"entries that were replaced":        {[][]byte{entries(48, 51), entries(46, 47), begins(45)}, 45, 47},
		"entries behind those were trimmed": {[][]byte{entries(20, 21), begins(60), entries(61, 62)}, 60, 62},
	} {
		t.Run(name, func(t *testing.T) {
			d := replayed(t, tc.log...)
			if !d.begun || d.base.index != tc.base || d.last().index != tc.last {
				t.Errorf("it begins behind %d (%t) and ends with %d, want %d and %d", d.base.index, d.begun, d.last().index, tc.base, tc.last)
			}
		})
	}
}

// A local log without its beginning is damaged, not empty.
func TestReplayWithoutABeginning(t *testing.T) {
	d := replayed(t, appendEntry(nil, entry(48, 1, "x")))
	if d.begun {
		t.Error("it is taken for a whole log")
	}
}

// FuzzReplay checks that the replay of any bytes ends, and that no entry lies outside of them.
func FuzzReplay(f *testing.F) {
	conf := &raftpb.ConfState{Voters: []uint64{1, 2, 3}}
	f.Add(appendEntry(appendBeginning(appendHardState(nil, hardState{1, 2, 3}), recAnew, first, conf), entry(2, 1, "two")))
	f.Add(appendTime(appendEntry(nil, entry(9, 1, "nine")), kept{1, 2}))
	f.Add(appendBeginning(appendEntry(nil, entry(9, 1, "nine")), recBeginning, position{8, 1}, conf))
	f.Fuzz(func(t *testing.T, b []byte) {
		d := &disk{conf: &raftpb.ConfState{}}
		if d.replay(1, b) != nil {
			return
		}
		for i := range d.entries {
			if e := &d.entries[i]; e.off+int(e.size) > len(b) {
				t.Errorf("entry %d ends at %d of %d", i, e.off+int(e.size), len(b))
			}
		}
		if d.base.index > d.last().index {
			t.Errorf("it begins behind %d and ends with %d", d.base.index, d.last().index)
		}
	})
}
