package live

import (
	"log/slog"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// What is due was counted by the node's time. Deadlines are instants of the vhost's, which goes on when another node serves it.
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
