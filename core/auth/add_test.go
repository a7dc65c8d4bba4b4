package auth

import (
	"errors"
	"testing"
)

// A user is added with all permissions or not at all, and only once.
func TestAdd(t *testing.T) {
	s := New(Options{Hashing: SHA512, VHost: func(name string) bool { return name == "/" }})
	a := Account{Name: "anna", Tags: []string{"monitoring"}}
	all := Permissions{Configure: ".*", Write: ".*", Read: ".*"}
	if created, err := s.Add(a, []Grant{{VHost: "/", Permissions: all}, {VHost: "gone", Permissions: all}}); created || err == nil {
		t.Errorf("with a vhost that does not exist: %v, %v", created, err)
	}
	var refused *Invalid
	if created, err := s.Add(a, []Grant{{VHost: "/", Permissions: Permissions{Read: "("}}}); created || !errors.As(err, &refused) {
		t.Errorf("with a pattern that is none: %v, %v", created, err)
	}
	if _, exists := s.Lookup("anna"); exists {
		t.Error("the user was added in part")
	}
	if created, err := s.Add(a, []Grant{{VHost: "/", Permissions: all}}); !created || err != nil {
		t.Fatalf("got %v, %v", created, err)
	}
	if err := s.Check("anna", Write, Resource{Kind: Queue, VHost: "/", Name: "q"}); err != nil {
		t.Error(err)
	}
	a.Tags = nil
	if created, err := s.Add(a, nil); created || err != nil {
		t.Errorf("again: got %v, %v", created, err)
	}
	if !s.HasTag("anna", "monitoring") {
		t.Error("the user was changed")
	}
}
