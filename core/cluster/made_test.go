package cluster

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/peer"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// made makes a folder for two shards of vhosts, with an entry in each log.
func made(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	m := begun(t, dir)
	if err := m.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func begun(t *testing.T, dir string) *Made {
	t.Helper()
	m, err := Make(dir, 2)
	if err != nil {
		t.Fatal(err)
	}
	for shard := range uint32(3) {
		f, err := m.Found(t.Context(), shard)
		if err == nil {
			err = f.Append(t.Context(), 7, []byte("a message"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// joinIn makes the folder that of a member of a cluster, like its first start.
func joinIn(t *testing.T, dir string, change func(i *identity)) {
	t.Helper()
	fs := vfs.Dir(Folder(dir))
	id, _, err := loadIdentity(fs)
	if err != nil {
		t.Fatal(err)
	}
	nodes := []peer.Node{{ID: id.Number, Address: "a:5680"}, {ID: 7, Address: "b:5680"}, {ID: 9, Address: "c:5680"}}
	id.Address, id.Name, id.Nodes, id.Founders = "a:5680", "x", nodes, numbersOf(nodes)
	id.Cluster = clusterID(id.Founders, id.Seed)
	change(&id)
	if err := id.save(fs); err != nil {
		t.Fatal(err)
	}
}

// An unfinished folder is no node's, and is begun again. Only one process at a time makes a folder.
func TestMakeIsInterrupted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	m := begun(t, dir)
	if _, err := Make(dir, 2); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("at the same time: %v", err)
	}
	if err := errors.Join(m.engine.Close(), m.unlock()); err != nil { // as if it was killed
		t.Fatal(err)
	}
	for _, clustered := range []bool{true, false} {
		if err := CheckFolder(dir, clustered); err == nil || !strings.Contains(err.Error(), "was interrupted: empty the folder") {
			t.Errorf("a broker would start on it: %v", err)
		}
	}
	m = begun(t, dir)
	if err := m.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := CheckFolder(dir, true); err != nil {
		t.Error(err)
	}
	if _, err := Make(dir, 2); err == nil || !strings.Contains(err.Error(), "is not empty: there is cluster") {
		t.Errorf("over what is there: %v", err)
	}
}

// Into a folder that is marked goes what a backup has. No broker starts on it meanwhile.
func TestMark(t *testing.T) {
	dir := t.TempDir()
	must(t, Mark(dir))
	for _, clustered := range []bool{true, false} {
		if err := CheckFolder(dir, clustered); err == nil || !strings.Contains(err.Error(), "was interrupted: empty the folder") {
			t.Errorf("a broker would start on it: %v", err)
		}
	}
	must(t, Unmark(dir))
	must(t, CheckFolder(dir, true))
}

// A folder that is given up leaves nothing behind.
func TestMakeIsGivenUp(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	m := begun(t, dir)
	if err := errors.Join(m.Close(), m.Close()); err != nil {
		t.Fatal(err)
	}
	if err := CheckFolder(dir, true); err != nil {
		t.Error(err)
	}
	short, err := Make(dir, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := short.Finish(t.Context()); err == nil || !strings.Contains(err.Error(), "0 of 3 shards") {
		t.Errorf("without its logs: %v", err)
	}
	if err := short.Close(); err != nil {
		t.Error(err)
	}
}

// A copy of a node can be restored several times, each time to another node.
func TestRestore(t *testing.T) {
	from := made(t)
	joinIn(t, from, func(*identity) {})
	numbers := map[wlog.NodeID]bool{}
	for _, copied := range []string{from, Folder(from)} {
		c, err := OpenCopy(copied)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "data")
		entries, err := Restore(t.Context(), c, dir)
		if err := errors.Join(err, c.Close()); err != nil || entries != 3 {
			t.Fatalf("%d entries, %v", entries, err)
		}
		id, _, err := loadIdentity(vfs.Dir(Folder(dir)))
		if err != nil || id.member() || id.Seed != id.Number || id.Shards != 2 {
			t.Errorf("it is %+v, %v", id, err)
		}
		numbers[id.Number] = true
		found := 0
		r, err := seg.NewReader(vfs.Dir(Folder(dir)))
		if err != nil {
			t.Fatal(err)
		}
		for _, shard := range r.Shards() {
			if err := r.Read(t.Context(), shard, func(_ wlog.Index, _ *wlog.Header, entry []byte) error {
				found += bytes.Count(entry, []byte("a message"))
				return nil
			}); err != nil {
				t.Error(err)
			}
		}
		if err := r.Close(); err != nil || found != 3 {
			t.Errorf("%d messages, %v", found, err)
		}
	}
	if len(numbers) != 2 {
		t.Errorf("the numbers are %v", numbers)
	}
}

// An incomplete copy of a node is refused, and leaves nothing behind.
func TestRestoreRefuses(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tc := range []struct {
		name   string
		ctx    context.Context
		change func(dir string)
		want   string
	}{
		{"nothing", t.Context(), func(dir string) { must(t, os.RemoveAll(dir)) }, "is not a copy of a node's data folder"},
		{"a single broker's", t.Context(), func(dir string) { must(t, os.Rename(Folder(dir), filepath.Join(dir, "x"))) }, "is not a copy of a node's data folder"},
		{"of a node of no cluster", t.Context(), func(dir string) { joinIn(t, dir, func(i *identity) { i.Cluster = "" }) }, "did not belong to a cluster yet"},
		{"of a node without votes", t.Context(), func(dir string) {
			joinIn(t, dir, func(i *identity) {
				for n := range i.Nodes {
					if i.Nodes[n].ID == i.Number {
						i.Nodes[n].ID = 99
					}
				}
				i.Number, i.Founders, i.Seed = 99, numbersOf(i.Nodes), 0
				i.Cluster = clusterID(i.Founders, 0)
			})
		}, "the node had no vote in it yet, and may have received only a part; restore the copy of another node"},
		{"damaged", t.Context(), func(dir string) {
			all, err := filepath.Glob(filepath.Join(Folder(dir), "00001-*.first"))
			if err != nil || len(all) != 1 {
				t.Fatalf("%v %v", all, err)
			}
			must(t, os.Remove(strings.TrimSuffix(all[0], ".first")+".seg"))
		}, "log damaged"},
		{"without a log", t.Context(), func(dir string) {
			all, _ := filepath.Glob(filepath.Join(Folder(dir), "00002-*"))
			for _, f := range all {
				must(t, os.Remove(f))
			}
		}, "shard 2: the node had not received any part of it yet"},
		{"an interrupt", canceled, func(string) {}, "context canceled"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			from := made(t)
			joinIn(t, from, func(*identity) {})
			tc.change(from)
			dir := filepath.Join(t.TempDir(), "data")
			c, err := OpenCopy(from)
			if err == nil {
				_, err = Restore(tc.ctx, c, dir)
				err = errors.Join(err, c.Close())
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
			if _, err := os.Stat(filepath.Join(dir, unfinishedFolder)); err == nil {
				t.Error("something stays")
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
