package broker

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// idleMemory decides when memory that only a busy broker needs is returned to the system: as soon as the broker is idle, rather than
// minutes later. The collector lets as much garbage gather as there is memory in use, and pools retain memory for the next messages.
type idleMemory struct {
	allocated uint64 // bytes since the start, at the last look
	quiet     int    // successive looks that found next to nothing allocated
}

const (
	idleLook  = 500 * time.Millisecond
	idleLooks = 2 // quiet looks after which memory is returned
	// quietBytes is the most that an idle broker allocates between two looks, for heartbeats and timers.
	quietBytes = 64 << 10
	// worthBytes is the least that is returned. A page that is needed again costs a third of a microsecond.
	worthBytes = 4 << 20
)

// heapSizes are bytes of the Go heap.
type heapSizes struct {
	allocated uint64 // since the start
	live      uint64 // in use at the last collection
	objects   uint64 // in use, or not collected yet
	free      uint64 // unused, and not returned to the system
}

// look reports whether memory should be returned now.
func (m *idleMemory) look(h heapSizes) bool {
	busy := h.allocated-m.allocated > quietBytes
	m.allocated = h.allocated
	if busy {
		m.quiet = 0
		return false
	}
	m.quiet++
	unused := h.free + max(h.objects, h.live) - h.live
	if m.quiet < idleLooks || unused < worthBytes || unused < h.live/4 {
		return false
	}
	m.quiet = 0
	return true
}

// readHeap returns the sizes now. It stops nothing.
func readHeap() heapSizes {
	s := [...]metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(s[:])
	return heapSizes{allocated: s[0].Value.Uint64(), live: s[1].Value.Uint64(), objects: s[2].Value.Uint64(), free: s[3].Value.Uint64()}
}

// liveHeap returns the bytes that were in use at the last collection or, before the first one, all allocated bytes.
func liveHeap() int64 {
	h := readHeap()
	if h.live == 0 {
		return int64(h.objects)
	}
	return int64(h.live)
}

// releaseHeap returns unused memory to the system. Pools release theirs with the second collection.
func releaseHeap() {
	runtime.GC()
	debug.FreeOSMemory()
}

// releaseWhenIdle returns memory to the system whenever the broker is idle, until ctx ends.
func releaseWhenIdle(ctx context.Context) {
	var m idleMemory
	ticker := time.NewTicker(idleLook)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if m.look(readHeap()) {
				releaseHeap()
			}
		}
	}
}
