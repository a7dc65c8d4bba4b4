package store

import (
	"strconv"
	"testing"

	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// A broker alone is a cluster of one: what it has is there after a restart, with definitions and messages of a vhost in one log, and users
// and placements in the registry.
func TestAlone(t *testing.T) {
	dir := vfs.Dir(t.TempDir())
	for n := range 3 {
		k := open(t, dir, func(o *Options) { o.Shards = 2 })
		if n == 0 {
			_, err := k.AddVHost("b", vhost.Metadata{Description: "another"})
			must(t, err)
			k.declare("q")
		}
		if got := k.in("b").v.Metadata().Description; got != "another" {
			t.Errorf("start %d: the vhost is %q", n, got)
		}
		if _, err := k.SetGlobalParameter(strconv.Itoa(n), []byte("1")); err != nil {
			t.Error(err)
		}
		if got := len(k.GlobalParameters()); got != n+1 {
			t.Errorf("start %d: there are %d parameters", n, got)
		}
		if n > 0 {
			k.wantMessages("q", strconv.Itoa(n-1))
		}
		k.put(k.queue("q"), strconv.Itoa(n))
		if here, _ := k.Registry().Placement("b"); here.Shard != 2 {
			t.Errorf("start %d: b is in shard %d", n, here.Shard)
		}
		k.close()
	}
}
