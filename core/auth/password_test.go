package auth

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

// Hashes made by RabbitMQ 3.10.
func TestRabbitMQHashes(t *testing.T) {
	for _, c := range []struct {
		name, hash, algorithm, password string
	}{
		{"of an export", "XDouzE1Zt2yQZQnj8UTUKS8XfBkKhL/kJYaHGv2SdQhNFo03", "rabbit_password_hashing_sha256", "guest"},
		{"algorithm not said", "XDouzE1Zt2yQZQnj8UTUKS8XfBkKhL/kJYaHGv2SdQhNFo03", "", "guest"},
		{"SHA-512", "GOUWvcZPtw6z3LMvsNrBAI/nvBDngN7CkHN+Z0zaEpx6UIo5ZlxODkY92+f6J/Dv9ycWC8UgTwCwwVBHaBRTChNpbRk=", "rabbit_password_hashing_sha512", "pass wörd"},
		{"SHA-256", "qDwyGg7AT6Qnhi+E8pBqG0cIXXb6DaRxfuHPIwWeiZe75HJS", "rabbit_password_hashing_sha256", "pass wörd"},
		{"MD5", "IfdcsPucNSFNr/KKEDm/EKUID2o=", "rabbit_password_hashing_md5", "pass wörd"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, err := ParseHash(c.hash, c.algorithm)
			if err != nil {
				t.Fatal(err)
			}
			if !h.matches(c.password) || h.matches(c.password+" ") || h.matches("") {
				t.Error("matches wrongly")
			}
			if hash, algorithm := h.Encode(); hash != c.hash || c.algorithm != "" && algorithm != c.algorithm {
				t.Errorf("encoded: %s, %s", hash, algorithm)
			}
			s := store(t)
			if _, err := s.Set(Account{Name: "u", Password: h}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Authenticate(t.Context(), "u", c.password, from(false)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestParseHash(t *testing.T) {
	bytes := func(n int, first ...byte) string {
		return base64.StdEncoding.EncodeToString(append(first, make([]byte, n-len(first))...))
	}
	for _, c := range []struct {
		name, hash, algorithm, err string
	}{
		{"none", "", "", ""},
		{"none of an algorithm that we do not have", "", "rot13", ""},
		{"right", bytes(68), string(SHA512), ""},
		{"ours", bytes(52, 0, 0, 4, 0), string(PBKDF2), ""},
		{"not base64", "!!!", string(SHA256), "password_hash: not base64"},
		{"too short", "AAAA", "", "password_hash of 3 bytes: those of rabbit_password_hashing_sha256 have 36"},
		{"of another algorithm", bytes(68), string(SHA256), "password_hash of 68 bytes: those of rabbit_password_hashing_sha256 have 36"},
		{"ours, too long", bytes(53), string(PBKDF2), "password_hash of 53 bytes: those of curfew_password_hashing_pbkdf2_sha256 have 52"},
		{"ours, too easy", bytes(52, 0, 0, 0, 1), string(PBKDF2), "password_hash with 1 iterations: not between 1000 and 5000000"},
		{"ours, too much work", bytes(52, 0xff, 0xff, 0xff, 0xff), string(PBKDF2), "password_hash with 4294967295 iterations: not between 1000 and 5000000"},
		{"unknown algorithm", bytes(36), "rot13", `hashing_algorithm "rot13": not one of curfew_password_hashing_pbkdf2_sha256, rabbit_password_hashing_sha512, rabbit_password_hashing_sha256, rabbit_password_hashing_md5`},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, err := ParseHash(c.hash, c.algorithm)
			if c.err == "" {
				if err != nil || h.Empty() != (c.hash == "") {
					t.Errorf("got %v, %v", h, err)
				}
				return
			}
			if _, ok := errors.AsType[*Invalid](err); !ok || err.Error() != c.err {
				t.Errorf("got %v, want %s", err, c.err)
			}
		})
	}
}

func TestNewHashes(t *testing.T) {
	fast := New(Options{Hashing: SHA512}).Hash
	for _, c := range []struct {
		algorithm Algorithm
		hash      func(string) (Hash, error)
	}{
		{SHA512, fast},
		{PBKDF2, New(Options{}).hashPublic},
	} {
		a, err := c.hash("secret")
		if err != nil {
			t.Fatal(err)
		}
		b, err := c.hash("secret")
		if err != nil {
			t.Fatal(err)
		}
		if a.sum == b.sum || a.salt == b.salt {
			t.Error("no salt")
		}
		if !a.matches("secret") || a.matches("secret ") || a.matches("") {
			t.Error("matches wrongly")
		}
		encoded, name := a.Encode()
		if back, err := ParseHash(encoded, name); err != nil || back != a || name != string(c.algorithm) {
			t.Errorf("got %s back, %v", name, err)
		}
	}
	if none, err := fast(""); err != nil || !none.Empty() {
		t.Errorf("of no password: %v, %v", none, err)
	}
	s := New(Options{})
	if s.iterations != iterations {
		t.Errorf("%d iterations", s.iterations)
	}
	s.iterations = publicIterations // the real number would take too long
	if h, err := s.Hash("secret"); err != nil || h.algorithm != PBKDF2 || h.iterations != publicIterations {
		t.Errorf("by default: %s with %d iterations, %v", h.algorithm, h.iterations, err)
	}
	var none Hash
	if none.matches("") || none.matches("x") {
		t.Error("the zero hash lets somebody in")
	}
}

// Every hash in a definitions file is either read and encoded back to the same text, or refused.
func FuzzParseHash(f *testing.F) {
	f.Add("XDouzE1Zt2yQZQnj8UTUKS8XfBkKhL/kJYaHGv2SdQhNFo03", "rabbit_password_hashing_sha256")
	f.Add("IfdcsPucNSFNr/KKEDm/EKUID2o=", "rabbit_password_hashing_md5")
	f.Add(strings.Repeat("A", 68)+"==", "curfew_password_hashing_pbkdf2_sha256")
	f.Add("!", "x")
	f.Fuzz(func(t *testing.T, hash, algorithm string) {
		h, err := ParseHash(hash, algorithm)
		if err != nil {
			if _, ok := errors.AsType[*Invalid](err); !ok || !h.Empty() {
				t.Fatalf("%v, %v", h, err)
			}
			return
		}
		encoded, name := h.Encode()
		if again, err := ParseHash(encoded, name); err != nil || again != h {
			t.Errorf("%q, %q: got %v back, %v", hash, algorithm, again, err)
		}
	})
}
