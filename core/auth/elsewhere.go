package auth

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
)

// AccountOf returns a number of the account that a user has logged in to, for LoggedIn at another node of the cluster. It is that of the
// account's present password: as at this node, a login outlasts a change of the password. A later account of the same name has another
// number. It is 0 if the account was deleted.
func (s *Store) AccountOf(u User) uint64 {
	found := s.user(u.Name)
	if found == nil || found.generation != u.generation {
		return 0
	}
	return found.Password.number()
}

// LoggedIn returns a user whom another node has logged in. ok is false if there is no such user, or with another account.
func (s *Store) LoggedIn(name string, account uint64) (u User, ok bool) {
	found := s.user(name)
	if found == nil || found.Password.number() != account {
		return User{}, false
	}
	return found.loggedIn(), true
}

// number returns a number of the hash, which is the same in every process, and not 0.
func (h *Hash) number() uint64 {
	var b []byte
	for _, part := range []string{string(h.algorithm), h.salt, h.sum} {
		b = binary.AppendUvarint(b, uint64(len(part)))
		b = append(b, part...)
	}
	sum := sha256.Sum256(binary.AppendUvarint(b, uint64(h.iterations)))
	return max(binary.BigEndian.Uint64(sum[:]), 1)
}

// WasChecked reports whether an error of a login is a refusal of credentials that were checked: not one for too many logins, for a blank
// password, or for where the client is. A certificate that names no user was verified before, so that strangers cannot have any number
// of these refusals, either.
func WasChecked(err error) bool {
	r, ok := errors.AsType[*Refused](err)
	return ok && (!r.unchecked || r.unknown) && !r.Elsewhere
}
