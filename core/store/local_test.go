package store

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/curfewmq/curfew/core/logtest"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog/local"
	"github.com/curfewmq/curfew/core/wlog/seg"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// openLocal opens a store on the engine of a broker without a cluster, as a cluster of one. The caller calls end.
func openLocal(t *testing.T, dir vfs.FS) (k *kept, end func()) {
	t.Helper()
	log := new(logtest.Log)
	o := options(t, dir, log)
	files, err := seg.New(dir, seg.Options{SegmentSize: 1 << 20, Clock: o.Clock})
	must(t, err)
	o.Shards = 2
	engine := local.New(files, uint32(o.Shards)+1, registryShard)
	o.Cluster, o.Files, o.Log = engine, files, slog.New(slog.NewTextHandler(log, nil))
	s, err := Open(t.Context(), o)
	must(t, err)
	k = &kept{Store: s, t: t, log: log}
	k.v = k.served(DefaultVHost)
	return k, func() {
		t.Helper()
		must(t, s.Close(t.Context()))
		must(t, engine.Close())
	}
}

// served waits until a vhost is served.
func (k *kept) served(name string) *vhost.VHost {
	k.t.Helper()
	for {
		changed := k.Registry().Changed()
		if h, ok := k.Home(name); ok {
			if h.Here {
				v, _ := k.VHost(name)
				return v
			}
			changed = h.Changed
		}
		select {
		case <-changed:
		case <-k.t.Context().Done():
			k.t.Fatalf("vhost %s is not served: %s", name, k.log)
		}
	}
}

// A broker alone can be a cluster of one: what it has is there after a restart, with definitions and messages of a vhost in one log, and
// users and placements in the registry.
func TestClusterOfOne(t *testing.T) {
	dir := vfs.Dir(t.TempDir())
	for n := range 3 {
		k, end := openLocal(t, dir)
		if n == 0 {
			_, err := k.AddVHost("b", vhost.Metadata{Description: "another"})
			must(t, err)
			k.declare("q")
		}
		b := k.served("b")
		if got := b.Metadata().Description; got != "another" {
			t.Errorf("start %d: the vhost is %q", n, got)
		}
		if _, err := k.SetGlobalParameter(fmt.Sprint(n), []byte("1")); err != nil {
			t.Error(err)
		}
		if got := len(k.GlobalParameters()); got != n+1 {
			t.Errorf("start %d: there are %d parameters", n, got)
		}
		if n > 0 {
			k.wantMessages("q", fmt.Sprint(n-1))
		}
		k.put(k.queue("q"), fmt.Sprint(n))
		if here, _ := k.Registry().Placement("b"); here.Shard != 2 {
			t.Errorf("start %d: b is in shard %d", n, here.Shard)
		}
		end()
	}
}
