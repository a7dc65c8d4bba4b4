package wire

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/telemetry"
)

// memoryMonitor raises the memory alarm when the memory in use exceeds the limit. It checks whenever a message is published or alarms are
// listed. While the alarm is on, a goroutine of the monitor checks, too. An idle broker does not check.
type memoryMonitor struct {
	limit  atomic.Int64 // bytes; negative means none, 0 keeps the alarm on
	used   func() int64
	heap   liveHeap
	server *Server

	mu      sync.Mutex                    // guards raised, and changes of cleared
	cleared atomic.Pointer[chan struct{}] // closed when the alarm ends; nil while it is off
	raised  chan struct{}                 // closed when the alarm is raised next; nil = no publisher has asked for it
}

const memoryAlarm = "memory"

// memoryInterval is the time between checks while the alarm is on.
const memoryInterval = 50 * time.Millisecond

// collectEvery is how many checks in a row may fail to end the alarm before the monitor collects garbage: once in five seconds.
const collectEvery = int(5 * time.Second / memoryInterval)

// liveHeap caches for a moment how much of the Go heap is in use, because asking the runtime costs microseconds.
type liveHeap struct {
	read  func() int64 // bytes that the last collection found in use; nil means that the Go heap does not count
	bytes atomic.Int64
	asked atomic.Int64 // instant of the last call of read
}

const heapInterval = 100 * time.Millisecond

func (h *liveHeap) size(now clock.Clock) int64 {
	if h.read == nil {
		return 0
	}
	if now, asked := int64(now()), h.asked.Load(); now-asked >= int64(heapInterval) && h.asked.CompareAndSwap(asked, now) {
		h.bytes.Store(h.read())
	}
	return h.bytes.Load()
}

// enough reports whether the alarm may end: memory in use is a little below the limit, so that the alarm does not flip with every message.
func (m *memoryMonitor) enough(used int64) bool {
	limit := m.limit.Load()
	return limit < 0 || limit > 0 && used <= limit-limit/16
}

// collectionMayEnd reports whether a garbage collection could free enough memory to end the
// alarm. It could not while a backlog of messages, which are not in the Go heap, fills the
// memory, or while an operator blocks publishers for hours: then collections would be
// wasted.
func (m *memoryMonitor) collectionMayEnd() bool {
	return m.heap.read != nil && m.enough(m.used()-m.heap.size(m.server.options.Clock))
}

// check raises the alarm if necessary. It returns a channel that is closed when the alarm ends; nil if it is off.
func (m *memoryMonitor) check() <-chan struct{} {
	limit := m.limit.Load()
	if limit < 0 {
		return nil
	}
	if c := m.cleared.Load(); c != nil {
		return *c
	}
	if used := m.used(); used > limit || limit == 0 {
		return m.raise(used)
	}
	return nil
}

func (m *memoryMonitor) raise(used int64) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.cleared.Load(); c != nil {
		return *c
	}
	c := make(chan struct{})
	if !m.server.begin(m.watch) {
		return nil
	}
	m.cleared.Store(&c)
	if m.raised != nil {
		close(m.raised)
		m.raised = nil
	}
	m.server.log.Warn("memory alarm: publishers wait", "used_bytes", used, "limit_bytes", m.limit.Load())
	m.report(telemetry.AlarmRaised)
	return c
}

// nextRaise returns a channel that is closed when the alarm is raised the next time.
func (m *memoryMonitor) nextRaise() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.raised == nil {
		m.raised = make(chan struct{})
	}
	return m.raised
}

func (m *memoryMonitor) report(kind telemetry.Kind) {
	m.server.options.Session.Telemetry.Notice(telemetry.Notice{Kind: kind, Name: memoryAlarm})
}

// watch ends the alarm when there is enough memory or the server ends.
func (m *memoryMonitor) watch() {
	for i := 1; m.server.sleep(memoryInterval) && !m.enough(m.used()); i++ {
		if i%collectEvery == 0 && m.collectionMayEnd() {
			runtime.GC() // only a collection finds out how much of the Go heap is unused, and blocked publishers trigger none
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.server.log.Info("memory alarm is over", "used_bytes", m.used())
	m.report(telemetry.AlarmCleared)
	close(*m.cleared.Swap(nil))
}
