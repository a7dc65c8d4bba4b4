package auth

import (
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
)

const (
	// iterations is what OWASP advises for PBKDF2 with HMAC-SHA-256.
	iterations = 600_000
	// publicIterations are for a password that everybody knows.
	publicIterations = 1000

	saltSize = 16
)

// hash is a password as it is kept: derived with PBKDF2-HMAC-SHA-256.
type hash struct {
	salt       [saltSize]byte
	sum        [sha256.Size]byte
	iterations int
	empty      bool // of the empty password, which lets nobody in
}

func newHash(password string, iterations int) (hash, error) {
	h := hash{iterations: iterations, empty: password == ""}
	rand.Read(h.salt[:])
	sum, err := h.derive(password)
	copy(h.sum[:], sum)
	return h, err
}

// unmatched returns a hash that no password has and that takes as long to check
// as another.
func unmatched() hash {
	h := hash{iterations: iterations, empty: true}
	rand.Read(h.salt[:])
	return h
}

// matches reports whether this is the password. It takes its time, the same for
// every password.
func (h *hash) matches(password string) bool {
	sum, err := h.derive(password)
	return err == nil && subtle.ConstantTimeCompare(sum, h.sum[:]) == 1 && !h.empty
}

func (h *hash) derive(password string) ([]byte, error) {
	sum, err := pbkdf2.Key(sha256.New, password, h.salt[:], h.iterations, len(h.sum))
	if err != nil {
		return nil, fmt.Errorf("password: %w", err)
	}
	return sum, nil
}
