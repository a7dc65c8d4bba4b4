package auth

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/sdk/hook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store has guest and alice.
func store(tb testing.TB) *Store {
	tb.Helper()
	s := New(Options{})
	err := s.CreateDefaults()
	if err != nil {
		tb.Fatal(err)
	}
	s.verifier.rounds.Store(0) // no password takes long to check
	put(tb, s, "alice", "secret", "monitoring", "impersonator")
	return s
}

// put adds a user whose password takes no time to check.
func put(tb testing.TB, s *Store, name, password string, tags ...string) {
	tb.Helper()
	h, err := s.hashPublic(password)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := s.Set(Account{Name: name, Tags: tags, Password: h}); err != nil {
		tb.Fatal(err)
	}
}

func grantAll(tb testing.TB, s *Store, name, vhost string) {
	tb.Helper()
	permit(tb, s, Grant{name, vhost, Permissions{".*", ".*", ".*"}})
}

func permit(tb testing.TB, s *Store, g Grant) {
	tb.Helper()
	if _, err := s.SetPermissions(g); err != nil {
		tb.Fatal(err)
	}
}

// from is the origin of a login.
func from(loopback bool) Origin { return Origin{Host: "192.0.2.1", Loopback: loopback, Now: 1} }

func plainResponse(user, password string) string { return "\x00" + user + "\x00" + password }

func amqplainResponse(t amqp.Table) string { return string(amqp.AppendTable(nil, t)[4:]) }

func TestLogin(t *testing.T) {
	s := store(t)
	if _, err := s.Set(Account{Name: "blank"}); err != nil {
		t.Fatal(err)
	}
	login := func(user, password any) string {
		return amqplainResponse(amqp.Table{{Key: "LOGIN", Value: user}, {Key: "PASSWORD", Value: password}})
	}
	const malformed = "SYNTAX_ERROR - PLAIN response invalid: expected NUL, user name, NUL, password"
	for _, c := range []struct {
		name, mechanism, response string
		remote                    bool
		user                      string
		err                       string
	}{
		{"plain", "PLAIN", plainResponse("alice", "secret"), true, "alice", ""},
		{"amqplain", "AMQPLAIN", login("alice", "secret"), true, "alice", ""},
		{"amqplain, the other way round", "AMQPLAIN", amqplainResponse(amqp.Table{{Key: "PASSWORD", Value: "guest"}, {Key: "x"}, {Key: "LOGIN", Value: "guest"}}), false, "guest", ""},
		{"guest", "PLAIN", plainResponse("guest", "guest"), false, "guest", ""},
		{"guest from afar", "PLAIN", plainResponse("guest", "guest"), true, "", "PLAIN login refused: user 'guest' can only connect via localhost"},
		{"guest from afar, wrong password", "PLAIN", plainResponse("guest", "x"), true, "", "PLAIN login refused: user 'guest' - invalid credentials"},
		{"wrong password", "PLAIN", plainResponse("alice", "Secret"), false, "", "PLAIN login refused: user 'alice' - invalid credentials"},
		{"wrong password, amqplain", "AMQPLAIN", login("alice", "x"), false, "", "AMQPLAIN login refused: user 'alice' - invalid credentials"},
		{"no such user", "PLAIN", plainResponse("bob", "secret"), false, "", "PLAIN login refused: user 'bob' - invalid credentials"},
		{"no password", "PLAIN", plainResponse("alice", ""), false, "", "PLAIN login refused: user 'alice' attempted to log in with a blank password"},
		{"none is right", "PLAIN", plainResponse("blank", ""), false, "", "PLAIN login refused: user 'blank' attempted to log in with a blank password"},
		{"none is right, another", "PLAIN", plainResponse("blank", "x"), false, "", "PLAIN login refused: user 'blank' - invalid credentials"},
		{"no name", "PLAIN", plainResponse("", "secret"), false, "", "PLAIN login refused: user '' - invalid credentials"},
		{"empty", "PLAIN", "", false, "", malformed},
		{"no leading NUL", "PLAIN", "alice\x00secret", false, "", malformed},
		{"one part", "PLAIN", "\x00alice", false, "", malformed},
		{"on behalf of somebody", "PLAIN", "bob\x00alice\x00secret", false, "", malformed},
		{"one part too many", "PLAIN", plainResponse("alice", "secret\x00"), false, "", malformed},
		{"amqplain, rubbish", "AMQPLAIN", "rubbish", false, "", "SYNTAX_ERROR - AMQPLAIN response invalid: expected a field table"},
		{"amqplain, empty", "AMQPLAIN", "", false, "", "SYNTAX_ERROR - AMQPLAIN auth info is missing LOGIN or PASSWORD field"},
		{"amqplain, rubbish behind", "AMQPLAIN", login("alice", "secret") + "x", false, "", "SYNTAX_ERROR - AMQPLAIN response invalid: expected a field table"},
		{"amqplain, no password", "AMQPLAIN", amqplainResponse(amqp.Table{{Key: "LOGIN", Value: "alice"}}), false, "", "SYNTAX_ERROR - AMQPLAIN auth info is missing LOGIN or PASSWORD field"},
		{"amqplain, a number", "AMQPLAIN", login(int32(1), "secret"), false, "", "SYNTAX_ERROR - AMQPLAIN auth info uses unsupported type for LOGIN or PASSWORD field"},
		{"amqplain, another number", "AMQPLAIN", login("alice", []byte("secret")), false, "", "SYNTAX_ERROR - AMQPLAIN auth info uses unsupported type for LOGIN or PASSWORD field"},
		{"unknown mechanism", "EXTERNAL", "", false, "", "COMMAND_INVALID - unknown authentication mechanism 'EXTERNAL'"},
		{"mechanisms are case-sensitive", "plain", plainResponse("alice", "secret"), false, "", "COMMAND_INVALID - unknown authentication mechanism 'plain'"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 2 { // the second time from memory
				u, err := s.Login(t.Context(), c.mechanism, c.response, from(!c.remote))
				if c.err == "" && (err != nil || u.Name != c.user) {
					t.Errorf("got %+v, %v; want %s", u, err, c.user)
				}
				if c.err != "" && (err == nil || err.Error() != c.err || u.Name != "") {
					t.Errorf("got %+v, %v; want %s", u, err, c.err)
				}
			}
		})
	}
}

func TestRefusedReply(t *testing.T) {
	_, err := store(t).Login(t.Context(), "AMQPLAIN", amqplainResponse(amqp.Table{{Key: "LOGIN", Value: "a"}, {Key: "PASSWORD", Value: "b"}}), from(true))
	var r *Refused
	if !errors.As(err, &r) || r.User != "a" {
		t.Fatalf("got %v", err)
	}
	const want = "ACCESS_REFUSED - Login was refused using authentication mechanism AMQPLAIN. For details see the broker logfile."
	if e := r.Reply(); e.Code != 403 || e.Error() != want {
		t.Errorf("got %d %v, want %s", e.Code, e, want)
	}
}

func TestTags(t *testing.T) {
	s := store(t)
	u, err := s.Login(t.Context(), "PLAIN", plainResponse("alice", "secret"), from(true))
	if err != nil || !u.Has("impersonator") || u.Has("administrator") {
		t.Errorf("%+v, %v", u, err)
	}
	if u, _ = s.Login(t.Context(), "PLAIN", plainResponse("guest", "guest"), from(true)); !u.Has("administrator") {
		t.Errorf("%+v", u)
	}
}

func TestChangePassword(t *testing.T) {
	s := store(t)
	login := func(password string) bool {
		_, err := s.Login(t.Context(), "PLAIN", plainResponse("alice", password), from(true))
		return err == nil
	}
	permit(t, s, Grant{"alice", "/", Permissions{Read: ".*"}})
	before := s.Version()
	if !login("secret") {
		t.Fatal("refused")
	}
	put(t, s, "alice", "other", "management")
	if login("secret") || !login("other") {
		t.Error("the old password still counts, or the new one does not")
	}
	if s.Version() == before {
		t.Error("the version did not change")
	}
	if err := s.OpenVHost("alice", "/"); err != nil {
		t.Errorf("permissions are gone: %v", err)
	}
	put(t, s, "alice", "secret")
	if !login("secret") || login("other") {
		t.Error("back to the first password: wrong")
	}
}

// A password is hashed once, however many clients log in with it at the same moment.
func TestManyLoginsAtOnce(t *testing.T) {
	s := store(t)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			password := "secret"
			if i%50 == 0 { // not too often for the throttle
				password = "wrong"
			}
			if _, err := s.Login(t.Context(), "PLAIN", plainResponse("alice", password), from(false)); (err == nil) != (i%50 != 0) {
				t.Errorf("login %d: %v", i, err)
			}
			permit(t, s, Grant{User: "alice", VHost: strconv.Itoa(i)})
		})
	}
	wg.Wait()
	if n := len(s.verifier.known); n != 1 {
		t.Errorf("%d passwords remembered, want 1", n)
	}
}

func TestRemembersBounded(t *testing.T) {
	v := newVerifier(0)
	h := Hash{algorithm: PBKDF2, salt: "salt"}
	for i := range 2 * maxKnown {
		v.learn(v.digest(&h, strconv.Itoa(i)))
	}
	if n := len(v.known); n != maxKnown {
		t.Errorf("%d remembered, want %d", n, maxKnown)
	}
	if !v.knows(v.digest(&h, strconv.Itoa(2*maxKnown-1))) {
		t.Error("the last one is forgotten")
	}
}

func FuzzLogin(f *testing.F) {
	s := store(f)
	var tries atomic.Int64
	f.Add("PLAIN", plainResponse("guest", "guest"), true)
	f.Add("PLAIN", plainResponse("guest", "guest"), false)
	f.Add("AMQPLAIN", amqplainResponse(amqp.Table{{Key: "LOGIN", Value: "guest"}, {Key: "PASSWORD", Value: "guest"}}), true)
	f.Add("AMQPLAIN", amqplainResponse(amqp.Table{{Key: "LOGIN", Value: amqp.Table{{Key: "a"}}}, {Key: "PASSWORD", Value: amqp.Array{nil}}}), true)
	f.Fuzz(func(t *testing.T, mechanism, response string, loopback bool) {
		name, password, err := credentials(mechanism, response)
		if err != nil {
			var e *amqp.Error
			if !errors.As(err, &e) || name != "" || password != "" {
				t.Fatalf("%q, %q, %v", name, password, err)
			}
			return
		}
		o := Origin{Loopback: loopback, Now: hook.Instant(tries.Add(1)) * hook.Instant(time.Minute)} // nobody is throttled
		u, err := s.Login(t.Context(), mechanism, response, o)
		right := name == "alice" && password == "secret" || name == Guest && password == Guest && loopback
		if (err == nil) != right || err == nil && u.Name != name {
			t.Errorf("%+v, %v for %q with %q", u, err, name, password)
		}
	})
}

// A login with a password that was right before.
func BenchmarkLogin(b *testing.B) {
	s := store(b)
	response := plainResponse("alice", "secret")
	for b.Loop() {
		if _, err := s.Login(b.Context(), "PLAIN", response, from(false)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFirstLogin(b *testing.B) {
	h, err := New(Options{}).Hash("secret")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		h.matches("secret")
	}
}
