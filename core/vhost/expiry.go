package vhost

import (
	"log/slog"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// expiryLog logs queues that expired: one line each while they are few, and their number when they are many.
type expiryLog struct {
	log *slog.Logger
	lineBudget
}

// lineBudget limits the lines of a kind that are logged.
type lineBudget struct {
	mu       sync.Mutex // guards the fields below
	tokens   int        // lines that may be logged now
	refilled hook.Instant
	unlogged int // expiries without a line since the last line
}

const (
	expiryBurst  = 20                     // lines at once
	expiryRefill = 100 * time.Millisecond // for each further line
)

func (l *expiryLog) expired(now hook.Instant, q *queue.Config, why *queue.Deletion) {
	single, unlogged := l.admit(now)
	switch {
	case single:
		l.log.Info("queue expired", "queue", q.Name, "reason", hook.ReasonQueueExpired.String(), "idle", why.Idle(),
			"messages_dropped", why.Messages, "messages_dead_lettered", why.DeadLettered, "expired_unlogged", unlogged)
	case powerOfTen(unlogged):
		l.log.Info("many queues expire", "reason", hook.ReasonQueueExpired.String(), "expired_unlogged", unlogged)
	}
}

// admit reports whether a line may be logged, and how many lines were left out since the last one.
func (l *lineBudget) admit(now hook.Instant) (single bool, unlogged int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if more := int(now.Sub(l.refilled) / expiryRefill); more > 0 || l.refilled == 0 {
		l.refilled = now
		l.tokens = min(l.tokens+max(more, 0), expiryBurst)
	}
	if l.tokens == 0 {
		l.unlogged++
		return false, l.unlogged
	}
	l.tokens--
	unlogged, l.unlogged = l.unlogged, 0
	return true, unlogged
}

// powerOfTen reports whether n is 10, 100 and so on.
func powerOfTen(n int) bool {
	for n > 10 && n%10 == 0 {
		n /= 10
	}
	return n == 10
}
