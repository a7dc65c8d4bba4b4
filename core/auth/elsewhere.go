package auth

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
)

// AccountOf returns the number of the account that a user has logged in to; another node passes it to LoggedIn. The number belongs to
// the account's present password, so a login outlasts a change of the password, as it does at this node. A later account of the same
// name has another number. 0 means that the account was deleted.
func (s *Store) AccountOf(u User) uint64 {
	found := s.user(u.Name)
	if found == nil || found.generation != u.generation {
		return 0
	}
	return found.Password.number()
}

// LoggedIn returns a user that another node has logged in. ok is false if there is no such user, or if the user's account is another one.
func (s *Store) LoggedIn(name string, account uint64) (u User, ok bool) {
	found := s.user(name)
	if found == nil || found.Password.number() != account {
		return User{}, false
	}
	return found.loggedIn(), true
}

// number returns a number of the hash. It is the same in every process, and never 0.
func (h *Hash) number() uint64 {
	var b []byte
	for _, part := range []string{string(h.algorithm), h.salt, h.sum} {
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	sum := sha256.Sum256(binary.AppendUvarint(b, uint64(h.iterations)))
	return max(binary.BigEndian.Uint64(sum[:]), 1)
}

// WasChecked reports whether the error of a login refuses credentials that were checked. It is false for refusals because of too many
// logins, a blank password or the client's address. A verified certificate that names no user counts as checked: strangers cannot
// produce any number of such refusals either.
func WasChecked(err error) bool {
	r, ok := errors.AsType[*Refused](err)
	return ok && (!r.unchecked || r.unknown) && !r.Elsewhere
}
