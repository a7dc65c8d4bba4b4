package quorum

import (
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// A full disk stayed full: unneeded entries were trimmed only if they were at least 256, and another entry followed.
func TestLargeEntriesAreTrimmed(t *testing.T) {
	for name, last := range map[string]bool{"all of them": false, "all but one": true} {
		t.Run(name, func(t *testing.T) {
			inTrio(t, func(c *trio) {
				c.owner(0)
				l := c.open(0, 1)
				var at wlog.Index
				for range 5 {
					at = c.append(l, 600<<10)
				}
				before := at + 1
				if last {
					before = at
				}
				if err := l.Trim(before); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
				for id, e := range c.nodes {
					if st := e.Status()[0]; st.First < uint64(before) || st.Bytes > 2<<20 {
						t.Errorf("node %d has %d bytes, from entry %d on; nothing before %d is needed", id, st.Bytes, st.First, before)
					}
				}
				owned := c.nodes[1].Status()[0]
				time.Sleep(time.Minute)
				if st := c.nodes[1].Status()[0]; st.Last != owned.Last {
					t.Errorf("entries %d to %d say that nothing was trimmed", owned.Last+1, st.Last)
				}
			})
		})
	}
}

// append appends an entry of that size.
func (c *trio) append(l wlog.Log, size int) wlog.Index {
	c.Helper()
	at, err := l.Append(c.Context(), make([]byte, size), wlog.Bringing)
	if err != nil {
		c.Fatal(err)
	}
	return at
}
