package cluster

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/peer"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
)

func testIdentity() identity {
	nodes := []peer.Node{{ID: 1 << 63, Address: "a:5680"}, {ID: 7, Address: "b:5680"}, {ID: 9, Address: "c:5680"}}
	return identity{
		Format: 1, Number: 7, Address: "b:5680", Started: true, Cluster: clusterID(numbersOf(nodes), 0), Name: "x", Shards: 3,
		Founders: numbersOf(nodes), Nodes: nodes,
	}
}

// After a crash at any step of a save, the file has the old or the new identity.
func TestSaveSurvivesCrashes(t *testing.T) {
	before, after := identity{Format: 1, Number: 7, Address: "b:5680"}, testIdentity()
	errCrash := errors.New("crash")
	seen := map[string]int{}
	for seed := range uint64(20) {
		for crashAt := range 12 {
			fsys := crashfs.New(seed)
			if err := before.save(fsys); err != nil {
				t.Fatal(err)
			}
			n := 0
			fsys.Inject(func(crashfs.Op) error {
				if n++; n > crashAt {
					return errCrash
				}
				return nil
			})
			saved := after.save(fsys) == nil
			got, ok, err := loadIdentity(fsys.LosePower())
			switch {
			case err != nil || !ok:
				t.Fatalf("seed %d, crash at operation %d: %v, there is one: %v", seed, crashAt, err, ok)
			case reflect.DeepEqual(got, after):
				seen["after"]++
			case reflect.DeepEqual(got, before) && !saved:
				seen["before"]++
			default:
				t.Fatalf("seed %d, crash at operation %d: %+v, saved: %v", seed, crashAt, got, saved)
			}
		}
	}
	if seen["before"] == 0 || seen["after"] == 0 {
		t.Errorf("seen: %v", seen)
	}
}

// An impossible file is refused as damaged, or as written by a later version.
func TestIdentityIsChecked(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*identity)
		want   error
	}{
		{"as it is", func(*identity) {}, nil},
		{"of no cluster", func(i *identity) { *i = identity{Format: 1, Number: 5} }, nil},
		{"no number", func(i *identity) { i.Number = 0 }, wlog.ErrDamaged},
		{"other founders", func(i *identity) { i.Founders[0]++ }, wlog.ErrDamaged},
		{"not in the list", func(i *identity) { i.Number = 8 }, wlog.ErrDamaged},
		{"no shards", func(i *identity) { i.Shards = 0 }, wlog.ErrDamaged},
		{"later", func(i *identity) { i.Format = 2 }, wlog.ErrNewer},
	} {
		t.Run(tc.name, func(t *testing.T) {
			id := testIdentity()
			tc.change(&id)
			content, err := json.Marshal(id)
			if err != nil {
				t.Fatal(err)
			}
			got, err := parseIdentity(content)
			if !errors.Is(err, tc.want) || err == nil && !reflect.DeepEqual(got, id) {
				t.Errorf("got %+v, %v, want %v", got, err, tc.want)
			}
		})
	}
	if _, err := parseIdentity([]byte("{")); !errors.Is(err, wlog.ErrDamaged) {
		t.Errorf("half a file: %v", err)
	}
}

func FuzzIdentity(f *testing.F) {
	content, err := json.Marshal(testIdentity())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(content)
	f.Fuzz(func(t *testing.T, content []byte) {
		id, err := parseIdentity(content)
		if err != nil {
			return
		}
		again, err := json.Marshal(id)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := parseIdentity(again); err != nil || !reflect.DeepEqual(second, id) {
			t.Fatalf("%+v becomes %+v, %v", id, second, err)
		}
	})
}

// A node adopts the cluster that another node describes only if it is possible and has this node as a member.
func TestAdoptable(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*peer.Hello)
		want   string // part of the error; "" = the cluster is adopted
	}{
		{"as it is", func(*peer.Hello) {}, ""},
		{"a node was replaced", func(h *peer.Hello) { h.Nodes[2].ID = 1000 }, ""},
		{"this one has another number", func(h *peer.Hello) { h.Nodes[1].ID = 8 }, "the node at a:5680 has node 8 at b:5680, but this is node 7"},
		{"this one is missing", func(h *peer.Hello) { h.Nodes[1].Address = "d:5680" }, "has node 0 at b:5680"},
		{"two nodes", func(h *peer.Hello) { h.Nodes = h.Nodes[:2] }, "it has 2 nodes: a cluster has three nodes"},
		{"four nodes", func(h *peer.Hello) { h.Nodes = append(h.Nodes, peer.Node{ID: 3, Address: "d:5680"}) }, "it has 4 nodes"},
		{"one number twice", func(h *peer.Hello) { h.Nodes[2].ID = h.Nodes[0].ID }, "is listed twice, or has no number"},
		{"one address twice", func(h *peer.Hello) { h.Nodes[2].Address = h.Nodes[0].Address }, "is listed twice, or has no number"},
		{"no number", func(h *peer.Hello) { h.Nodes[0].ID = 0 }, "is listed twice, or has no number"},
		{"another id", func(h *peer.Hello) { h.Cluster = strings.Repeat("0", 32) }, "was not begun by the nodes"},
		{"other founders", func(h *peer.Hello) { h.Founders = h.Founders[:2] }, "was not begun by the nodes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			of := testIdentity()
			h := peer.Hello{Address: "a:5680", Cluster: of.Cluster, Name: "x", Shards: 3, Founders: of.Founders, Nodes: of.Nodes}
			tc.change(&h)
			n := &Node{id: identity{Format: 1, Number: 7, Address: "b:5680"}}
			id, err := n.adoptable(&h)
			if tc.want == "" {
				if err != nil || id.Cluster != h.Cluster || id.Number != 7 || id.Started {
					t.Errorf("got %+v, %v", id, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// The data of a broker without a cluster and the data of a node are distinguished, and each is refused in place of the other.
func TestCheckFolder(t *testing.T) {
	for _, tc := range []struct {
		name      string
		files     []string
		clustered bool
		want      string
		missing   bool
	}{
		{name: "new, in a cluster", clustered: true},
		{name: "new"},
		{name: "not there, in a cluster", missing: true, clustered: true},
		{name: "not there", missing: true},
		{name: "single", files: []string{"00000-00000001.seg"}},
		{name: "single, in a cluster", files: []string{"00000-00000001.seg"}, clustered: true, want: "curfew ctl cluster import --from"},
		{name: "node, in a cluster", files: []string{"cluster/node.json", "cluster/00000-00000001.seg"}, clustered: true},
		{name: "being made, in a cluster", files: []string{"cluster.unfinished/node.json"}, clustered: true, want: "run it again"},
		{name: "being made", files: []string{"cluster.unfinished/node.json"}, want: "run it again"},
		{name: "node", files: []string{"cluster/node.json"}, want: "start it with cluster.nodes (--cluster)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			for _, f := range tc.files {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, f)), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if tc.missing {
				dir = filepath.Join(dir, "not")
			}
			err := CheckFolder(dir, tc.clustered)
			if (err != nil) != (tc.want != "") || err != nil && (!strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "data.dir "+dir)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}
