package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// retryMillis is when a discard is sent again that was not confirmed.
const retryMillis = 180_000

// discards are at-least-once dead letters that their targets have not confirmed. Those
// that are in the journal are discards after a restart, too.
type discards struct {
	count    int             // of messages, without those that are being retried
	messages map[Ref]discard // by reference
	again    []retry         // those that are to be sent again, in the order of their times

	retrying bool // some are being sent again
	back     int  // of those, how many have been put back into again
}

// discard describes a message that was discarded and has not been confirmed elsewhere.
type discard struct {
	reason   hook.Reason  // none while it is being retried
	since    hook.Instant // when it became a discard; 0 means before a restart
	admitted bool         // a filter admitted it since the start
}

// retry is a discard that is to be sent again.
type retry struct {
	ref Ref
	at  hook.Instant
}

// due reports whether some are to be sent before any others.
func (d *discards) due(now hook.Instant) bool {
	return d != nil && !d.retrying && len(d.again) > 0 && now >= d.again[0].at
}

// reason returns why a message is a discard, none if it is not.
func (d *discards) reason(r Ref) hook.Reason {
	if d == nil {
		return hook.ReasonNone
	}
	return d.messages[r].reason
}

// underway returns how long a message has been a discard: 0 if it never was one, and a
// negative duration if it became one before a restart.
func (d *discards) underway(now hook.Instant, r Ref) time.Duration {
	if d == nil {
		return 0
	}
	m, ok := d.messages[r]
	switch {
	case !ok:
		return 0
	case m.since == 0:
		return -1
	}
	return now.Sub(m.since)
}

// add makes a message a discard, and reports whether it was none before.
func (d *discards) add(now hook.Instant, r Ref, reason hook.Reason) (first bool) {
	m, known := d.messages[r]
	if !known {
		m.since = now
	}
	m.reason = reason
	d.messages[r] = m
	d.count++
	return !known
}

// remove takes a message out. It may become a discard again, until it is forgotten.
func (d *discards) remove(r Ref) {
	d.count--
	m := d.messages[r]
	m.reason = hook.ReasonNone
	d.messages[r] = m
}

// noteAdmitted notes that a filter admitted a discard.
func (d *discards) noteAdmitted(r Ref) {
	m := d.messages[r]
	m.admitted = true
	d.messages[r] = m
}

// forget forgets a message that was removed and did not become a discard again.
func (d *discards) forget(r Ref) {
	if d.messages[r].reason == hook.ReasonNone {
		delete(d.messages, r)
	}
}

// retryAt returns when discards are sent again, 0 for never.
func (d *discards) retryAt() hook.Instant {
	if d == nil || len(d.again) == 0 {
		return 0
	}
	return d.again[0].at
}

// retryLater sends a discard again that was not confirmed.
func (d *discards) retryLater(now hook.Instant, r Ref) {
	d.again = append(d.again, retry{r, now.AddMillis(retryMillis)})
}

// retrySoon sends discards when there is capacity. They wait behind the discards that wait
// already, unless it was their turn.
func (d *discards) retrySoon(now hook.Instant, ms []confirming) {
	if len(ms) == 0 {
		return
	}
	at, _ := slices.BinarySearchFunc(d.again, now+1, func(a retry, t hook.Instant) int { return cmp.Compare(a.at, t) })
	if d.retrying {
		if len(d.again) > 0 {
			now = min(now, d.again[0].at)
		}
		at = d.back
		d.back += len(ms)
	}
	soon := make([]retry, len(ms))
	for i := range ms {
		soon[i] = retry{ms[i].ref, now}
	}
	d.again = slices.Insert(d.again, at, soon...)
}
