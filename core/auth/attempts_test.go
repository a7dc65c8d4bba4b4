package auth

import (
	"testing"
)

func TestAttempts(t *testing.T) {
	s := store(t)
	for _, password := range []string{"secret", "secret", "wrong", ""} {
		_, _ = s.Login(t.Context(), "PLAIN", "\x00alice\x00"+password, Origin{Host: "192.0.2.1"})
	}
	_, _ = s.Login(t.Context(), "PLAIN", "nonsense", Origin{})
	_, _ = s.Authenticate(t.Context(), "alice", "secret", Origin{Host: "192.0.2.2"})
	_, _ = s.Authenticate(t.Context(), "bob", "secret", Origin{Host: "192.0.2.2"})
	sasl, basic := s.Attempts()
	if want := (Attempts{Succeeded: 2, Failed: 3}); sasl != want {
		t.Errorf("with SASL %+v, want %+v", sasl, want)
	}
	if want := (Attempts{Succeeded: 1, Failed: 1}); basic != want {
		t.Errorf("with names and passwords %+v, want %+v", basic, want)
	}
}
