package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"sync"
)

// verifier checks passwords. To check one costs a tenth of a second of CPU, so
// it remembers which ones were right, as keyed hashes that mean nothing outside
// this process, and checks one at a time: strangers with wrong passwords must
// not take every core.
type verifier struct {
	key    [sha256.Size]byte
	nobody hash          // checked for users that do not exist
	turn   chan struct{} // holds a token while a password is being checked

	mu    sync.RWMutex // guards known
	known map[digest]struct{}
}

type digest [sha256.Size]byte

// maxKnown bounds the right passwords remembered; users have one each.
const maxKnown = 4096

func newVerifier() *verifier {
	v := &verifier{nobody: unmatched(), turn: make(chan struct{}, 1), known: map[digest]struct{}{}}
	rand.Read(v.key[:])
	return v
}

// verify reports whether this is the password of u, which is nil for a user that
// does not exist.
func (v *verifier) verify(u *user, password string) bool {
	h := &v.nobody
	if u != nil {
		h = &u.hash
	}
	d := v.digest(h, password)
	if v.knows(d) {
		return true
	}
	v.turn <- struct{}{}
	defer func() { <-v.turn }()
	if v.knows(d) { // while we waited
		return true
	}
	if !h.matches(password) {
		return false
	}
	v.learn(d)
	return true
}

// digest stands for a password and the hash it is checked against: when a user
// gets another password, or is made anew, the old digest is of no use.
func (v *verifier) digest(h *hash, password string) digest {
	m := hmac.New(sha256.New, v.key[:])
	m.Write(h.salt[:])
	m.Write(h.sum[:])
	m.Write(binary.BigEndian.AppendUint64(nil, uint64(h.iterations)))
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
