package broker

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// idleMemory decides when the memory that only a busy broker needs is given back to the system: as soon as it is idle, rather than
// minutes later. The collector lets as much garbage gather as there is in use, and pools retain what the next messages would need.
type idleMemory struct {
	allocated uint64 // bytes since the start, when it looked last
	quiet     int    // looks in a row that found next to nothing allocated
}

const (
	idleLook  = 500 * time.Millisecond
	idleLooks = 2 // that find the broker quiet, before anything is given back
	// quietBytes is what an idle broker allocates between two looks at most: heartbeats and timers.
	quietBytes = 64 << 10
	// worthBytes is the least that is given back. Pages that are needed again cost a third of a microsecond each.
	worthBytes = 4 << 20
)

// heapSizes are bytes of the Go heap.
type heapSizes struct {
	allocated uint64 // since the start
	live      uint64 // found in use by the last collection
	objects   uint64 // in use, or not collected yet
	free      uint64 // unused, and not given back
}

// look reports whether memory should be given back now.
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

// liveHeap returns the bytes that the last collection found in use or, before the first, all that is allocated.
func liveHeap() int64 {
	h := readHeap()
	if h.live == 0 {
		return int64(h.objects)
	}
	return int64(h.live)
}

// releaseHeap gives back what is not in use. Pools let go with the second collection.
func releaseHeap() {
	runtime.GC()
	debug.FreeOSMemory()
}

// releaseWhenIdle gives memory back whenever the broker is idle, until ctx ends.
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
