package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"
)

// verifier checks passwords. To check one costs a tenth of a second of CPU, so
// it remembers which ones were right, as keyed hashes that mean nothing outside
// this process, and checks one at a time: strangers with wrong passwords must
// not take every core.
type verifier struct {
	key    [sha256.Size]byte
	nobody Hash          // checked for users that do not exist
	turn   chan struct{} // holds a token while a password is being checked
	failed *throttle

	mu    sync.RWMutex // guards known
	known map[digest]struct{}
}

type digest [sha256.Size]byte

// maxKnown bounds the right passwords remembered; users have one each.
const maxKnown = 4096

func newVerifier() *verifier {
	v := &verifier{nobody: unmatched(), turn: make(chan struct{}, 1), known: map[digest]struct{}{}, failed: newThrottle()}
	rand.Read(v.key[:])
	return v
}

// verify checks whether this is the password of name, who is u, or nobody if that is nil. Whoever failed too often is not
// looked at: retry is when to try again then.
//
// Passwords that are remembered need no turn, so that nobody has to wait for strangers. Such a look is a guess, too: no more
// of them are undecided at a time than may fail. The others are decided in turn.
func (v *verifier) verify(name string, u *user, password string, from Origin) (right bool, retry time.Duration) {
	h := &v.nobody
	if u != nil && !u.Password.Empty() {
		h = &u.Password
	}
	d := v.digest(h, password)
	s := v.failed.suspects(from.Host, name)
	if v.failed.begin(s, from.Now) {
		defer v.failed.end(s, from.Now)
		if v.knows(d) {
			return true, 0
		}
	}
	v.turn <- struct{}{}
	defer func() { <-v.turn }()
	if retry := v.failed.retry(s, from.Now); retry > 0 {
		return false, retry
	}
	if v.knows(d) { // while we waited
		return true, 0
	}
	if !v.matches(h, password) {
		v.failed.fail(s, from.Now)
		return false, 0
	}
	v.learn(d)
	return true, 0
}

// matches checks a password. A wrong one takes as long with every user.
func (v *verifier) matches(h *Hash, password string) bool {
	if h.matches(password) {
		return true
	}
	if !h.slow() {
		_ = v.nobody.matches(password)
	}
	return false
}

// digest stands for a password and the hash it is checked against: when a user
// gets another password, or is made anew, the old digest is of no use.
func (v *verifier) digest(h *Hash, password string) digest {
	m := hmac.New(sha256.New, v.key[:])
	m.Write([]byte(h.algorithm))
	m.Write(binary.BigEndian.AppendUint32(nil, uint32(len(h.salt))))
	m.Write(h.bytes())
	m.Write([]byte(password))
	return digest(m.Sum(nil))
}

func (v *verifier) knows(d digest) bool {
	v.mu.RLock()
	defer v.mu.RUnlock()
	_, ok := v.known[d]
	return ok
}

// learn remembers d, in the place of any other if there are too many.
func (v *verifier) learn(d digest) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for other := range v.known {
		if len(v.known) < maxKnown {
			break
		}
		delete(v.known, other)
	}
	v.known[d] = struct{}{}
}
