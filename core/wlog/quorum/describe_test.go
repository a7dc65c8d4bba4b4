package quorum

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/curfewmq/curfew/core/wlog"
)

// The text of a local log had each record as an operation that was not understood.
func TestDescribe(t *testing.T) {
	header := make([]byte, bodyHeaderSize)
	bodyHeader{trim: 2, at: 1_500_000_000}.put(header)
	normal, members := raftpb.EntryNormal, raftpb.EntryConfChangeV2
	entry := func(index uint64, typ *raftpb.EntryType, data []byte) *raftpb.Entry {
		return &raftpb.Entry{Index: new(index), Term: new(uint64(3)), Type: typ, Data: data}
	}
	b := appendBeginning(nil, recAnew, first, &raftpb.ConfState{Voters: []uint64{7, 8, 9}})
	b = appendHardState(b, hardState{3, 7, 4})
	b = appendTime(b, kept{3, -5 * time.Millisecond})
	b = appendEntry(b, entry(2, &normal, nil))
	b = appendEntry(b, entry(3, &members, []byte("change")))
	b = appendEntry(b, entry(4, &normal, append(header, "body"...)))
	b = appendEntry(b, entry(5, &normal, []byte{4, 0, 0, 0, 0, 0, 0, 0}))
	b = appendBeginning(b, recBeginning, position{3, 3}, &raftpb.ConfState{Voters: []uint64{7, 8}, Learners: []uint64{9}})
	const want = `  begins anew behind entry 1, term 1, voters [7 8 9], learners [], former voters []
  term 3, vote for 7, committed through 4
  time of term 3, -5ms ahead of the machine's clock
  entry 2, term 3, of an election, 0 bytes, digest e3b0c44298fc1c14
  entry 3, term 3, of members, 6 bytes, digest ` + "DIGEST" + `
  entry 4, term 3, of the shard, 20 bytes, digest ` + "DIGEST" + `, 1970-01-01T00:00:01.500000000Z, nothing before 2 is needed
  at 4: body
  entry 5, term 3, of a trim, 8 bytes, digest ` + "DIGEST" + `, nothing before 4 is needed
  begins behind entry 3, term 3, voters [7 8], learners [9], former voters []
`
	var text strings.Builder
	describe := Describe(func(w io.Writer, at wlog.Index, entry []byte) error {
		_, err := fmt.Fprintf(w, "  at %d: %s\n", at, entry)
		return err
	})
	if err := describe(&text, 0, b); err != nil {
		t.Fatal(err)
	}
	got, expected := strings.Split(text.String(), "\n"), strings.Split(want, "\n")
	for i, line := range expected {
		before, after, digest := strings.Cut(line, "DIGEST")
		if i >= len(got) || !strings.HasPrefix(got[i], before) || digest && !strings.HasSuffix(got[i], after) || !digest && got[i] != line {
			t.Fatalf("got\n%s\nwant\n%s", text.String(), want)
		}
	}

	for n := 1; n < len(b); n += 7 { // cut off at any place
		if err := describe(io.Discard, 0, b[:n]); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	text.Reset()
	if err := describe(&text, 0, []byte{99, 1, 2}); err != nil || text.String() != "  NOT UNDERSTOOD: not a record of a replica\n" {
		t.Errorf("got %q, %v", text.String(), err)
	}
}
