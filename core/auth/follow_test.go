package auth

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/sdk/hook"
)

// followedLog is a definition log whose definitions take effect by being followed, in several stores.
type followedLog struct {
	memoryLog
	stores []*Store
	read   int // bytes
}

func (n *followedLog) WaitDurable() error {
	if n.err != nil {
		return n.err
	}
	fresh := n.written[n.read:]
	n.read = len(n.written)
	for _, s := range n.stores {
		if err := s.Follow(parsed(fresh)); err != nil {
			return err
		}
	}
	return nil
}

func parsed(b []byte) (all []*definition.Definition) {
	for d, err := range definition.Parse(b) {
		if err != nil {
			panic(err)
		}
		all = append(all, d)
	}
	return all
}

// randomChange makes a random change.
func randomChange(r *rand.Rand, s *Store) error {
	name, vhost := fmt.Sprint("u", r.IntN(4)), fmt.Sprint("v", r.IntN(3))
	var err error
	switch r.IntN(8) {
	case 0:
		_, err = s.Set(Account{Name: name, Tags: []string{strconv.Itoa(r.IntN(3))}, Limits: Limits{Channels: hook.LimitOf(int64(r.IntN(9)))}})
	case 1:
		_, err = s.Delete(name)
	case 2:
		_, err = s.SetPermissions(Grant{name, vhost, Permissions{"a", "b", strconv.Itoa(r.IntN(9))}})
	case 3:
		_, err = s.ClearPermissions(name, vhost)
	case 4:
		_, err = s.SetTopicPermissions(TopicGrant{name, vhost, TopicPermissions{Exchange: "x", Write: "a", Read: strconv.Itoa(r.IntN(9))}})
	case 5:
		_, err = s.ClearTopicPermissions(name, vhost, "")
	case 6:
		err = s.ForgetVHost(vhost, nil)
	case 7:
		_, err = s.Add(Account{Name: name}, []Grant{{VHost: vhost}})
	}
	return err
}

// Stores that follow equal a store that makes the same changes itself, even if they start with a rewrite of the definitions.
func TestFollow(t *testing.T) {
	const rounds = 2000
	own, other := New(Options{}), New(Options{})
	log := &followedLog{}
	writer := New(Options{Definitions: log, Follows: func() {}})
	log.stores = []*Store{writer, other}
	a, b := rand.New(rand.NewPCG(1, 2)), rand.New(rand.NewPCG(1, 2))
	for i := range rounds {
		got, want := randomChange(a, writer), randomChange(b, own)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("change %d: got %v, want %v", i, got, want)
		}
		if i%100 == 0 {
			late := New(Options{})
			if err := errors.Join(late.Follow(parsed(writer.Definitions())), other.Follow(parsed(writer.Definitions()))); err != nil {
				t.Fatal(err)
			}
			if says(late) != says(own) {
				t.Fatalf("after change %d a rewrite makes\n%s\nof\n%s", i, says(late), says(own))
			}
		}
		if says(writer) != says(own) || says(other) != says(own) {
			t.Fatalf("after change %d there are\n%s\nand\n%s\ninstead of\n%s", i, says(writer), says(other), says(own))
		}
	}
}

// Followed definitions apply as a whole or not at all.
func TestFollowAllOrNothing(t *testing.T) {
	s, from := New(Options{}), &memoryLog{}
	w := New(Options{Definitions: from})
	put(t, w, "a", "pw")
	defs := parsed(from.written)
	defs = append(defs, &definition.Definition{Op: "user.unknown"})
	if err := s.Follow(defs); err == nil || !strings.Contains(err.Error(), "user.unknown") {
		t.Errorf("got %v, want an error that names the definition", err)
	}
	if got := s.List(); len(got) > 0 {
		t.Errorf("got %v, want no user", got)
	}
}

// Connections end with their users, sessions with their passwords, and neither with a rewrite that leaves them as they are.
func TestFollowHasTheEffectsOfChanges(t *testing.T) {
	for _, tt := range []struct {
		name     string
		change   func(s *Store) error
		evicted  string
		resuming bool
	}{
		{"a rewrite", func(*Store) error { return nil }, "", true},
		{"tags", func(s *Store) error { return setTags(s, "a", "monitoring") }, "", true},
		{"a password", func(s *Store) error { return withPassword(s, "a", "another") }, "", false},
		{"a deletion", func(s *Store) error {
			_, err := s.Delete("a")
			return err
		}, "user 'a' is deleted", false},
	} {
		for _, whole := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s whole=%t", tt.name, whole), func(t *testing.T) {
				log := &memoryLog{}
				w, s := New(Options{Definitions: log}), New(Options{})
				must(t, withPassword(w, "a", "pw"))
				must(t, s.Follow(parsed(log.written)))
				token := opened(t, s, "a", "pw", 1)
				u, err := s.Authenticate(t.Context(), "a", "pw", from(true))
				must(t, err)
				evicted := ""
				_, err = s.Track(u, func(reason string) { evicted = reason })
				must(t, err)
				log.written = nil
				must(t, tt.change(w))
				version := s.Version()
				if whole {
					log.written = w.Definitions()
				}
				must(t, s.Follow(parsed(log.written)))
				if evicted != tt.evicted {
					t.Errorf("evicted with %q, want %q", evicted, tt.evicted)
				}
				if got := resumes(s, token, 2); got != tt.resuming {
					t.Errorf("the session resumes: %t, want %t", got, tt.resuming)
				}
				if s.Version() == version {
					t.Error("cached checks still hold")
				}
			})
		}
	}
}

// A user that was deleted and added again is a different user.
func TestFollowNewUserOfTheSameName(t *testing.T) {
	log := &memoryLog{}
	w, s := New(Options{Definitions: log}), New(Options{})
	must(t, withPassword(w, "a", "pw"))
	must(t, s.Follow(parsed(log.written)))
	u, err := s.Authenticate(t.Context(), "a", "pw", from(true))
	must(t, err)
	evicted := ""
	_, err = s.Track(u, func(reason string) { evicted = reason })
	must(t, err)
	log.written = nil
	a, _ := w.Lookup("a")
	_, err = w.Delete("a")
	must(t, err)
	_, err = w.Set(a)
	must(t, err)
	must(t, s.Follow(parsed(log.written)))
	if evicted == "" {
		t.Error("the connection of the user before goes on")
	}
	if _, err := s.Track(u, func(string) {}); err == nil {
		t.Error("the login of the user before holds")
	}
}

// A node that has reached no other node since it started knows no users. It used to answer every login with "wrong password", which
// clients take as final.
func TestNobodyIsKnownYet(t *testing.T) {
	s := New(Options{Hashing: SHA256, Definitions: &followedLog{}, Follows: func() {}})
	from := Origin{Host: "192.0.2.1", Loopback: true}
	for range 1000 { // none of these counts as a failed login
		_, err := s.Login(t.Context(), "PLAIN", "\x00guest\x00guest", from)
		r, ok := errors.AsType[*Refused](err)
		if !ok || r.Reply().Code != amqp.ReplyInternalError || !WasChecked(err) {
			t.Fatalf("got %v", err)
		}
	}
	must(t, s.Follow(nil))
	_, err := s.Login(t.Context(), "PLAIN", "\x00guest\x00guest", from)
	if r, ok := errors.AsType[*Refused](err); !ok || r.Reply().Code != amqp.ReplyAccessRefused {
		t.Errorf("there is no such user: got %v", err)
	}
}

// A node that does not own the log refuses every change with the log's error.
func TestFollowsElsewhere(t *testing.T) {
	elsewhere := errors.New("elsewhere")
	log := &followedLog{memoryLog: memoryLog{err: elsewhere}}
	s := New(Options{Definitions: log, Follows: func() {}})
	for name, change := range map[string]func() error{
		"added":            func() error { _, err := s.Set(Account{Name: "a"}); return err },
		"deleted, unknown": func() error { _, err := s.Delete("b"); return err },
		"unknown user":     func() error { _, err := s.SetPermissions(Grant{User: "b", VHost: "/"}); return err },
		"forgotten":        func() error { return s.ForgetVHost("/", nil) },
	} {
		if err := change(); !errors.Is(err, elsewhere) {
			t.Errorf("%s: got %v, want %v", name, err, elsewhere)
		}
	}
	if got := s.List(); len(got) > 0 {
		t.Errorf("there are %v", got)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
