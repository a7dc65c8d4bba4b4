package mgmt

import "testing"

// Logins were counted and not shown: the list was always empty.
func TestAuthAttempts(t *testing.T) {
	r := newRig(t)
	if w := r.serve(r.request("guest:wrong", "GET", "/api/whoami", "")); w.Code != 401 {
		t.Fatalf("a wrong password: got %d", w.Code)
	}
	r.do(200, "GET", "/api/whoami", "")

	const want = `[{"protocol":"http","auth_attempts":3,"auth_attempts_failed":1,"auth_attempts_succeeded":2}]`
	if got := r.do(200, "GET", "/api/auth/attempts/curfew@test", ""); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
