package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

func appendTo(t *testing.T, l wlog.Log, entry string) {
	t.Helper()
	if _, err := l.Append(t.Context(), []byte(entry), wlog.Bringing); err != nil {
		t.Fatal(err)
	}
}

// Three nodes with the same list become a cluster. Whichever node owns a shard can append to it, and the entries are there after that node
// has ended, after another one has, and after all have.
func TestThreeNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ms := newMachines(t, 1)
		ms.begin()
		id := ms.all[0].identity()
		for _, m := range ms.all[1:] {
			if got := m.identity(); got.Cluster != id.Cluster || !slices.Equal(got.Nodes, id.Nodes) {
				t.Errorf("%s: %+v, %s: %+v", m.address, got, ms.all[0].address, id)
			}
		}
		var want []string
		for i := range 6 {
			owner, l := ms.owner(1)
			entry := fmt.Sprintf("entry %d", i)
			appendTo(t, l, entry)
			want = append(want, entry)
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			owner.losePower()
			if got := ms.entries(1); !slices.Equal(got, want) {
				t.Fatalf("after the owner lost power: got %q, want %q", got, want)
			}
			owner.boot()
			ms.await()
			time.Sleep(time.Second)
		}
		for _, m := range ms.all {
			m.losePower()
		}
		ms.begin()
		if got := ms.entries(1); !slices.Equal(got, want) {
			t.Errorf("after all lost power: got %q, want %q", got, want)
		}
		ms.stop()
	})
}

// A node that is alone owns no shard.
func TestMinority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ms := newMachines(t, 2)
		ms.begin()
		_, l := ms.owner(1)
		appendTo(t, l, "x")
		ms.all[0].losePower()
		ms.all[1].losePower()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c := ms.all[2].node
		if l, err := c.Engine().Open(ctx, 1, func(wlog.Index, []byte) error { return nil }); err == nil {
			if _, err := l.Append(ctx, []byte("y"), wlog.Bringing); err == nil {
				t.Error("one node of three has appended")
			}
		}
		for _, st := range c.Status().Links {
			if st.Connected || st.Err == nil {
				t.Errorf("%s: connected: %v, error: %v", st.Node.Address, st.Connected, st.Err)
			}
		}
		ms.stop()
	})
}

// A node without data at the address of a member is refused, its log says what to do, and it joins once it is admitted.
func TestEmptyDiskAtAKnownAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ms := newMachines(t, 3)
		ms.begin()
		a, b := ms.all[0], ms.all[1]
		former := b.identity().Number
		b.losePower()
		b.fs = newMachines(t, 4).all[1].fs
		b.boot()
		time.Sleep(10 * time.Second)
		select {
		case <-b.opened:
			t.Fatalf("it was let in: %v", b.err)
		default:
		}
		b.wantLog("run curfew ctl cluster replace b:5680 on another node")
		b.wantLog(fmt.Sprintf("the cluster has node %d at b:5680", former))
		a.wantLog("run curfew ctl cluster replace b:5680 on another node")
		applicants := a.node.Applicants()
		if len(applicants) != 1 || applicants[0].Address != "b:5680" || applicants[0].ID != b.identity().Number {
			t.Fatalf("applicants: %v", applicants)
		}
		for range 2 { // the request may be repeated
			if err := a.node.Admit(applicants[0]); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		ms.await()
		if got := b.identity(); got.Cluster != a.identity().Cluster || got.founder() {
			t.Errorf("after it was admitted: %+v", got)
		}
		if len(a.node.Applicants()) != 0 {
			t.Error("it still applies")
		}
		ms.stop()
	})
}

// Data of another configuration is refused, and the error names the difference.
func TestOtherConfiguration(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Options)
		want   string
	}{
		{"advertise", func(o *Options) { o.Advertise = "b:5680" }, "cluster.advertise is b:5680, but the data folder belongs to the node at a:5680"},
		{
			"list", func(o *Options) { o.Nodes = []string{"a:5680", "b:5680", "d:5680"} },
			"cluster.nodes are a:5680,b:5680,d:5680, but the data folder belongs to a cluster of a:5680,b:5680,c:5680",
		},
		{"name", func(o *Options) { o.Name = "other" }, `cluster.name is "other", but the data folder belongs to the cluster "test"`},
		{"shards", func(o *Options) { o.Shards = 5 }, "cluster.shards is 5, but the data folder belongs to a cluster with 2, which is fixed at the first start"},
		{"two nodes", func(o *Options) { o.Nodes = o.Nodes[:2] }, "cluster.nodes a:5680,b:5680 has 2 addresses: a cluster has three nodes"},
		{"four nodes", func(o *Options) { o.Nodes = append(o.Nodes, "d:5680") }, "has 4 addresses: a cluster has three nodes"},
		{"twice", func(o *Options) { o.Nodes[2] = o.Nodes[1] }, "cluster.nodes a:5680,b:5680,b:5680 has b:5680 twice"},
		{"advertise is none of them", func(o *Options) { o.Advertise = "d:5680" }, "cluster.advertise d:5680 is not among cluster.nodes a:5680,b:5680,c:5680"},
		{"too many shards", func(o *Options) { o.Shards = 256 }, "cluster.shards 256: 1 to 255 are allowed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ms := newMachines(t, 5)
				ms.begin()
				ms.stop()
				m := ms.all[0]
				m.change = tc.change
				m.wantRefused(tc.want)
				ms.stop()
			})
		})
	}
}

// A node without one of its logs would have forgotten its votes.
func TestLogIsMissing(t *testing.T) {
	for _, tc := range []struct {
		name, suffix, want string
	}{
		{"a log", "00001-", "the log of shard 1 is missing; empty the data folder, start the node, and run curfew ctl cluster replace a:5680 on another one"},
		{"the number", identityFile, "there are logs, but no node.json, which says to which node they belong"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ms := newMachines(t, 6)
				ms.begin()
				ms.stop()
				m := ms.all[0]
				files, err := m.fs.List()
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range files {
					if strings.HasPrefix(f.Name, tc.suffix) {
						if err := m.fs.Remove(f.Name); err != nil {
							t.Fatal(err)
						}
					}
				}
				m.wantRefused(tc.want)
				ms.stop()
			})
		})
	}
}

// When an owner's process ends, another node owns its shards long before the election timeout.
func TestFailoverIsSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ms := newMachines(t, 10)
		const election = 10 * time.Second
		for _, m := range ms.all {
			m.change = func(o *Options) { o.Election = election }
		}
		ms.begin()
		time.Sleep(10 * time.Second)
		for range 5 {
			owner, l := ms.owner(1)
			appendTo(t, l, "x")
			time.Sleep(20 * time.Second)
			begin := time.Now()
			owner.losePower()
			_, l = ms.owner(1)
			appendTo(t, l, "y")
			// The two other nodes stand for election in turns, of which there are ten in an election timeout.
			if took := time.Since(begin); took > 3*election/10 {
				t.Errorf("it took %v", took)
			}
			owner.boot()
			ms.await()
			time.Sleep(20 * time.Second)
		}
		ms.stop()
	})
}
