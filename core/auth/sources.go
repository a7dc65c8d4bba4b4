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

// sources remembers the sources of successful and failed logins, so that the gate can
// prefer some sources. The user name of a login does not matter: otherwise the time that a
// login takes would show strangers which users exist. It is safe for concurrent use.
type sources struct {
	mu     sync.Mutex // guards the fields below
	key    [sha256.Size]byte
	proven map[mark]provenSource
	users  map[mark]int          // how many entries of proven belong to each user
	uses   uint64                // logins that succeeded
	added  uint64                // sources that became proven
	wrong  map[mark]hook.Instant // when a source that is not proven stops being failing
}

// mark is a keyed hash of a source, or of a user's name. The file in the data directory contains nothing else.
type mark [16]byte

// provenSource is a source from which a login succeeded.
type provenSource struct {
	user mark   // that logged in from the source last
	used uint64 // number of that login
}

// class orders the sources; checks of a better class run first.
type class uint8

const (
	proven  class = iota // a login from there has succeeded, perhaps before a restart
	strange              // no login from there is remembered
	failing              // a login from there has failed lately, and none has succeeded
	classes
)

const (
	// maxProven bounds the sources from which a login succeeded, and maxFailing those from which one failed lately.
	maxProven  = 4096
	maxFailing = 1 << 14
	// failingFor is how long a failed login makes a source failing. If 800 sources share
	// twenty checks a second, each gets a turn every 40 seconds.
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

// prove makes a source proven and the most recently used one. If there are too many, the
// user that has the most sources loses the least recently used of them. A user that logs in
// from ever new addresses therefore does not displace the sources of others. The caller
// holds mu.
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

// disown removes one source from a user's count.
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

// failed remembers a failed login.
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

// Proven sources are stored so that a restart does not forget them. The format is
//
//	sourcesMagic | key (32) | { source (16) | user (16) }, most recently used last | SHA-256 of all of it (32)
//
// The key is stored so that hashes are the same after the restart. Nothing in the file depends on a password.
const sourcesMagic = "curfew sources 1\n"

const (
	sourcesHead  = len(sourcesMagic) + sha256.Size
	sourcesEntry = 2 * len(mark{})
	// MaxSourcesBytes bounds the length of the result of [Store.EncodeSources].
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

// decode replaces everything that is remembered. If it returns an error, nothing has changed.
func (s *sources) decode(b []byte) error {
	switch {
	case !bytes.HasPrefix(b, []byte(sourcesMagic)):
		return fmt.Errorf("it does not begin with %q", sourcesMagic)
	case len(b) > MaxSourcesBytes:
		return fmt.Errorf("it has more than %d bytes", MaxSourcesBytes)
	case len(b) < sourcesHead+sha256.Size, (len(b)-sourcesHead-sha256.Size)%sourcesEntry != 0:
		return fmt.Errorf("%d bytes are not the length of %d to %d sources", len(b), 0, maxProven)
	}
	content, check := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	if want := sha256.Sum256(content); !bytes.Equal(check, want[:]) {
		return errors.New("its checksum does not match its contents")
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

// EncodeSources returns the sources of the last successful logins, at most 4,096 addresses
// or /64 networks, for DecodeSources after a restart. Sources and users are keyed hashes.
func (s *Store) EncodeSources() []byte { return s.verifier.sources.encode() }

// DecodeSources replaces the remembered sources of successful logins with the encoded ones,
// and returns how many they are. Logins in progress count as those of strangers. If b is
// damaged it returns an error and changes nothing.
func (s *Store) DecodeSources(b []byte) (n int, err error) {
	all := s.verifier.sources
	if err := all.decode(b); err != nil {
		return 0, err
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	return len(all.proven), nil
}

// AddedSources returns how many addresses or networks had their first successful login since the store was made.
func (s *Store) AddedSources() uint64 {
	all := s.verifier.sources
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.added
}
