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

// verifier checks passwords. A check takes a tenth of a second of CPU time, so the verifier
// remembers correct passwords, as keyed hashes that are worthless outside this process. It
// runs few checks at a time, so that strangers with wrong passwords do not take every core.
type verifier struct {
	key     [sha256.Size]byte
	failed  *throttle
	sources *sources
	gate    *gate

	// rounds is the number of hashing rounds for a wrong password, whether or not the user exists: as many as the slowest stored hash has.
	rounds atomic.Uint32
	// check reports whether a password is right. Tests replace it.
	check func(h *Hash, password string) bool
	// spend takes as long as the given number of rounds. Tests replace it.
	spend func(rounds uint32, password string)

	mu    sync.RWMutex // guards known
	known map[digest]struct{}
}

type digest [sha256.Size]byte

// maxKnown bounds the remembered correct passwords; each user has one.
const maxKnown = 4096

// newVerifier returns a verifier that spends at least the given number of rounds on a wrong password.
func newVerifier(rounds uint32) *verifier {
	v := &verifier{known: map[digest]struct{}{}, failed: newThrottle(), sources: newSources(), check: (*Hash).matches, spend: spend}
	v.rounds.Store(rounds)
	v.gate = newGate(v.failed, v.sources, v.knows, max(2, runtime.GOMAXPROCS(0)/2))
	rand.Read(v.key[:])
	return v
}

// login is the name and password of a client that wants to log in.
type login struct {
	name    string
	from    Origin
	network string // of from.Host
	keys    throttleKeys
	source  mark // of network
	digest  digest
	barred  bool // refused with any password, after the same time as for a wrong one
}

// verify checks a password against h; the zero Hash matches none. It waits for its turn until ctx is done.
func (v *verifier) verify(ctx context.Context, l login, h *Hash, password string) result {
	l.network = network(l.from.Host)
	l.keys, l.source, l.digest = v.failed.keys(l.network, l.name), v.sources.source(l.network), v.digest(h, password)
	a := v.gate.enter(l)
	a.wait(ctx)
	if ctx.Err() != nil {
		v.gate.abandon(a)
		return a.result
	}
	if a.result.is == undecided {
		v.gate.finish(a, v.try(&l, h, password))
	}
	return a.result
}

// wait waits until an attempt is woken, or ctx is done.
func (a *attempt) wait(ctx context.Context) {
	select {
	case <-a.woken:
		return
	default:
	}
	if tell := a.from.Waits; tell != nil {
		tell(true)
		defer tell(false)
	}
	select {
	case <-a.woken:
	case <-ctx.Done():
	}
}

// try checks a password. A refusal takes the same time for every name, whether or not it has a user.
func (v *verifier) try(l *login, h *Hash, password string) resultKind {
	is := wrong
	switch {
	case !v.check(h, password):
	case l.barred:
		is = barred
	default:
		v.learn(l.digest)
		return right
	}
	if most, had := v.rounds.Load(), h.rounds(); had < most {
		v.spend(most-had, password)
	}
	return is
}

// spend hashes a password and drops the result.
func spend(rounds uint32, password string) {
	h := Hash{algorithm: PBKDF2, iterations: rounds, salt: "of nobody's hash"}
	_ = h.matches(password)
}

// matchRounds makes wrong passwords take at least as long as a check against h does.
func (v *verifier) matchRounds(h *Hash) {
	for {
		most := v.rounds.Load()
		if h.rounds() <= most || v.rounds.CompareAndSwap(most, h.rounds()) {
			return
		}
	}
}

// digest identifies a password together with the hash that it is checked against. Old digests become useless when a user gets a new hash,
// or when a new user gets the same name.
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

// learn remembers d, and forgets any other digest if there are too many.
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
