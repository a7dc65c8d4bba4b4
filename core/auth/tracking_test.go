package auth

import (
	"errors"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

// client is a connection that records why it has to end.
type client struct {
	*TrackedConn
	evicted []string
}

func enter(tb testing.TB, s *Store, name string) (*client, error) {
	tb.Helper()
	u, err := s.Authenticate(tb.Context(), name, "secret", from(true))
	if err != nil {
		tb.Fatal(err)
	}
	c := &client{}
	c.TrackedConn, err = s.Track(u, func(reason string) { c.evicted = append(c.evicted, reason) })
	return c, err
}

func TestConnectionLimit(t *testing.T) {
	s := store(t)
	limit := func(n int64) {
		if err := s.SetLimits("alice", Limits{Connections: hook.LimitOf(n)}); err != nil {
			t.Fatal(err)
		}
	}
	limit(1)
	c, err := enter(t, s, "alice")
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, second(enter(t, s, "alice")), "connection refused for user 'alice': user connection limit (1) is reached")
	limit(-1)
	if _, err := enter(t, s, "alice"); err != nil || s.Connections("alice") != 2 {
		t.Error(err)
	}
	limit(0)
	wantError(t, second(enter(t, s, "alice")), "connection refused for user 'alice': user connection limit (0) is reached")
	limit(2)
	c.Leave()
	c.Leave()
	if _, err := enter(t, s, "alice"); err != nil || s.Connections("alice") != 2 || len(c.evicted) > 0 {
		t.Error(err)
	}
}

func second(_ *client, err error) error { return err }

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if e, ok := errors.AsType[*amqp.Error](err); !ok || e.Code != amqp.ReplyNotAllowed || e.Text != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestChannelLimit(t *testing.T) {
	s := store(t)
	if err := s.SetLimits("alice", Limits{Channels: hook.LimitOf(2)}); err != nil {
		t.Fatal(err)
	}
	a, err := enter(t, s, "alice")
	if err != nil {
		t.Fatal(err)
	}
	b, err := enter(t, s, "alice")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.OpenChannel(), b.OpenChannel()); err != nil {
		t.Error(err)
	}
	const full = "number of channels opened for user 'alice' has reached the maximum allowed user limit of (2)"
	wantError(t, a.OpenChannel(), full)
	b.CloseChannel()
	b.CloseChannel() // that was all
	if err := a.OpenChannel(); err != nil {
		t.Error(err)
	}
	wantError(t, b.OpenChannel(), full)
	a.Leave()
	if err := errors.Join(b.OpenChannel(), b.OpenChannel()); err != nil {
		t.Error(err)
	}
}

func TestDelete(t *testing.T) {
	s := store(t)
	grantAll(t, s, "alice", "/")
	u, err := s.Authenticate(t.Context(), "alice", "secret", from(true))
	if err != nil {
		t.Fatal(err)
	}
	c, err := enter(t, s, "alice")
	if err != nil {
		t.Fatal(err)
	}
	if existed, err := s.Delete("alice"); !existed || err != nil {
		t.Error(existed, err)
	}
	if len(c.evicted) != 1 || c.evicted[0] != "user 'alice' is deleted" {
		t.Errorf("got %q", c.evicted)
	}
	if existed, err := s.Delete("alice"); existed || err != nil {
		t.Error(existed, err)
	}
	if _, ok := s.Lookup("alice"); ok || s.OpenVHost("alice", "/") == nil {
		t.Error("still there")
	}
	put(t, s, "alice", "secret")
	if s.OpenVHost("alice", "/") == nil {
		t.Error("somebody else has the permissions")
	}
	_, err = s.Track(u, nil)
	wantError(t, err, "user 'alice' is deleted") // although another user has the name now
	if c.OpenChannel() != nil {
		t.Error("a connection that is being closed is not let finish")
	}
}
