package auth

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// attempts tries passwords, and says how each login ended: right, wrong, or not checked.
type attempts struct {
	t    *testing.T
	s    *Store
	from Origin
}

func (a attempts) try(user, password string) string {
	a.t.Helper()
	_, err := a.s.Authenticate(a.t.Context(), user, password, a.from)
	switch {
	case err == nil:
		return "right"
	case strings.Contains(err.Error(), "invalid credentials"):
		return "wrong"
	case strings.Contains(err.Error(), "too many failed logins of user '"+user+"' from "+a.from.Host):
		return "unseen"
	}
	a.t.Fatal(err)
	return ""
}

func TestThrottle(t *testing.T) {
	s := store(t)
	near := attempts{t, s, Origin{Host: "192.0.2.1", Now: 1}}
	for i := range pairRate.burst {
		if got := near.try("alice", strconv.Itoa(i)); got != "wrong" {
			t.Fatalf("attempt %d: %s", i, got)
		}
	}
	if got := near.try("alice", "secret"); got != "unseen" {
		t.Errorf("one too many, with the password: %s", got)
	}
	if got := near.try("bob", "x"); got != "wrong" {
		t.Errorf("another user from there: %s", got)
	}
	far := attempts{t, s, Origin{Host: "192.0.2.2", Now: 1}}
	if got := far.try("alice", "secret"); got != "right" {
		t.Errorf("from elsewhere: %s", got)
	}
	if got := near.try("alice", "secret"); got != "unseen" {
		t.Errorf("a password that is remembered: %s", got)
	}
	near.from.Now = near.from.Now.Add(pairRate.interval)
	if got := near.try("alice", "secret"); got != "right" {
		t.Errorf("after a while: %s", got)
	}
	if got := near.try("alice", "x"); got != "wrong" {
		t.Errorf("wrong after a while: %s", got)
	}
	if got := near.try("alice", "secret"); got != "unseen" {
		t.Errorf("right after that: %s", got)
	}
}

func TestThrottleSaysHowLong(t *testing.T) {
	s := store(t)
	a := attempts{t, s, Origin{Host: "192.0.2.1", Now: 1}}
	for range pairRate.burst {
		a.try("alice", "x")
	}
	a.from.Now = a.from.Now.Add(300 * time.Millisecond)
	_, err := s.Authenticate(t.Context(), "alice", "secret", a.from)
	if r, ok := err.(*Refused); !ok || r.Retry != pairRate.interval-300*time.Millisecond { //nolint:errorlint // it is what it is
		t.Errorf("got %+v", err)
	}
}

// A host that tries many users is throttled, too, and an IPv6 network counts as one host.
func TestThrottleHost(t *testing.T) {
	s := store(t)
	for i := range hostRate.burst {
		a := attempts{t, s, Origin{Host: fmt.Sprintf("2001:db8::%x", i), Now: 1}}
		if got := a.try("user"+strconv.Itoa(i), "x"); got != "wrong" {
			t.Fatalf("attempt %d: %s", i, got)
		}
	}
	for host, want := range map[string]string{"2001:db8::ffff:1": "unseen", "2001:db8:0:1::1": "right"} {
		if got := (attempts{t, s, Origin{Host: host, Now: 1}}).try("alice", "secret"); got != want {
			t.Errorf("from %s: %s, want %s", host, got, want)
		}
	}
}

// Guesses at the same time are limited like guesses one after the other.
func TestThrottleAtOnce(t *testing.T) {
	s := store(t)
	a := attempts{t, s, Origin{Host: "192.0.2.1", Now: 1}}
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[string]int{}
	for i := range 200 {
		wg.Go(func() {
			got := a.try("alice", strconv.Itoa(i))
			mu.Lock()
			defer mu.Unlock()
			seen[got]++
		})
	}
	wg.Wait()
	if seen["wrong"] != pairRate.burst || seen["unseen"] != 200-pairRate.burst {
		t.Errorf("got %v", seen)
	}
}

// Many logins with the right password at once are all accepted.
func TestThrottleLetsCrowdsIn(t *testing.T) {
	s := store(t)
	a := attempts{t, s, Origin{Host: "192.0.2.1", Now: 1}}
	var wg sync.WaitGroup
	for range 500 {
		wg.Go(func() {
			if got := a.try("alice", "secret"); got != "right" {
				t.Errorf("got %s", got)
			}
		})
	}
	wg.Wait()
	if n := len(s.verifier.failed.histories); n > 0 {
		t.Errorf("%d histories are kept", n)
	}
}

func TestThrottleIsBounded(t *testing.T) {
	th := newThrottle()
	for i := range 2 * maxThrottled {
		th.fail(th.keys(strconv.Itoa(i), "x"), hook.Instant(i))
	}
	if n := len(th.histories); n > maxThrottled {
		t.Errorf("%d remembered, want at most %d", n, maxThrottled)
	}
}

func TestNetwork(t *testing.T) {
	for host, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:db8::1": "2001:db8::/64", "fe80::1%eth0": "fe80::/64", "pipe": "pipe", "": "",
	} {
		if got := network(host); got != want {
			t.Errorf("%q: got %q, want %q", host, got, want)
		}
	}
}
