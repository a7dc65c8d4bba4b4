package vhost

import (
	"fmt"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/sdk/hook"
)

// A shard that failed is stopped until the broker is started again, and with it every queue that has its messages there.
// Those who ask for such a queue are told.

// stopped is the error for a queue that is stopped.
func stopped(e *queue.StoppedError) *Error {
	return &Error{Kind: Stopped, Text: e.Error() + ", see the broker logfile", cause: e}
}

// notDurable is the error for a change that could not be made durable.
func (v *VHost) notDurable(err error) *Error {
	text := fmt.Sprintf("vhost '%s': definitions cannot be kept: shard 0 failed, see the broker logfile", v.name)
	return &Error{Kind: Stopped, Text: text, cause: err}
}

// undelivered is the error for a queue that is deleted until the next restart.
func (v *VHost) undelivered(name string, err error) *Error {
	text := v.queueName(name) + ": messages that it dead-lettered could not be written, see the broker logfile"
	return &Error{Kind: Stopped, Text: text, cause: err}
}

// usable refuses a queue the shard of which has failed.
func usable(shell *queue.Mailbox) error {
	cfg := shell.Config()
	if cfg.Storage == nil {
		return nil
	}
	if err := cfg.Storage.Journal.Err(); err != nil {
		return stopped(&queue.StoppedError{VHost: cfg.VHost, Queue: cfg.Name, Shard: cfg.Storage.Shard, Err: err})
	}
	return nil
}

// allUsable refuses queues if one is not usable.
func allUsable(shells []*queue.Mailbox) error {
	for _, s := range shells {
		if err := usable(s); err != nil {
			return err
		}
	}
	return nil
}

// StopShard has the queues of a shard that failed take notice, and makes publishers ask anew where their messages go. It
// returns how many queues there are.
func (v *VHost) StopShard(shard uint32) (queues int) {
	v.mu.Lock()
	v.invalidateRoutes()
	v.mu.Unlock()
	for _, s := range v.Queues() {
		if r := s.Config().Storage; r != nil && r.Shard == shard {
			queues++
			// An error means that it is gone.
			_ = s.Do(func(*queue.Queue, hook.Instant) {})
		}
	}
	return queues
}
