package auth

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/curfewmq/curfew/sdk/hook"
)

// sources remembers from where logins succeeded and failed, because the gate lets some sources go before others. The name that a client logs in
// with does not matter: if it did, strangers would see by the time that a login takes which users there are. It is safe for concurrent use.
type sources struct {
	mu     sync.Mutex // guards what follows
	key    [sha256.Size]byte
	proven map[mark]provenSource
	users  map[mark]int          // how many of proven are each user's
	uses   uint64                // logins that succeeded
	added  uint64                // sources that became proven
	wrong  map[mark]hook.Instant // until when a source that is not proven is failing
}

// mark is a keyed hash of a source, or of a user's name. The file in the data directory has nothing else.
type mark [16]byte

// provenSource is a source from which a login succeeded.
type provenSource struct {
	user mark   // of the last login
	used uint64 // number of that
}

// class is how early the checks of a source have their turns.
type class uint8

const (
	proven  class = iota // a login from there has succeeded, perhaps before a restart
	strange              // nothing is known
	failing              // a login from there has failed lately, and none has succeeded
	classes
)

const (
	// maxProven bounds the sources from which a login succeeded, and maxFailing those from which one failed lately.
	maxProven  = 4096
	maxFailing = 1 << 14
	// failingFor is how long a failed login makes a source failing. 800 sources of which twenty a second are checked have a turn every 40
	// seconds.
	failingFor = 10 * time.Minute
)

func newSources() *sources {
	s := &sources{proven: map[mark]provenSource{}, users: map[mark]int{}, wrong: map[mark]hook.Instant{}}
	rand.Read(s.key[:])
	return s
}

// source returns the mark of a source, which is a [network].
func (s *sources) source(network string) mark { return s.mark("source", network) }

func (s *sources) mark(kind, text string) mark {
	s.mu.Lock()
	key := s.key
	s.mu.Unlock()
	m := hmac.New(sha256.New, key[:])
	m.Write([]byte(kind + "\x00" + text))
	return mark(m.Sum(nil))
}

// class returns the class of a source.
func (s *sources) class(source mark, now hook.Instant) class {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.proven[source]; ok {
		return proven
	}
	until, ok := s.wrong[source]
	switch {
	case !ok:
		return strange
	case until <= now:
		delete(s.wrong, source)
		return strange
	}
	return failing
}

// succeeded remembers a login of a user that succeeded.
func (s *sources) succeeded(source mark, user string) {
	by := s.mark("user", user)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.proven[source]; !ok {
		s.added++
	}
	delete(s.wrong, source)
	s.prove(source, by)
}

// prove makes a source proven, and the one that was used last. If there are too many, the user who has most of them loses the one that was used
// longest ago: who logs in from ever new addresses does not displace those of others. The caller holds mu.
func (s *sources) prove(source, user mark) {
	had, ok := s.proven[source]
	switch {
	case ok:
		s.disown(had.user)
	case len(s.proven) >= maxProven:
		s.evict()
	}
	s.uses++
	s.proven[source] = provenSource{user, s.uses}
	s.users[user]++
}

// disown counts a source no longer as one of a user's.
func (s *sources) disown(user mark) {
	if s.users[user]--; s.users[user] == 0 {
		delete(s.users, user)
	}
}

func (s *sources) evict() {
	most := 0
	for _, n := range s.users {
		most = max(most, n)
	}
	var oldest mark
	at := uint64(0)
	for source, p := range s.proven {
		if s.users[p.user] == most && (at == 0 || p.used < at) {
			oldest, at = source, p.used
		}
	}
	s.disown(s.proven[oldest].user)
	delete(s.proven, oldest)
}

// failed remembers a login that failed.
func (s *sources) failed(source mark, now hook.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.proven[source]; ok {
		return
	}
	if _, ok := s.wrong[source]; !ok && len(s.wrong) >= maxFailing {
		s.forgetFailing()
	}
	s.wrong[source] = now.Add(failingFor)
}

// forgetFailing forgets the oldest of a few failing sources.
func (s *sources) forgetFailing() {
	const few = 16
	var oldest mark
	n := 0
	for source, until := range s.wrong {
		if n == 0 || until < s.wrong[oldest] {
			oldest = source
		}
		if n++; n == few {
			break
		}
	}
	delete(s.wrong, oldest)
}

// The bytes of proven sources are, so that a restart forgets none,
//
//	sourcesMagic | key (32) | { source (16) | user (16) }, those used last at the end | SHA-256 of all of it (32)
//
// The key is in the file so that it is the same after the restart. Nothing there depends on a password.
const sourcesMagic = "curfew sources 1\n"

const (
	sourcesHead  = len(sourcesMagic) + sha256.Size
	sourcesEntry = 2 * len(mark{})
	// MaxSourcesBytes bounds what [Store.EncodeSources] returns.
	MaxSourcesBytes = sourcesHead + maxProven*sourcesEntry + sha256.Size
)

func (s *sources) encode() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := append([]byte(sourcesMagic), s.key[:]...)
	inOrder := slices.SortedFunc(maps.Keys(s.proven), func(x, y mark) int { return cmp.Compare(s.proven[x].used, s.proven[y].used) })
	for _, source := range inOrder {
		user := s.proven[source].user
		b = append(append(b, source[:]...), user[:]...)
	}
	check := sha256.Sum256(b)
	return append(b, check[:]...)
}

// decode replaces everything that is remembered. With an error it changes nothing.
func (s *sources) decode(b []byte) error {
	switch {
	case !bytes.HasPrefix(b, []byte(sourcesMagic)):
		return fmt.Errorf("it does not begin with %q", sourcesMagic)
	case len(b) > MaxSourcesBytes:
		return fmt.Errorf("it has more than %d bytes", MaxSourcesBytes)
	case len(b) < sourcesHead+sha256.Size, (len(b)-sourcesHead-sha256.Size)%sourcesEntry != 0:
		return fmt.Errorf("%d bytes are not what %d to %d sources have", len(b), 0, maxProven)
	}
	content, check := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	if want := sha256.Sum256(content); !bytes.Equal(check, want[:]) {
		return errors.New("its checksum is not that of what is in it")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key = [sha256.Size]byte(content[len(sourcesMagic):])
	clear(s.proven)
	clear(s.users)
	clear(s.wrong)
	for e := content[sourcesHead:]; len(e) > 0; e = e[sourcesEntry:] {
		s.prove(mark(e), mark(e[len(mark{}):]))
	}
	return nil
}

// EncodeSources returns from where logins succeeded, the last 4,096 addresses or /64 networks, for DecodeSources after a restart. They and the
// users are keyed hashes.
func (s *Store) EncodeSources() []byte { return s.verifier.sources.encode() }

// DecodeSources replaces what is remembered of where logins succeeded, and returns from how many places they did. Logins that have begun are
// taken for those of strangers. It changes nothing if b is damaged, which the error says.
func (s *Store) DecodeSources(b []byte) (n int, err error) {
	all := s.verifier.sources
	if err := all.decode(b); err != nil {
		return 0, err
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	return len(all.proven), nil
}

// AddedSources returns how many addresses or networks had their first login that succeeded since the store was made.
func (s *Store) AddedSources() uint64 {
	all := s.verifier.sources
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.added
}
