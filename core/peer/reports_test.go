package peer

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Nodes that start one after the other, or read their logs, cause no warnings. A node that stays away does.
func TestStartsAreNoWarnings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		a := f.node(t, 1)
		a.Connect([]Node{nodeOf(2), nodeOf(3)})
		time.Sleep(startTime - time.Second)
		reads := true
		b := f.node(t, 2, func(o *Options) {
			o.Check = func(h Hello) error {
				if reads && h.Kind != Greeting {
					return Later("this node is still reading its logs")
				}
				return nil
			}
		})
		time.Sleep(500 * time.Millisecond)
		b.Connect([]Node{nodeOf(1)})
		time.Sleep(100 * time.Millisecond)
		a.wantLog(t, `level=INFO msg="node not reachable" node=node3:5680`)
		for _, n := range []*testNode{a, b} {
			if log := n.log.String(); strings.Contains(log, "level=WARN") {
				t.Errorf("%s warns:\n%s", n.node.Address, log)
			}
		}
		time.Sleep(time.Minute)
		a.wantLog(t, `level=INFO msg="node not reachable" node=node2:5680 error="it refuses: this node is still reading its logs"`)
		a.wantLog(t, `level=WARN msg="node not reachable" node=node3:5680`)
		if log := a.log.String(); strings.Contains(log, "level=WARN msg=\"node not reachable\" node=node2") {
			t.Errorf("a node that reads its logs is warned of:\n%s", log)
		}
		f.close()
	})
}
