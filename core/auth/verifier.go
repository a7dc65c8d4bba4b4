package auth

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"runtime"
	"sync"
	"sync/atomic"
)

// verifier checks passwords. To check one costs a tenth of a second of CPU, so
// it remembers which ones were right, as keyed hashes that mean nothing outside
// this process, and checks a few at a time: strangers with wrong passwords must
// not take every core.
type verifier struct {
	key    [sha256.Size]byte
	failed *throttle
	gate   *gate

	// rounds are how many a wrong password takes, whoever's it is: as many as that of the user who has most.
	rounds atomic.Uint32
	// check looks whether a password is right, which may take a while.
	check func(h *Hash, password string) bool
	// spend takes as long as so many rounds.
	spend func(rounds uint32, password string)

	mu    sync.RWMutex // guards known
	known map[digest]struct{}
}

type digest [sha256.Size]byte

// maxKnown bounds the right passwords remembered; users have one each.
const maxKnown = 4096

// newVerifier returns one that takes so many rounds for a wrong password at least.
func newVerifier(rounds uint32) *verifier {
	v := &verifier{known: map[digest]struct{}{}, failed: newThrottle(), check: (*Hash).matches, spend: spend}
	v.rounds.Store(rounds)
	v.gate = newGate(v.failed, v.knows, max(2, runtime.GOMAXPROCS(0)/2))
	rand.Read(v.key[:])
	return v
}

// login is what somebody wants to log in with.
type login struct {
	name     string
	from     Origin
	suspects throttleKeys
	digest   digest
	barred   bool // no password will do from there, and none takes less time to refuse
}

// verify checks a password, whose hash, if it is right, is h; the zero one is of none. It waits for its turn until ctx is done.
func (v *verifier) verify(ctx context.Context, l login, h *Hash, password string) verdict {
	l.suspects, l.digest = v.failed.suspects(l.from.Host, l.name), v.digest(h, password)
	a := v.gate.enter(l)
	select {
	case <-a.told:
	case <-ctx.Done():
		v.gate.abandon(a)
		return a.verdict
	}
	if a.verdict.is != undecided {
		return a.verdict
	}
	if ctx.Err() != nil {
		v.gate.abandon(a)
		return a.verdict
	}
	v.gate.finish(a, v.try(&l, h, password))
	return a.verdict
}

// try checks a password. To refuse it takes as long with every user, and with none.
func (v *verifier) try(l *login, h *Hash, password string) outcome {
	is := wrong
	if v.check(h, password) {
		is = right
	}
	switch {
	case is == right && !l.barred:
		v.learn(l.digest)
		return right
	case is == right:
		is = barred
	}
	if most, had := v.rounds.Load(), h.rounds(); had < most {
		v.spend(most-had, password)
	}
	return is
}

// spend hashes a password for nothing.
func spend(rounds uint32, password string) {
	h := Hash{algorithm: PBKDF2, iterations: rounds, salt: "of nobody's hash"}
	_ = h.matches(password)
}

// expect has wrong passwords take as long from now on as with a user's hash.
func (v *verifier) expect(h *Hash) {
	for {
		most := v.rounds.Load()
		if h.rounds() <= most || v.rounds.CompareAndSwap(most, h.rounds()) {
			return
		}
	}
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
