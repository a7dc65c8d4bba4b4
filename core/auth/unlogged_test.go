package auth

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// Every refused login was logged with its name: a stranger that sends a thousand a second filled the disk with log lines. Logins whose
// password was not checked, of which there may be any number, are now logged once a second.
func TestRefusalsUntold(t *testing.T) {
	s := store(t)
	now := hook.Instant(1)
	refused := func(user, password string) *Refused {
		t.Helper()
		_, err := s.Authenticate(t.Context(), user, password, Origin{Host: "192.0.2.1", Now: now})
		r, ok := errors.AsType[*Refused](err)
		if !ok {
			t.Fatal(err)
		}
		return r
	}
	told, left := 0, 0
	tell := func(r *Refused) {
		worth, n := s.ShouldLog(r, now)
		if worth {
			told++
		}
		left += n
	}
	for range pairRate.burst {
		tell(refused("alice", "wrong"))
	}
	if told != pairRate.burst {
		t.Errorf("%d of %d wrong passwords are told of", told, pairRate.burst)
	}
	told = 0
	for range 100 {
		tell(refused("alice", "too early")) // within a few milliseconds
		tell(refused("alice", ""))
	}
	if told != 1 || left != 0 {
		t.Errorf("200 at once: told of %d, and that %d were not", told, left)
	}
	now = now.Add(time.Second)
	tell(refused("alice", ""))
	if told != 2 || left != 199 {
		t.Errorf("a second later: told of %d, and that %d were not", told, left)
	}
}

// A name of any length waited in memory for its turn, and was logged twice.
func TestLongNames(t *testing.T) {
	s := store(t)
	_, err := s.Authenticate(t.Context(), strings.Repeat("x", 60_000), "y", Origin{Host: "192.0.2.1", Now: 1})
	r, ok := errors.AsType[*Refused](err)
	if !ok || len(r.User) > maxName+3 || len(r.Reason) > 2*maxName {
		t.Errorf("got %v", err)
	}
}
