package auth

import (
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

// A request that panicked while it planned a change left the users locked: no client could log in any more.
func TestAPlanThatPanicsLeavesNothingLocked(t *testing.T) {
	s := store(t)
	func() {
		defer func() { _ = recover() }()
		_ = s.change(func(*change) error { panic("at night") })
		t.Error("it did not panic")
	}()
	put(t, s, "carol", "secret")
	if _, err := s.Delete("carol"); err != nil {
		t.Error(err)
	}
}

// A user's password is changed while another request sets a limit. The new password stays: setting limits does not write back the account
// that was read before.
func TestPutKeepsLimits(t *testing.T) {
	s := store(t)
	put(t, s, Guest, "secret")
	must(t, s.ChangeLimits(Guest, func(l *Limits) { l.Channels = hook.LimitOf(3) }))
	was, _ := s.Lookup(Guest)
	if created, err := s.Put(Account{Name: Guest, Password: was.Password, Tags: []string{"a"}}); created || err != nil {
		t.Fatalf("created %v, %v", created, err)
	}
	must(t, s.ChangeLimits(Guest, func(l *Limits) { l.Connections = hook.LimitOf(4) }))
	got, _ := s.Lookup(Guest)
	if want := (Limits{Connections: hook.LimitOf(4), Channels: hook.LimitOf(3)}); got.Limits != want || len(got.Tags) != 1 {
		t.Errorf("got %+v", got)
	}
	if err := s.ChangeLimits(Guest, func(l *Limits) { l.Channels = hook.LimitOf(1 << 40) }); err == nil {
		t.Error("a limit that is too high is accepted")
	}
}
