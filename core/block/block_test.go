package block

import (
	"testing"

	"github.com/curfewmq/curfew/core/slab"
)

// The largest blocks were left to the garbage collector, which let hundreds of megabytes of them gather, each of them cleared
// before it was filled. They are given back at once, to the next message of such a size or to the system.
func TestLargeBlocksAreGivenBack(t *testing.T) {
	const size = 1<<maxBlockBits + 1
	before := slab.Used()
	k := New(size)
	if len(k.Buf) < size {
		t.Fatalf("%d bytes for %d", len(k.Buf), size)
	}
	k.Buf[0], k.Buf[len(k.Buf)-1] = 1, 2
	k.Retain()
	k.Release()
	if k.Buf[0] != 1 || k.Shared() {
		t.Error("it was given back while it had an owner")
	}
	first := &k.Buf[0]
	k.Release()
	again := New(size)
	if &again.Buf[0] != first || again.Shared() {
		t.Error("another one was made although one was free")
	}
	again.Release()
	if n := slab.Used(); n != before {
		t.Errorf("%d bytes count as a queue's", n-before)
	}
}
