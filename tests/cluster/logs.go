package cluster

import (
	"bufio"
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// copied is what a node has of a shard's log.
type copied struct {
	begins  uint64            // the first entry that may be there
	commit  uint64            // the last one that the node knows is committed
	entries map[uint64]string // what is said of each, which is the same on all nodes
}

// last is the last entry that the copy has without a gap.
func (c *copied) last() uint64 {
	n := c.begins
	for c.entries[n] != "" {
		n++
	}
	return n - 1
}

// Compare fails the test unless the nodes, none of which runs, have the same in their logs, up to what any of them knows is committed, and
// unless a majority has that. It returns how many entries it has compared.
func (c *Cluster) Compare() (entries int) {
	c.t.Helper()
	all := make([]map[string]*copied, len(c.Nodes))
	for i, n := range c.Nodes {
		all[i] = c.logs(n)
	}
	for shard := range all[0] {
		entries += c.compare(shard, all)
	}
	return entries
}

func (c *Cluster) compare(shard string, nodes []map[string]*copied) (entries int) {
	c.t.Helper()
	copies := make([]*copied, len(nodes))
	for i := range nodes {
		if copies[i] = nodes[i][shard]; copies[i] == nil {
			c.t.Errorf("node %d has no %s", i, shard)
			return 0
		}
	}
	entries, wrong := compare(copies)
	if wrong != "" {
		c.t.Errorf("%s: %s", shard, wrong)
	}
	return entries
}

// compare compares what nodes have of a log with the copy of the one that knows the most to be committed. It returns how many entries it has
// compared, and what is wrong; "" = nothing.
//
// What a node does not know to be committed may be another one than what was: it was cut off while it owned the shard, and ended before it
// heard what became of that. From the first such entry on, none is the same.
func compare(nodes []*copied) (entries int, wrong string) {
	most := 0
	for i, n := range nodes {
		if n.commit > nodes[most].commit {
			most = i
		}
	}
	best := nodes[most]
	if best.last() < best.commit {
		return 0, fmt.Sprintf("node %d knows that entry %d is committed, and has those up to %d", most, best.commit, best.last())
	}
	have := 1
	for i, n := range nodes {
		if i == most {
			continue
		}
		same := true
		for index := max(n.begins, best.begins); index <= min(n.last(), best.commit); index++ {
			entries++
			equal := n.entries[index] == best.entries[index]
			if !equal && index <= n.commit || equal && !same {
				return entries, fmt.Sprintf("node %d has %s; node %d has %s, of %d that are committed, %d of them for all that the former knows",
					i, n.entries[index], most, best.entries[index], best.commit, n.commit)
			}
			same = same && equal
		}
		if same && n.last() >= best.commit {
			have++
		}
	}
	if have <= len(nodes)/2 {
		return entries, fmt.Sprintf("entry %d is committed, and only %d nodes have all up to it", best.commit, have)
	}
	return entries, ""
}

// logs reads what a node has, by shard.
func (c *Cluster) logs(n *Node) map[string]*copied {
	c.t.Helper()
	text, err := exec.CommandContext(c.t.Context(), c.program, "log", "dump", filepath.Join(n.Data, "cluster")).Output()
	if err != nil {
		c.t.Fatalf("node %d: curfew log dump: %v", n.Number, err)
	}
	all, now := map[string]*copied{}, &copied{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		if line := lines.Text(); strings.HasPrefix(line, "shard ") {
			now = &copied{entries: map[uint64]string{}}
			all[line] = now
		} else {
			now.read(line)
		}
	}
	return all
}

// read takes in a line about an entry, or about where the copy begins, or how far it is.
func (c *copied) read(line string) {
	var index, term, vote uint64
	switch {
	case scan(line, "  entry %d, term %d", &index, &term):
		c.entries[index] = strings.TrimSpace(line)
		for later := index + 1; c.entries[later] != ""; later++ { // it replaces them
			delete(c.entries, later)
		}
	case scan(line, "  term %d, vote for %d, committed through %d", &term, &vote, &index):
		c.commit = index
	case scan(line, "  begins behind entry %d", &index):
		c.begins = max(c.begins, index+1)
	case scan(line, "  begins anew behind entry %d", &index):
		*c = copied{begins: index + 1, commit: max(c.commit, index), entries: map[uint64]string{}}
	}
}

func scan(line, format string, into ...any) bool {
	n, err := fmt.Sscanf(line, format, into...)
	return err == nil && n == len(into)
}
