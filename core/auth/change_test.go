package auth

import "testing"

// A request that panicked while it planned a change left the users locked: nothing could log in any more.
func TestAPlanThatPanicsLeavesNothingLocked(t *testing.T) {
	s := store(t)
	func() {
		defer func() { _ = recover() }()
		_ = s.change(func(*change) error { panic("at night") })
		t.Error("it did not panic")
	}()
	put(t, s, "carol", "secret")
	if _, err := s.Delete("carol"); err != nil {
		t.Error(err)
	}
}
