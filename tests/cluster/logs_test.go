package cluster

import (
	"fmt"
	"strings"
	"testing"
)

// Copies of a log are the same as far as a node knows that it is committed. What a node that was cut off has beyond that was taken for a
// difference: TestCampaignCluster failed when it killed all nodes before such a one had heard of the others.
func TestCompare(t *testing.T) {
	tests := []struct {
		name  string
		nodes []*copied
		wrong string
	}{
		{name: "the same", nodes: []*copied{log(1, 3, 1, 1, 1), log(1, 3, 1, 1, 1), log(1, 2, 1, 1)}},
		{name: "trimmed", nodes: []*copied{log(3, 4, 1, 1), log(1, 4, 1, 1, 1, 1), log(2, 4, 1, 1, 1)}},
		{name: "a tail that was never committed", nodes: []*copied{log(1, 2, 1, 1, 1, 1), log(1, 4, 1, 1, 2, 2), log(1, 4, 1, 1, 2, 2)}},
		{name: "a tail that is not committed yet", nodes: []*copied{log(1, 2, 1, 1, 1, 1), log(1, 2, 1, 1), log(1, 2, 1, 1, 2)}},
		{name: "another committed entry", nodes: []*copied{log(1, 3, 1, 1, 1), log(1, 4, 1, 1, 2, 2), log(1, 4, 1, 1, 2, 2)}, wrong: "node 0 has entry 3, term 1"},
		{name: "the same again behind another", nodes: []*copied{log(1, 1, 1, 1, 2), log(1, 3, 1, 3, 2), log(1, 3, 1, 3, 2)}, wrong: "node 0 has entry 3, term 2"},
		{name: "a minority", nodes: []*copied{log(1, 3, 1, 1, 1), log(1, 2, 1, 1), log(1, 2, 1, 1)}, wrong: "only 1 nodes have all"},
		{name: "a minority, and a tail of another", nodes: []*copied{log(1, 3, 1, 1, 2), log(1, 2, 1, 1, 1), log(1, 2, 1, 1)}, wrong: "only 1 nodes have all"},
		{name: "committed, and not there", nodes: []*copied{log(1, 3, 1, 1), log(1, 2, 1, 1), log(1, 2, 1, 1)}, wrong: "has those up to 2"},
	}
	for _, tt := range tests {
		if _, wrong := compare(tt.nodes); (wrong == "") != (tt.wrong == "") || !strings.Contains(wrong, tt.wrong) {
			t.Errorf("%s: %q, want %q", tt.name, wrong, tt.wrong)
		}
	}
}

// log is a copy that begins with an entry, of so many that are known to be committed, with the terms of its entries.
func log(begins, commit uint64, terms ...int) *copied {
	c := &copied{begins: begins, commit: commit, entries: map[uint64]string{}}
	for i, term := range terms {
		index := begins + uint64(i)
		c.entries[index] = fmt.Sprintf("entry %d, term %d", index, term)
	}
	return c
}
