package auth

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// storm sends wrong passwords from 800 addresses, 75 a second. That is more than can be checked: a check takes a tenth of a second, and two run
// at a time. The names are alice, which exists, and many that do not.
type storm struct {
	*crowd
	sent int
}

const (
	stormSources = 800
	stormEvery   = time.Second / 75
)

func newStorm(t *testing.T) *storm {
	t.Helper()
	c := newCrowd(t)
	c.takes = time.Second / 10
	return &storm{crowd: c}
}

// goOn continues the storm for d.
func (s *storm) goOn(ctx context.Context, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(stormEvery) {
		n := s.sent % stormSources
		user := "alice"
		if s.sent%2 == 1 {
			user = "user" + strconv.Itoa(s.sent)
		}
		s.login(ctx, fmt.Sprintf("198.51.%d.%d", n/250, n%250), user, "wrong"+strconv.Itoa(s.sent))
		s.sent++
	}
}

// latency makes a login during the storm, and returns how long it takes.
func (s *storm) latency(ctx context.Context, host, user, password, want string) (took time.Duration) {
	s.t.Helper()
	began := time.Now()
	outcome := make(chan string, 1)
	s.Go(func() {
		_, err := s.s.Authenticate(ctx, user, password, Origin{Host: host, Loopback: true, Now: hook.Instant(1).Add(time.Since(s.began))})
		took = time.Since(began)
		outcome <- outcomeOf(err)
	})
	for {
		select {
		case got := <-outcome:
			if got != want {
				s.t.Errorf("%s from %s after %v: got %s, want %s", user, host, took, got, want)
			}
			return took
		default:
			s.goOn(ctx, stormEvery)
		}
	}
}

// 800 addresses that guessed passwords kept out a user that logged in for the first time since a restart: each address had a turn first,
// which took 40 seconds, and clients give up after ten.
func TestStormFromManyAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorm(t)
		put(t, s.s, "bob", "secret", "x")
		put(t, s.s, "carol", "secret", "x")
		if _, err := s.s.Authenticate(t.Context(), "alice", "secret", Origin{Host: "192.0.2.1", Now: 1}); err != nil {
			t.Fatal(err)
		}
		before := s.s.EncodeSources()
		s.s.verifier.known = map[digest]struct{}{} // as after a restart
		s.s.verifier.sources = newSources()
		s.s.verifier.gate.sources = s.s.verifier.sources
		if n, err := s.s.DecodeSources(before); n != 1 || err != nil {
			t.Fatalf("got %d, %v", n, err)
		}
		ctx, stop := context.WithCancel(t.Context())
		atMost := func(what string, took, want time.Duration) {
			if took > want {
				t.Errorf("%s: took %v, want %v at most", what, took, want)
			}
		}

		// While none of the 800 is known, strangers have turns along with them: 801 checks, two at a time.
		s.goOn(ctx, 5*time.Second)
		atMost("a known place", s.latency(ctx, "192.0.2.1", "alice", "secret", "right"), 2*s.takes)
		atMost("a new place at the beginning", s.latency(ctx, "192.0.2.2", "bob", "secret", "right"), (stormSources+1)*s.takes/2)

		// Later each of the 800 has failed, and strangers come before them. A check may have to wait for two running ones, and each fifth belongs to the 800.
		s.goOn(ctx, time.Minute)
		if n := s.s.Waiting(); n < stormSources/2 {
			t.Errorf("%d wait: the storm is none", n)
		}
		atMost("a new place", s.latency(ctx, "192.0.2.3", "carol", "secret", "right"), 3*s.takes)
		atMost("a new place, a wrong password", s.latency(ctx, "192.0.2.4", "carol", "wrong", "wrong"), 3*s.takes)
		atMost("a known place, another user", s.latency(ctx, "192.0.2.1", "nobody", "wrong", "wrong"), 3*s.takes)
		stop()
		s.Wait()
		s.idle()
	})
}

// A name without a user, a user that never logged in and one that did are answered alike: turns depend on the source only.
func TestClassesTellNothingOfUsers(t *testing.T) {
	for _, host := range []string{"192.0.2.1", "192.0.2.2"} { // alice has logged in from the former
		var all []time.Duration
		for _, user := range []string{"alice", "bob", "nobody"} {
			synctest.Test(t, func(t *testing.T) {
				s := newStorm(t)
				put(t, s.s, "bob", "secret", "x")
				if _, err := s.s.Authenticate(t.Context(), "alice", "secret", Origin{Host: "192.0.2.1", Now: 1}); err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				s.goOn(ctx, 15*time.Second)
				all = append(all, s.latency(ctx, host, user, "wrong", "wrong"))
				stop()
				s.Wait()
			})
		}
		if all[0] != all[1] || all[0] != all[2] {
			t.Errorf("from %s alice, bob and nobody are answered after %v", host, all)
		}
	}
}

// Known sources come first, but not always.
func TestClassesHaveTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		c.s.verifier.gate.most = 1
		classes := map[class]string{proven: "p", strange: "s", failing: "f"}
		all := c.s.verifier.sources
		c.login(t.Context(), "192.0.2.99", "first", "first")
		for class, letter := range classes {
			for i := range 12 {
				host := fmt.Sprintf("192.0.%d.%d", class, i)
				switch class {
				case proven:
					all.succeeded(all.source(host), "alice")
				case failing:
					all.failed(all.source(host), 1)
				}
				c.login(t.Context(), host, "user", letter)
			}
		}
		c.Wait()
		const want = "first p p p p s f p p p p s f p p p p s f s s s s f s s s s f s f f f f f f f"
		if got := strings.Join(c.order, " "); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		c.idle()
	})
}

// If many users share an unknown source, they stop waiting as strangers once one of them has logged in.
func TestLineMovesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		c.s.verifier.gate.most = 1
		put(t, c.s, "bob", "secret of bob")
		c.login(t.Context(), "192.0.2.1", "alice", "secret")
		c.login(t.Context(), "192.0.2.2", "x", "x")
		c.login(t.Context(), "192.0.2.3", "y", "y")
		c.login(t.Context(), "192.0.2.1", "bob", "secret of bob")
		c.Wait()
		if want := []string{"secret", "secret of bob", "x", "y"}; !slices.Equal(c.order, want) {
			t.Errorf("got %v, want %v", c.order, want)
		}
		c.idle()
	})
}

// When the gate is full, a known source displaces a strange one, and a strange source displaces a failing one. Each class keeps some places.
func TestWhoGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		g, all := c.s.verifier.gate, c.s.verifier.sources
		ctx, hangUp := context.WithCancel(t.Context())
		n := 0
		come := func(class class, times int) {
			for range times {
				n++
				host := fmt.Sprintf("10.%d.%d.%d", class, n/250, n%250)
				switch class {
				case proven:
					all.succeeded(all.source(host), "alice")
				case failing:
					all.failed(all.source(host), 1)
				}
				c.login(ctx, host, "user", "x")
			}
		}
		check := func(what string, want ...int) {
			t.Helper()
			got := []int{g.queues[proven].waiting, g.queues[strange].waiting, g.queues[failing].waiting}
			if !slices.Equal(got, want) || g.waiting != got[0]+got[1]+got[2] {
				t.Errorf("%s: %v wait, want %v", what, got, want)
			}
		}
		come(failing, 2+maxWaiting)
		check("failing ones", 0, 0, maxWaiting)
		come(failing, 5)
		check("more of them", 0, 0, maxWaiting)
		come(strange, maxWaiting)
		check("strangers", 0, maxWaiting-reserved, reserved)
		come(proven, maxWaiting)
		check("known ones", maxWaiting-2*reserved, reserved, reserved)
		come(failing, 5)
		come(strange, 5)
		check("all", maxWaiting-2*reserved, reserved, reserved)
		hangUp()
		c.Wait()
		c.idle()
	})
}

// Strangers get places in a gate that known sources have filled.
func TestStrangersFindAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		g, all := c.s.verifier.gate, c.s.verifier.sources
		ctx, hangUp := context.WithCancel(t.Context())
		for i := range maxWaiting + 2 {
			host := fmt.Sprintf("10.0.%d.%d", i/250, i%250)
			all.succeeded(all.source(host), "alice")
			c.login(ctx, host, "user", "x")
		}
		c.login(ctx, "192.0.2.1", "user", "x")
		if g.queues[strange].waiting != 1 || g.waiting != maxWaiting {
			t.Errorf("%d of %d are strangers", g.queues[strange].waiting, g.waiting)
		}
		hangUp()
		c.Wait()
		c.idle()
	})
}

// A source is failing for ten minutes.
func TestFailingPlacesAreForgiven(t *testing.T) {
	s := newSources()
	m := s.source("192.0.2.1")
	s.failed(m, 1)
	for after, want := range map[time.Duration]class{failingFor - 1: failing, failingFor: strange} {
		if got := s.class(m, hook.Instant(1).Add(after)); got != want {
			t.Errorf("after %v: got %d, want %d", after, got, want)
		}
		s.failed(m, 1)
	}
	s.succeeded(m, "alice")
	s.failed(m, 2)
	if got := s.class(m, 2); got != proven {
		t.Errorf("got %d, want %d: somebody has logged in from there", got, proven)
	}
}

// The number of remembered sources is bounded. A user that logs in from ever new addresses displaces only its own sources.
func TestSourcesAreBounded(t *testing.T) {
	s := newSources()
	of := func(user string, i int) mark { return s.source(user + strconv.Itoa(i)) }
	for i := range 10 {
		s.succeeded(of("alice", i), "alice")
	}
	for i := range 2 * maxProven {
		s.succeeded(of("mallory", i), "mallory")
	}
	if len(s.proven) != maxProven || len(s.users) != 2 {
		t.Errorf("%d sources of %d users are kept", len(s.proven), len(s.users))
	}
	for i := range 10 {
		if s.class(of("alice", i), 1) != proven {
			t.Errorf("source %d of alice is forgotten", i)
		}
	}
	if s.class(of("mallory", 2*maxProven-1), 1) != proven || s.class(of("mallory", 0), 1) != strange {
		t.Error("it is not the oldest ones that are forgotten")
	}
	if n := len(s.encode()); n != MaxSourcesBytes {
		t.Errorf("%d bytes, want %d", n, MaxSourcesBytes)
	}
	for i := range 2 * maxFailing {
		s.failed(of("stranger", i), hook.Instant(i))
	}
	if len(s.wrong) != maxFailing {
		t.Errorf("%d failing ones are kept", len(s.wrong))
	}
}

// Logins with a remembered password and with a certificate count like those with a checked one. Refused logins do not.
func TestWhatProvesASource(t *testing.T) {
	s := store(t)
	c := certificate(t, named("alice"))
	by := CertificateLogin{Field: CommonName}
	for n, login := range []func(o Origin) error{
		func(o Origin) error { _, err := s.Authenticate(t.Context(), "alice", "secret", o); return err },
		func(o Origin) error { _, err := s.Login(t.Context(), "PLAIN", "\x00alice\x00secret", o); return err },
		func(o Origin) error { _, err := s.LoginExternal(c, by, o); return err },
		func(o Origin) error { _, err := s.AuthenticateCertificate(c, by, o); return err },
	} {
		for range 2 {
			if err := login(Origin{Host: fmt.Sprintf("192.0.2.%d", n), Now: 1}); err != nil {
				t.Fatal(err)
			}
			if got := s.AddedSources(); got != uint64(n)+1 {
				t.Errorf("way %d: %d are known, want %d", n, got, n+1)
			}
		}
	}
	for _, password := range []string{"guest", "wrong", ""} { // guest is refused from there
		if _, err := s.Authenticate(t.Context(), "guest", password, Origin{Host: "192.0.2.100", Now: 1}); err == nil {
			t.Fatal("guest was let in")
		}
	}
	if got := s.AddedSources(); got != 4 {
		t.Errorf("%d are known, want 4", got)
	}
}

func TestSourcesAreKept(t *testing.T) {
	s := store(t)
	for i := range 3 {
		if _, err := s.Authenticate(t.Context(), "alice", "secret", Origin{Host: fmt.Sprintf("192.0.2.%d", i), Now: 1}); err != nil {
			t.Fatal(err)
		}
	}
	b := s.EncodeSources()
	for _, secret := range []string{"alice", "secret", "192.0.2"} {
		if bytes.Contains(b, []byte(secret)) {
			t.Errorf("%q can be read in it", secret)
		}
	}
	key := s.verifier.key // with this key a password could be guessed
	if bytes.Contains(b, key[:]) {
		t.Error("the key of the passwords is in it")
	}
	next := store(t)
	if n, err := next.DecodeSources(b); n != 3 || err != nil {
		t.Fatalf("got %d, %v", n, err)
	}
	if again := next.EncodeSources(); !bytes.Equal(again, b) {
		t.Error("it is not the same again")
	}
	all := next.verifier.sources
	if all.class(all.source("192.0.2.1"), 1) != proven || all.class(all.source("192.0.2.9"), 1) != strange {
		t.Error("it means something else")
	}
}

// With a damaged file the broker goes on as if it had none.
func TestSourcesDamaged(t *testing.T) {
	s := store(t)
	for i := range 3 {
		if _, err := s.Authenticate(t.Context(), "alice", "secret", Origin{Host: fmt.Sprintf("192.0.2.%d", i), Now: 1}); err != nil {
			t.Fatal(err)
		}
	}
	good := s.EncodeSources()
	random := make([]byte, len(good))
	rand.Read(random)
	huge := append([]byte(sourcesMagic), make([]byte, MaxSourcesBytes)...)
	bad := [][]byte{nil, {}, random, huge, append(slices.Clone(good), 0), append(slices.Clone(good), good...), []byte(sourcesMagic)}
	for i := range good {
		flipped := slices.Clone(good)
		flipped[i] ^= 0x20
		bad = append(bad, flipped, good[:i])
	}
	for _, b := range bad {
		if _, err := s.DecodeSources(b); err == nil {
			t.Fatalf("%d bytes are taken: %.60q", len(b), b)
		}
	}
	if !bytes.Equal(s.EncodeSources(), good) {
		t.Error("what was there is gone")
	}

	// The same source many times counts once.
	twice := slices.Clone(good[:len(good)-sha256.Size])
	twice = append(twice, twice[sourcesHead:]...)
	check := sha256.Sum256(twice)
	if n, err := s.DecodeSources(append(twice, check[:]...)); n != 3 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	if n := s.verifier.sources.users; len(n) != 1 {
		t.Errorf("%d users", len(n))
	}
}
