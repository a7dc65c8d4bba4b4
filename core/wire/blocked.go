package wire

import (
	"sync/atomic"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/session"
)

// Blocked is how many connections are not read from at this moment, by what they wait for. One can wait for several things.
type Blocked struct {
	Alarm     int // an alarm to end: for memory, or space on the disk
	Log       int // the log to catch up with what was published
	Queue     int // a queue to see through the work it has
	Consumers int // consumers to catch up: a millisecond for 256 KiB at most, again and again
	Client    int // their own client to read what it was sent
}

// Blocked counts the connections that wait.
func (s *Server) Blocked() Blocked {
	n := func(r reason) int { return int(s.blocked[r].Load()) }
	return Blocked{
		Alarm: n(forAlarm), Log: n(forLog), Queue: int(queue.WaitingPublishers()), Consumers: n(forConsumers), Client: n(forClient),
	}
}

// reason is why a connection is not read from.
type reason uint8

const (
	forAlarm reason = iota
	forLog
	forConsumers
	forClient
	reasons
)

// blockedCounts counts connections by why they are not read from.
type blockedCounts [reasons]atomic.Int64

// reasons returns why the connection may not be read from.
func (c *conn) reasons() (why [reasons]bool) {
	open := c.state == session.Open
	why[forAlarm] = open && c.alarm != nil
	why[forLog] = open && c.logCaughtUp != nil
	why[forClient] = c.session.Congested()
	return why
}

// enter counts one that begins to wait, and leave one that ends.
func (w *blockedCounts) enter(why *[reasons]bool) { w.add(why, 1) }
func (w *blockedCounts) leave(why *[reasons]bool) { w.add(why, -1) }

func (w *blockedCounts) add(why *[reasons]bool, n int64) {
	for r, is := range why {
		if is {
			w[r].Add(n)
		}
	}
}
