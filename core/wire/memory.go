package wire

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/curfewmq/curfew/core/telemetry"
)

// memoryMonitor is the alarm that goes off when messages and unsent output take more than the limit. It is looked at when somebody
// publishes or asks for alarms, and by a goroutine of its own while it is raised: an idle broker does not look.
type memoryMonitor struct {
	limit  atomic.Int64 // bytes; negative = none, 0 = the alarm is on
	used   func() int64
	server *Server

	mu      sync.Mutex                    // guards changes of cleared
	cleared atomic.Pointer[chan struct{}] // closed when the alarm ends; nil while there is none
}

// memoryAlarm is the name of the alarm.
const memoryAlarm = "memory"

// memoryInterval is how often a raised alarm is looked at.
const memoryInterval = 50 * time.Millisecond

// enough is where the alarm ends: a little below the limit, so that it does not go on and off with every message.
func (m *memoryMonitor) enough(used int64) bool {
	limit := m.limit.Load()
	return limit < 0 || limit > 0 && used <= limit-limit/16
}

// raised reports whether the alarm is on.
func (m *memoryMonitor) raised() bool { return m.cleared.Load() != nil }

// check raises the alarm if there is reason to, and returns what is closed when it ends; nil if all is well.
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
	m.server.log.Warn("memory alarm: publishers wait", "used_bytes", used, "limit_bytes", m.limit.Load())
	m.report(telemetry.AlarmRaised)
	return c
}

// report tells of the alarm.
func (m *memoryMonitor) report(kind telemetry.Kind) {
	m.server.options.Session.Telemetry.Notice(telemetry.Notice{Kind: kind, Name: memoryAlarm})
}

// watch waits until there is memory again, or the server ends.
func (m *memoryMonitor) watch() {
	for waiting := true; waiting; {
		waiting = m.server.sleep(memoryInterval) && !m.enough(m.used())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.server.log.Info("memory alarm is over", "used_bytes", m.used())
	m.report(telemetry.AlarmCleared)
	close(*m.cleared.Swap(nil))
}
