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

// SessionID identifies a session by the digest of its token. The token itself is the client's alone: nothing in this process's
// memory logs anybody in. The zero SessionID is that of no session.
type SessionID [sha256.Size]byte

const (
	tokenBytes = 32
	// maxUserSessions is how many sessions one user may have. The oldest makes room for the next.
	maxUserSessions = 64
	// maxSessions is how many there may be of all users.
	maxSessions = 1 << 13
)

// ParseToken returns the id that a token stands for, and whether it has the form of a token. Tokens cannot be guessed, so that
// whether there is such a session may show in the time that an answer takes.
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

// sessions are the logins that clients resume with a token. They are not durable. Any goroutine may use them.
type sessions struct {
	mu   sync.Mutex // guards what follows
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

// OpenSession begins a session of a user who has just logged in, and returns its token. It ends after the given time, by
// [Store.EndSession], when the user is deleted or gets another password, or when the user opens many others.
func (s *Store) OpenSession(u User, now hook.Instant, lasts time.Duration) string {
	b := make([]byte, tokenBytes)
	rand.Read(b)
	s.sessions.add(&session{id: sha256.Sum256(b), user: u.Name, epoch: u.epoch, began: now, end: now.Add(lasts)}, now)
	return base64.RawURLEncoding.EncodeToString(b)
}

// Resume returns the user of a session as the user is now, and when the session ends. The error is a [*Refused].
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

// EndSession ends a session, if there is one of that id.
func (s *Store) EndSession(id SessionID) { s.sessions.remove(id) }

// Sessions returns how many sessions are open. Those that have ended by themselves may be among them.
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

// add adds a session, in place of others if there are too many.
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

// makeRoom drops what has ended or, if nothing has, the oldest session of all. The caller holds mu.
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
