package live

import (
	"log/slog"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Deadlines are instants of the vhost's time, which goes on when another node serves the vhost. They were compared with the node's time.
func TestCountIsInTheTimeOfTheQueue(t *testing.T) {
	const now, offset = hook.Instant(time.Second), time.Hour
	c, err := chain.New(nil, chain.Options{})
	if err != nil {
		t.Fatal(err)
	}
	v := vhost.New(vhost.Config{
		Name: "/", Chain: c, Log: slog.New(slog.DiscardHandler), Offset: offset, Clock: func() hook.Instant { return now.Add(offset) },
	})
	d, err := v.DeclareQueue(vhost.QueueDeclare{Name: "q"})
	if err != nil {
		t.Fatal(err)
	}
	counts, err := Count(d.Mailbox)
	if want := now.Add(offset); err != nil || counts.At != want || !counts.Complete {
		t.Errorf("counted at %d, complete %v, %v; want %d", counts.At, counts.Complete, err, want)
	}
}

// Sums over all queues did the same: after a move, messages due in a minute counted as overdue.
func TestSumsAreInTheTimeOfTheVHost(t *testing.T) {
	const now, offset, due = hook.Instant(time.Hour), -30 * time.Minute, time.Minute
	c, err := chain.New(nil, chain.Options{})
	if err != nil {
		t.Fatal(err)
	}
	v := vhost.New(vhost.Config{
		Name: "/", Chain: c, Log: slog.New(slog.DiscardHandler), Offset: offset, Clock: func() hook.Instant { return now.Add(offset) },
	})
	at := now.Add(offset + due)
	e := &Entry{earliest: at, due: []queue.DueMark{{At: at, N: 3}}}
	e.Stats.NextRelease = at
	tenant := &Tenant{VHost: v, Entries: []*Entry{e}}
	tenant.sum(now)
	got := tenant.Counts
	if got.Earliest != now.Add(due) || got.NextRelease != now.Add(due) || got.At != now {
		t.Errorf("earliest %d, next release %d at %d; want %d for both", got.Earliest, got.NextRelease, got.At, now.Add(due))
	}
	var want queue.DueCounts
	if want.Add(now, now.Add(due), 3); got.due.Steps != want.Steps || got.due.Overdue != 0 {
		t.Errorf("they are not in the step of %s, and %d are overdue", due, got.due.Overdue)
	}
}
