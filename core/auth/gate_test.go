package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// crowd simulates logins at a store where every check of a password takes a second of simulated time.
type crowd struct {
	t     *testing.T
	s     *Store
	takes time.Duration // a check

	began time.Time

	sync.WaitGroup
	mu       sync.Mutex
	order    []string // passwords in the order in which their checks began
	now      int      // checks running now
	most     int
	outcomes map[string]int
	ended    map[string]time.Duration // when each user's login was decided, counted from the beginning
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	c := &crowd{t: t, s: store(t), takes: time.Second, began: time.Now(), outcomes: map[string]int{}, ended: map[string]time.Duration{}}
	check := c.s.verifier.check
	c.s.verifier.check = func(h *Hash, password string) bool {
		c.mu.Lock()
		c.order = append(c.order, password)
		c.now++
		c.most = max(c.most, c.now)
		c.mu.Unlock()
		time.Sleep(c.takes)
		c.mu.Lock()
		c.now--
		c.mu.Unlock()
		return check(h, password)
	}
	c.s.verifier.gate.most = 2
	return c
}

// login starts a login beside others.
func (c *crowd) login(ctx context.Context, host, user, password string) {
	began := time.Now()
	c.Go(func() {
		_, err := c.s.Authenticate(ctx, user, password, Origin{Host: host, Loopback: true, Now: hook.Instant(1).Add(time.Since(c.began))})
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ended[user] = time.Since(began)
		c.outcomes[outcomeOf(err)]++
	})
	synctest.Wait() // it is where it waits
}

func outcomeOf(err error) string {
	r, refused := errors.AsType[*Refused](err)
	switch {
	case !refused:
		return "right"
	case r.Busy:
		return "busy"
	case r.Retry > 0:
		return "early"
	}
	return "wrong"
}

// Passwords were once checked one at a time in the order in which they came: 60 wrong ones from one host kept every other client waiting
// for seven seconds. Now sources take turns.
func TestLoginsOfOthersDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		for i := range 60 {
			c.login(t.Context(), "192.0.2.66", "user"+strconv.Itoa(i), "wrong"+strconv.Itoa(i))
		}
		c.login(t.Context(), "192.0.2.1", "alice", "secret")
		c.Wait()
		if c.ended["alice"] > 2*time.Second {
			t.Errorf("it took %v, want no longer than the check that was going on and its own", c.ended["alice"])
		}
		if c.most != 2 {
			t.Errorf("%d checks at a time, want 2", c.most)
		}
		if got := c.outcomes["wrong"]; got != 60 {
			t.Errorf("got %v", c.outcomes)
		}
	})
}

// All addresses of one IPv6 network count as one source.
func TestNetworksHaveOneTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		for i := range 60 {
			c.login(t.Context(), fmt.Sprintf("2001:db8::%x", i), "user"+strconv.Itoa(i), "wrong")
		}
		c.login(t.Context(), "2001:db8:0:1::1", "alice", "secret")
		c.Wait()
		if c.ended["alice"] > 2*time.Second {
			t.Errorf("it took %v", c.ended["alice"])
		}
	})
}

// Sources take turns, however many logins one of them sends. Sources without a failure come first.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		c.s.verifier.gate.most = 1
		for host, n := range []int{4, 2, 1} {
			for i := range n {
				name := fmt.Sprintf("%c%d", 'a'+host, i)
				c.login(t.Context(), "192.0.2."+strconv.Itoa(host), name, name)
			}
		}
		c.Wait()
		if want := []string{"a0", "b0", "c0", "a1", "b1", "a2", "a3"}; !slices.Equal(c.order, want) {
			t.Errorf("got %v, want %v", c.order, want)
		}
	})
}

// The password of a client that has disconnected is not checked.
func TestLoginsThatAreAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		ctx, hangUp := context.WithCancel(t.Context())
		for i := range 2 {
			c.login(t.Context(), "192.0.2.66", "stays"+strconv.Itoa(i), "x")
		}
		for i := range 20 {
			c.login(ctx, "192.0.2.66", "goes"+strconv.Itoa(i), "x")
		}
		hangUp()
		synctest.Wait()
		if c.outcomes["busy"] != 20 {
			t.Errorf("got %v while others are being checked", c.outcomes)
		}
		c.login(t.Context(), "192.0.2.66", "alice", "secret")
		c.Wait()
		if len(c.order) != 3 || c.outcomes["right"] != 1 || c.outcomes["wrong"] != 2 {
			t.Errorf("%d were checked: %v", len(c.order), c.outcomes)
		}
		c.idle()
	})
}

// Many clients try the same password, and the client whose check is about to run disconnects; the others still get a result.
func TestLoginsThatAreAbandonedByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		c.s.verifier.gate.most = 1
		c.login(t.Context(), "192.0.2.1", "other", "x")
		ctx, hangUp := context.WithCancel(t.Context())
		c.login(ctx, "192.0.2.1", "alice", "secret")
		c.login(t.Context(), "192.0.2.1", "alice", "secret")
		hangUp()
		c.Wait()
		if c.outcomes["right"] != 1 || c.outcomes["busy"] != 1 || len(c.order) != 2 {
			t.Errorf("%d were checked: %v", len(c.order), c.outcomes)
		}
		c.idle()
	})
}

// idle reports an error if any state is left after all logins were decided.
func (c *crowd) idle() {
	c.t.Helper()
	g := c.s.verifier.gate
	if g.running != 0 || g.waiting != 0 || len(g.checks) != 0 || len(g.lines) != 0 {
		c.t.Errorf("running %d, waiting %d, %d checks, %d lines", g.running, g.waiting, len(g.checks), len(g.lines))
	}
	for class, q := range g.queues {
		if len(q.turns) != 0 || q.waiting != 0 || q.passed != 0 {
			c.t.Errorf("class %d: %d turns, waiting %d, passed by %d", class, len(q.turns), q.waiting, q.passed)
		}
	}
	for _, p := range c.s.verifier.failed.histories {
		if p.pending != 0 {
			c.t.Errorf("%d are undecided", p.pending)
		}
	}
}

// The number of waiting logins is bounded, and a source with many waiting logins gives way to one with few.
func TestLoginsThatWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		ctx, hangUp := context.WithCancel(t.Context())
		host := func(i int) string { return "192.0.2." + strconv.Itoa(i) }
		n := 0
		more := func(host string, times int) {
			for range times {
				n++
				c.login(ctx, host, "user"+strconv.Itoa(n), "x")
			}
		}
		more(host(0), maxLine+10)
		if got := c.outcomes["busy"]; got != 8 { // two are being checked
			t.Errorf("%d of one place were turned away, want 8", got)
		}
		for i := 1; i < maxWaiting/maxLine; i++ {
			more(host(i), maxLine)
		}
		if got, waiting := c.outcomes["busy"], c.s.verifier.gate.waiting; got != 8 || waiting != maxWaiting {
			t.Errorf("%d were turned away, %d wait", got, waiting)
		}
		more(host(100), 1)
		if got, waiting := c.outcomes["busy"], c.s.verifier.gate.waiting; got != 9 || waiting != maxWaiting {
			t.Errorf("%d were turned away, %d wait", got, waiting)
		}
		if _, waits := c.s.verifier.gate.lines[host(100)]; !waits {
			t.Error("the newcomer is not among those who wait")
		}
		hangUp()
		c.Wait()
		c.idle()
	})
}

// Many logins with one password are checked once, whether it is right or wrong. If it is wrong, only as many get the answer as may fail.
func TestCrowdsAreCheckedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		for range 500 {
			c.login(t.Context(), "192.0.2.1", "alice", "secret")
		}
		c.Wait()
		if len(c.order) != 1 || c.outcomes["right"] != 500 {
			t.Errorf("%d were checked: %v", len(c.order), c.outcomes)
		}
		for range 100 {
			c.login(t.Context(), "192.0.2.1", "bob", "wrong")
		}
		c.Wait()
		if len(c.order) != 2 || c.outcomes["wrong"] != pairRate.burst || c.outcomes["early"] != 100-pairRate.burst {
			t.Errorf("%d were checked: %v", len(c.order), c.outcomes)
		}
		c.idle()
	})
}

// Two logins with the same password for users that do not exist take as long as for existing users: they do not share a check. So the time
// does not show whether the users exist.
func TestNobodiesAreCheckedOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		c.login(t.Context(), "192.0.2.1", "nobody", "x")
		time.Sleep(time.Second / 2)
		c.login(t.Context(), "192.0.2.1", "nobody else", "x")
		c.Wait()
		if len(c.order) != 2 || c.ended["nobody else"] != time.Second {
			t.Errorf("%d were checked, it took %v", len(c.order), c.ended["nobody else"])
		}
	})
}

// Logins that the throttle does not admit yet do not hold up other logins from the same source.
func TestWhoMayNotFailWaitsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		for i := range 3 * pairRate.burst {
			c.login(t.Context(), "192.0.2.1", "alice", "wrong"+strconv.Itoa(i))
		}
		c.login(t.Context(), "192.0.2.1", "guest", "guest")
		c.Wait()
		if c.outcomes["wrong"] != pairRate.burst || c.outcomes["early"] != 2*pairRate.burst || c.outcomes["right"] != 1 {
			t.Errorf("got %v", c.outcomes)
		}
		c.idle()
	})
}

// A password that is changed while a login waits with the old one does not let that login in.
func TestPasswordChangedWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		c.login(t.Context(), "192.0.2.1", "alice", "secret")
		put(t, c.s, "alice", "other")
		c.Wait()
		if c.outcomes["wrong"] != 1 {
			t.Errorf("got %v", c.outcomes)
		}
	})
}

// A user that was set again during the check, with the same password, was refused, because the new hash has another salt. Here the user is
// set again during as many checks as a login makes, and during one.
func TestUserSetAgainWhileItWaits(t *testing.T) {
	for _, times := range []int{1, maxChecks} {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowd(t)
			c.login(t.Context(), "192.0.2.1", "alice", "secret")
			for range times {
				put(t, c.s, "alice", "secret")
				time.Sleep(time.Second)
				synctest.Wait()
			}
			c.Wait()
			if c.outcomes["right"] != 1 {
				t.Errorf("set %d times: got %v", times, c.outcomes)
			}
		})
	}
}

// A user that is deleted and added again during the check is a different user: the new password counts.
func TestUserAddedAgainWhileItWaits(t *testing.T) {
	for password, want := range map[string]string{"secret": "right", "other": "wrong"} {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowd(t)
			c.login(t.Context(), "192.0.2.1", "alice", "secret")
			if _, err := c.s.Delete("alice"); err != nil {
				t.Fatal(err)
			}
			put(t, c.s, "alice", password)
			c.Wait()
			if c.outcomes[want] != 1 {
				t.Errorf("%s: got %v", password, c.outcomes)
			}
		})
	}
}

// A user whose tags were removed during the check of the password used to be logged in with the old tags.
func TestTagsChangedWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		var u User
		c.Go(func() {
			u, _ = c.s.Authenticate(t.Context(), "alice", "secret", Origin{Host: "192.0.2.1", Now: hook.Instant(1)})
		})
		synctest.Wait()
		account, _ := c.s.Lookup("alice")
		account.Tags = []string{"management"}
		if _, err := c.s.Set(account); err != nil {
			t.Fatal(err)
		}
		c.Wait()
		if u.Name != "alice" || !slices.Equal(u.Tags, account.Tags) {
			t.Errorf("got %+v", u)
		}
	})
}
