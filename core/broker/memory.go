package broker

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math"
	"path"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// machineMemory returns the bytes of memory that this process may use: those of the machine, or less if its control group or one above it
// has a limit. root is the file system from "/" on. 0 = unknown.
func machineMemory(root fs.FS) uint64 {
	total := uint64(math.MaxUint64)
	if b, err := fs.ReadFile(root, "proc/meminfo"); err == nil {
		total = memTotal(b)
	}
	for _, name := range limitFiles(root) {
		b, err := fs.ReadFile(root, name)
		if err != nil {
			continue
		}
		if limit, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64); err == nil && limit > 0 {
			total = min(total, limit) // "max" is not a number, and sets no limit
		}
	}
	if total == math.MaxUint64 {
		return 0
	}
	return total
}

func memTotal(meminfo []byte) uint64 {
	for line := range bytes.Lines(meminfo) {
		var kib uint64
		if _, err := fmt.Sscanf(string(line), "MemTotal: %d", &kib); err == nil {
			return kib << 10
		}
	}
	return math.MaxUint64
}

// limitFiles returns the files that may limit this process's memory: those of its control group, in version 2 and 1, and of the groups
// above.
func limitFiles(root fs.FS) []string {
	const v2, v1 = "sys/fs/cgroup", "sys/fs/cgroup/memory"
	names := []string{v2 + "/memory.max", v1 + "/memory.limit_in_bytes"}
	b, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return names
	}
	lines := bufio.NewScanner(bytes.NewReader(b))
	for lines.Scan() { // "0::/group" or "7:memory:/group"
		f := strings.SplitN(lines.Text(), ":", 3)
		if len(f) < 3 {
			continue
		}
		for group := path.Clean("/" + f[2]); group != "/"; group = path.Dir(group) {
			switch f[1] {
			case "":
				names = append(names, v2+group+"/memory.max")
			case "memory":
				names = append(names, v1+group+"/memory.limit_in_bytes")
			}
		}
	}
	return names
}

// diskSize returns the size of the disk that dir is on, or will be on once it is created; 0 = unknown.
func diskSize(dir string) uint64 {
	for {
		if room, known := vfs.SpaceOf(vfs.Dir(dir)); known {
			return uint64(max(room.Total, 0))
		}
		above := filepath.Dir(dir)
		if above == dir {
			return 0
		}
		dir = above
	}
}

// clientDescriptors returns how many of limit file descriptors clients may use; the others are for logs and other nodes. 0 = all.
func clientDescriptors(limit int) int {
	const least, most = 32, 1024
	return max(0, limit-min(max(limit/16, least), most))
}

// operatorDescriptors is clientDescriptors for the management API, health checks and metrics. It is higher, because operators must reach a
// broker whose clients have used up theirs.
func operatorDescriptors(limit int) int {
	clients := clientDescriptors(limit)
	if clients == 0 {
		return 0
	}
	return clients + (limit-clients)/4
}

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
