package auth

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// opened opens a session for a user with a password.
func opened(t *testing.T, s *Store, name, password string, now hook.Instant) string {
	t.Helper()
	o := from(true)
	o.Now = now
	u, err := s.Authenticate(t.Context(), name, password, o)
	if err != nil {
		t.Fatal(err)
	}
	return s.OpenSession(u, now, time.Hour)
}

func resumes(s *Store, token string, now hook.Instant) bool {
	id, ok := ParseToken(token)
	if !ok {
		return false
	}
	o := from(true)
	o.Now = now
	_, _, err := s.Resume(id, o)
	return err == nil
}

// withPassword is put without a testing.T.
func withPassword(s *Store, name, password string) error {
	h, err := s.hashPublic(password)
	if err == nil {
		_, err = s.Set(Account{Name: name, Password: h})
	}
	return err
}

func TestSessionsEnd(t *testing.T) {
	const hour = hook.Instant(time.Hour)
	for _, tt := range []struct {
		name string
		then func(s *Store, token string) error
		now  hook.Instant
		goes bool
	}{
		{"at once", nil, 1, true},
		{"in its last moment", nil, hour, true},
		{"with its time", nil, hour + 1, false},
		{"a logout", func(s *Store, token string) error {
			id, _ := ParseToken(token)
			s.EndSession(id)
			return nil
		}, 2, false},
		{"another password", func(s *Store, _ string) error { return withPassword(s, "alice", "other") }, 2, false},
		{"the same password, set again", func(s *Store, _ string) error { return withPassword(s, "alice", "secret") }, 2, false},
		{"another password and back to the old hash", func(s *Store, _ string) error {
			account, _ := s.Lookup("alice")
			err := withPassword(s, "alice", "other")
			_, err2 := s.Set(account)
			return errors.Join(err, err2)
		}, 2, false},
		{"no password", func(s *Store, _ string) error {
			_, err := s.Set(Account{Name: "alice"})
			return err
		}, 2, false},
		{"the user's end", func(s *Store, _ string) error {
			_, err := s.Delete("alice")
			return err
		}, 2, false},
		{"another user of that name", func(s *Store, _ string) error {
			account, _ := s.Lookup("alice")
			_, err := s.Delete("alice")
			_, err2 := s.Set(account)
			return errors.Join(err, err2)
		}, 2, false},
		{"other tags and the same hash", func(s *Store, _ string) error {
			account, _ := s.Lookup("alice")
			account.Tags = []string{"management"}
			_, err := s.Set(account)
			return err
		}, 2, true},
		{"another user's password", func(s *Store, _ string) error { return withPassword(s, "bob", "b") }, 2, true},
		{"a clock that was set back", nil, -hour, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := store(t)
			token := opened(t, s, "alice", "secret", 1)
			if tt.then != nil {
				if err := tt.then(s, token); err != nil {
					t.Fatal(err)
				}
			}
			if got := resumes(s, token, tt.now); got != tt.goes {
				t.Errorf("it can be resumed: %v", got)
			}
			if !tt.goes && s.Sessions() > 0 {
				t.Error("the session is kept")
			}
		})
	}
}

// The password was changed while the login was being checked: its session is over from the start.
func TestSessionOfAnOldPassword(t *testing.T) {
	s := store(t)
	u, err := s.Authenticate(t.Context(), "alice", "secret", from(true))
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, "alice", "other")
	if token := s.OpenSession(u, 1, time.Hour); resumes(s, token, 1) {
		t.Error("it can be resumed")
	}
}

func TestSessionsSayWhoTheUserIsNow(t *testing.T) {
	s := store(t)
	id, _ := ParseToken(opened(t, s, "alice", "secret", 1))
	account, _ := s.Lookup("alice")
	account.Tags = []string{"administrator"}
	if _, err := s.Set(account); err != nil {
		t.Fatal(err)
	}
	u, until, err := s.Resume(id, from(true))
	if err != nil || !u.Has("administrator") || u.Has("monitoring") || until != 1+hook.Instant(time.Hour) {
		t.Errorf("got %+v until %d, %v", u, until, err)
	}
	if _, err := s.Track(u, func(string) {}); err != nil {
		t.Errorf("the user cannot connect: %v", err)
	}
}

func TestGuestsSessionIsForThisMachine(t *testing.T) {
	s := store(t)
	id, _ := ParseToken(opened(t, s, Guest, Guest, 1))
	for range 2 {
		_, _, err := s.Resume(id, from(false))
		if r, ok := errors.AsType[*Refused](err); !ok || !r.Elsewhere {
			t.Fatalf("got %v", err)
		}
		if _, _, err := s.Resume(id, from(true)); err != nil {
			t.Fatalf("the session has ended: %v", err)
		}
	}
}

func TestSessionsAreBounded(t *testing.T) {
	s := store(t)
	bystander := opened(t, s, Guest, Guest, 1)
	var tokens []string
	for i := range 10_000 {
		tokens = append(tokens, opened(t, s, "alice", "secret", hook.Instant(i+1)))
	}
	if n := s.Sessions(); n != maxUserSessions+1 {
		t.Errorf("there are %d sessions", n)
	}
	for i, token := range tokens {
		if got, want := resumes(s, token, 20_000), i >= len(tokens)-maxUserSessions; got != want {
			t.Fatalf("session %d can be resumed: %v, want %v", i, got, want)
		}
	}
	if !resumes(s, bystander, 20_000) {
		t.Error("another user's session has ended")
	}
}

func TestSessionsOfAllUsersAreBounded(t *testing.T) {
	s := store(t)
	s.sessions.add(&session{id: SessionID{9}, user: "ended", end: 5}, 1)
	var ids []SessionID
	for i := range maxSessions + 3 {
		id := SessionID{1, byte(i), byte(i >> 8), byte(i >> 16)}
		ids = append(ids, id)
		s.sessions.add(&session{id: id, user: string(id[1:4]), began: hook.Instant(i), end: 1 << 40}, hook.Instant(i+10))
	}
	if n := s.Sessions(); n != maxSessions {
		t.Errorf("there are %d sessions, want %d", n, maxSessions)
	}
	for i, id := range ids {
		if got, want := s.sessions.find(id) != nil, i >= 3; got != want {
			t.Fatalf("session %d is there: %v, want %v", i, got, want)
		}
	}
	if n := len(s.sessions.of); n != maxSessions {
		t.Errorf("%d users are remembered", n)
	}
}

func TestTokens(t *testing.T) {
	s := store(t)
	token := opened(t, s, "alice", "secret", 1)
	if b, err := base64.RawURLEncoding.DecodeString(token); err != nil || len(b) != 32 {
		t.Fatalf("%q: %d bytes, %v", token, len(b), err)
	}
	id, ok := ParseToken(token)
	if !ok || strings.Contains(token, string(id[:])) {
		t.Fatal("the token is no token")
	}
	if token == opened(t, s, "alice", "secret", 1) {
		t.Error("two sessions have the same token")
	}
	other := []byte(token)
	other[0] ^= 1
	last := []byte(token) // decodes to the same bytes if the bits beyond the last byte are ignored
	last[len(last)-1]++
	for _, bad := range []string{
		"", "x", string(other), string(last), token + "=", token[1:], " " + token[1:], token[:42] + "\n", strings.Repeat("A", 43),
		strings.Repeat("A", 1<<16), base64.StdEncoding.EncodeToString(id[:]), base64.RawURLEncoding.EncodeToString(id[:]), // what memory has
	} {
		if resumes(s, bad, 1) {
			t.Errorf("%.60q resumes a session", bad)
		}
	}
}
