package auth

import (
	"crypto/md5" //nolint:gosec // of users that a RabbitMQ from before 3.6 exported: no worse here than its salted SHA-256
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
)

// Algorithm is a password hashing algorithm, by its name in exported definitions.
type Algorithm string

// The algorithms. PBKDF2 is ours; the others are RabbitMQ's, one round over four bytes of salt and the password.
const (
	PBKDF2 Algorithm = "curfew_password_hashing_pbkdf2_sha256"
	SHA512 Algorithm = "rabbit_password_hashing_sha512"
	SHA256 Algorithm = "rabbit_password_hashing_sha256"
	MD5    Algorithm = "rabbit_password_hashing_md5"
)

const (
	// iterations follows OWASP's advice for PBKDF2 with HMAC-SHA-256.
	iterations = 600_000
	// publicIterations is for public passwords.
	publicIterations = 1000
	// maxIterations limits a login to a second or two.
	maxIterations = 5_000_000

	saltSize        = 16
	rabbitSaltSize  = 4
	iterationsBytes = 4
)

// Hash is the hash of a password. The zero Hash matches no password.
type Hash struct {
	algorithm  Algorithm
	iterations uint32 // of PBKDF2
	salt, sum  string
}

// Hash hashes a new password. This takes as long as a check: a tenth of a second. The empty password has the zero Hash.
func (s *Store) Hash(password string) (Hash, error) {
	if password == "" {
		return Hash{}, nil
	}
	return s.hash(password, s.iterations)
}

func (s *Store) hashPublic(password string) (Hash, error) { return s.hash(password, publicIterations) }

// hash hashes a password with the algorithm for new ones; iterations are PBKDF2's.
func (s *Store) hash(password string, iterations uint32) (Hash, error) {
	h := Hash{algorithm: s.options.Hashing}
	salt := make([]byte, rabbitSaltSize)
	if h.algorithm == PBKDF2 {
		h.iterations, salt = iterations, make([]byte, saltSize)
	}
	rand.Read(salt)
	h.salt = string(salt)
	sum, err := h.of(password)
	h.sum = string(sum)
	return h, err
}

// Empty reports whether no password matches.
func (h *Hash) Empty() bool { return h.algorithm == "" }

// rounds returns how many rounds a check takes; 0 for RabbitMQ's algorithms, whose one round costs next to nothing.
func (h *Hash) rounds() uint32 { return h.iterations }

func (h *Hash) equal(other *Hash) bool {
	return h.algorithm == other.algorithm && subtle.ConstantTimeCompare(h.bytes(), other.bytes()) == 1
}

// matches reports whether a password has this hash. It takes the same time for every password.
func (h *Hash) matches(password string) bool {
	sum, err := h.of(password)
	return err == nil && len(h.sum) > 0 && subtle.ConstantTimeCompare(sum, []byte(h.sum)) == 1
}

// of hashes a password with the algorithm, rounds and salt of h.
func (h *Hash) of(password string) ([]byte, error) {
	salted := []byte(h.salt + password)
	switch h.algorithm {
	case PBKDF2:
		sum, err := pbkdf2.Key(sha256.New, password, []byte(h.salt), int(h.iterations), sha256.Size)
		if err != nil {
			return nil, fmt.Errorf("password: %w", err)
		}
		return sum, nil
	case SHA512:
		sum := sha512.Sum512(salted)
		return sum[:], nil
	case SHA256:
		sum := sha256.Sum256(salted)
		return sum[:], nil
	case MD5:
		sum := md5.Sum(salted) //nolint:gosec // see the import
		return sum[:], nil
	}
	return nil, fmt.Errorf("password: unknown algorithm %q", h.algorithm)
}

// A hash is encoded as in RabbitMQ; definitions and the management API have it in base64:
//
//	salt (4) | sum
//
// With PBKDF2 it is
//
//	iterations (4, big-endian) | salt (16) | sum (32)

// sumSizes are the sizes of the sums of RabbitMQ's algorithms, in bytes.
var sumSizes = map[Algorithm]int{SHA512: sha512.Size, SHA256: sha256.Size, MD5: md5.Size}

// ParseHash reads password_hash and hashing_algorithm as they appear in exported definitions and the management API. An absent algorithm
// means SHA-256, an empty password_hash the zero Hash. The error is an [*Invalid].
func ParseHash(passwordHash, algorithm string) (Hash, error) {
	if passwordHash == "" {
		return Hash{}, nil
	}
	if algorithm == "" {
		algorithm = string(SHA256)
	}
	b, err := base64.StdEncoding.DecodeString(passwordHash)
	if err != nil {
		return Hash{}, invalid("password_hash: not base64")
	}
	return hashOf(Algorithm(algorithm), b)
}

func hashOf(a Algorithm, b []byte) (Hash, error) {
	if a == PBKDF2 {
		return derivedHash(b)
	}
	size, ok := sumSizes[a]
	if !ok {
		return Hash{}, invalid("hashing_algorithm %q: not one of %s, %s, %s, %s", a, PBKDF2, SHA512, SHA256, MD5)
	}
	if want := rabbitSaltSize + size; len(b) != want {
		return Hash{}, invalid("password_hash of %d bytes: those of %s have %d", len(b), a, want)
	}
	return Hash{algorithm: a, salt: string(b[:rabbitSaltSize]), sum: string(b[rabbitSaltSize:])}, nil
}

func derivedHash(b []byte) (Hash, error) {
	const want = iterationsBytes + saltSize + sha256.Size
	if len(b) != want {
		return Hash{}, invalid("password_hash of %d bytes: those of %s have %d", len(b), PBKDF2, want)
	}
	n := binary.BigEndian.Uint32(b)
	if n < publicIterations || n > maxIterations {
		return Hash{}, invalid("password_hash with %d iterations: not between %d and %d", n, publicIterations, maxIterations)
	}
	b = b[iterationsBytes:]
	return Hash{algorithm: PBKDF2, iterations: n, salt: string(b[:saltSize]), sum: string(b[saltSize:])}, nil
}

// Encode is the inverse of [ParseHash].
func (h *Hash) Encode() (passwordHash, algorithm string) {
	if h.Empty() {
		return "", string(SHA256)
	}
	return base64.StdEncoding.EncodeToString(h.bytes()), string(h.algorithm)
}

func (h *Hash) bytes() []byte {
	var b []byte
	if h.algorithm == PBKDF2 {
		b = binary.BigEndian.AppendUint32(nil, h.iterations)
	}
	return slices.Concat(b, []byte(h.salt), []byte(h.sum))
}
