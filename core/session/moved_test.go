package session

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
)

// movedVHost is a vhost that has moved.
func movedVHost(t *testing.T) *vhost.VHost {
	t.Helper()
	c, err := chain.New(nil, chain.Options{})
	if err != nil {
		t.Fatal(err)
	}
	v := vhost.New(vhost.Config{Name: "v", Chain: c, Clock: clock.New(), Log: slog.New(slog.DiscardHandler)})
	v.Move("moved")
	return v
}

// A client that published while its vhost moved got its channel closed, with a text about a failure, before it was evicted. Client libraries
// reconnect automatically, but do not reopen channels that the broker closed.
func TestMovedVHostEndsTheConnection(t *testing.T) {
	const text = "CONNECTION_FORCED - vhost 'v' is not served by this node any more"
	for name, err := range map[string]error{
		"a commit": errNotStored("v", fmt.Errorf("journal: %w", wlog.ErrNotOwner)),
		"a queue":  errNotStored("v", &queue.StoppedError{VHost: "v", Err: wlog.ErrNotOwner}),
		"a call":   in(movedVHost(t).CheckExchange("amq.fanout"), amqp.ClassExchange, amqp.MethodExchangeDeclare),
	} {
		e, ok := errors.AsType[*amqp.Error](err)
		if !ok || e.Code != amqp.ReplyConnectionForced || e.Soft {
			t.Errorf("%s: got %v", name, err)
		}
		if name == "a commit" && e.Error() != text {
			t.Errorf("got %s, want %s", e, text)
		}
	}
	if e := errNotStored("v", errors.New("broken")); e.Code != amqp.ReplyInternalError || !e.Soft {
		t.Errorf("of a log that failed: got %v", e)
	}
}
