package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"sync"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// SessionID identifies a session by the digest of its token. Only the client has the token itself, so a dump of this process's memory
// contains nothing that can be used to log in. The zero SessionID belongs to no session.
type SessionID [sha256.Size]byte

const (
	tokenBytes = 32
	// maxUserSessions bounds the sessions of one user. A new one displaces the oldest.
	maxUserSessions = 64
	// maxSessions bounds the sessions of all users together.
	maxSessions = 1 << 13
)

// ParseToken returns the id of the session that a token belongs to, and whether the token is well-formed. Tokens cannot be guessed, so the
// time of an answer may reveal whether a session exists.
func ParseToken(token string) (id SessionID, ok bool) {
	if len(token) != base64.RawURLEncoding.EncodedLen(tokenBytes) {
		return id, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil {
		return id, false
	}
	return sha256.Sum256(b), true
}

// sessions holds the logins that clients resume with a token. They are not durable. Any goroutine may use it.
type sessions struct {
	mu   sync.Mutex // guards the fields below
	byID map[SessionID]*session
	of   map[string][]*session // by user, the oldest first
}

// session is one login. It is never modified.
type session struct {
	id         SessionID
	user       string
	epoch      uint64 // of the user who logged in
	began, end hook.Instant
}

// OpenSession begins a session for a user that has just logged in, and returns its token. The session ends after the given time, by
// [Store.EndSession], when the user is deleted or gets another password, or when the user opens many other sessions.
func (s *Store) OpenSession(u User, now hook.Instant, lasts time.Duration) string {
	b := make([]byte, tokenBytes)
	rand.Read(b)
	s.sessions.add(&session{id: sha256.Sum256(b), user: u.Name, epoch: u.epoch, began: now, end: now.Add(lasts)}, now)
	return base64.RawURLEncoding.EncodeToString(b)
}

// Resume returns the current state of a session's user, and when the session ends. The error is a [*Refused].
func (s *Store) Resume(id SessionID, from Origin) (u User, until hook.Instant, err error) {
	found := s.sessions.find(id)
	if found == nil {
		return User{}, 0, &Refused{Reason: "there is no such session", unchecked: true}
	}
	now, ok := s.Still(User{Name: found.user, epoch: found.epoch})
	if !ok || found.end <= from.Now {
		s.EndSession(id)
		return User{}, 0, &Refused{User: found.user, Reason: "the session has ended", unchecked: true}
	}
	if now.Name == Guest && !from.Loopback {
		r := refuse(Guest, "user '%s' can only connect via localhost", Guest)
		r.Elsewhere, r.unchecked = true, true
		return User{}, 0, r
	}
	return now, found.end, nil
}

// EndSession ends the session of that id, if there is one.
func (s *Store) EndSession(id SessionID) { s.sessions.remove(id) }

// Sessions returns how many sessions are open. It may count sessions that have already timed out.
func (s *Store) Sessions() int {
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	return len(s.sessions.byID)
}

func (t *sessions) find(id SessionID) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byID[id]
}

func (t *sessions) remove(id SessionID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if found := t.byID[id]; found != nil {
		t.drop(found)
	}
}

// add adds a session. If there are too many, it displaces others.
func (t *sessions) add(n *session, now hook.Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byID == nil {
		t.byID, t.of = map[SessionID]*session{}, map[string][]*session{}
	}
	for _, ended := range slices.Clone(t.of[n.user]) {
		if ended.end <= now {
			t.drop(ended)
		}
	}
	if own := t.of[n.user]; len(own) >= maxUserSessions {
		t.drop(own[0])
	}
	if len(t.byID) >= maxSessions {
		t.makeRoom(now)
	}
	t.byID[n.id] = n
	t.of[n.user] = append(t.of[n.user], n)
}

// makeRoom drops the sessions that have ended or, if there are none, the oldest session of all. The caller holds mu.
func (t *sessions) makeRoom(now hook.Instant) {
	var oldest *session
	for _, one := range t.byID {
		switch {
		case one.end <= now:
			t.drop(one)
		case oldest == nil || one.began < oldest.began:
			oldest = one
		}
	}
	if len(t.byID) >= maxSessions {
		t.drop(oldest)
	}
}

// drop forgets a session. The caller holds mu.
func (t *sessions) drop(one *session) {
	delete(t.byID, one.id)
	own := slices.DeleteFunc(t.of[one.user], func(other *session) bool { return other == one })
	if len(own) == 0 {
		delete(t.of, one.user)
		return
	}
	t.of[one.user] = own
}
