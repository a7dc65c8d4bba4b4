package auth

import (
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/sdk/hook"
)

// memoryLog is a definition log in memory.
type memoryLog struct {
	written  []byte
	bulky    bool
	rewrites int
	err      error
}

func (n *memoryLog) Write(defs []byte)     { n.written = append(n.written, defs...) }
func (n *memoryLog) NeedsCompaction() bool { return n.bulky }
func (n *memoryLog) WaitDurable() error    { return n.err }
func (n *memoryLog) Rewrite(parts iter.Seq[[]byte]) {
	n.written, n.bulky = nil, false
	for b := range parts {
		n.written = append(n.written, b...)
	}
	n.rewrites++
}

// restarted returns a store that is made from a memoryLog.
func (n *memoryLog) restarted(tb testing.TB) *Store {
	tb.Helper()
	s := New(Options{Definitions: n})
	for def, err := range definition.Parse(n.written) {
		if err != nil {
			tb.Fatal(err)
		}
		if !IsUserOp(def.Op) {
			tb.Fatalf("%q is none of ours", def.Op)
		}
		if err := s.Apply(def); err != nil {
			tb.Fatal(err)
		}
	}
	return s
}

func setTags(s *Store, name string, tags ...string) error {
	a, _ := s.Lookup(name)
	a.Tags = tags
	_, err := s.Set(a)
	return err
}

func setPassword(s *Store, name string, h Hash) error {
	a, _ := s.Lookup(name)
	a.Password = h
	_, err := s.Set(a)
	return err
}

// says renders the whole content of a store.
func says(s *Store) string {
	var b strings.Builder
	for _, a := range s.List() {
		hash, algorithm := a.Password.Encode()
		fmt.Fprintln(&b, a.Name, a.Tags, hash, algorithm, a.Limits)
	}
	fmt.Fprintln(&b, s.Grants(), s.TopicGrants())
	return b.String()
}

// After any changes, a store that is made from the written definitions equals the original one.
func TestRestart(t *testing.T) {
	n := &memoryLog{}
	s := New(Options{Definitions: n})
	if err := s.CreateDefaults(); err != nil {
		t.Fatal(err)
	}
	put(t, s, "alice", "secret", "monitoring", "ünïcode")
	put(t, s, "bob", "secret")
	steps := []func() error{
		func() error { return setTags(s, "bob", "a", "a") },
		func() error {
			return s.SetLimits("bob", Limits{Connections: hook.LimitOf(0), Channels: hook.LimitOf(7)})
		},
		func() error { return setPassword(s, "alice", Hash{}) },
		func() error { _, err := s.Set(Account{Name: "carol"}); return err },
		func() error { grantAll(t, s, "alice", "/"); grantAll(t, s, "bob", "v"); return nil },
		func() error {
			permitTopics(t, s, TopicGrant{"bob", "v", TopicPermissions{"x", "w", "r"}})
			permitTopics(t, s, TopicGrant{"bob", "/", TopicPermissions{"x", "w", "r"}})
			permitTopics(t, s, TopicGrant{"bob", "/", TopicPermissions{"y", "w", "r"}})
			return nil
		},
		func() error { _, err := s.ClearTopicPermissions("bob", "/", "x"); return err },
		func() error { _, err := s.ClearPermissions("alice", "/"); return err },
		func() error { return s.ForgetVHost("v", nil) },
		func() error { _, err := s.Delete("guest"); return err },
	}
	for i, step := range steps {
		if err := step(); err != nil {
			t.Fatal(err)
		}
		if got, want := says(n.restarted(t)), says(s); got != want {
			t.Errorf("after step %d:\n got %s\nwant %s", i, got, want)
		}
	}
	n.bulky, n.rewrites = true, 0
	put(t, s, "dave", "x")
	if got, want := says(n.restarted(t)), says(s); n.rewrites != 1 || got != want {
		t.Errorf("rewritten:\n got %s\nwant %s", got, want)
	}
	if _, err := n.restarted(t).Authenticate(t.Context(), "bob", "secret", from(true)); err != nil {
		t.Error(err)
	}
}

// Refused changes are not written.
func TestRefusedIsNotWritten(t *testing.T) {
	n := &memoryLog{}
	s := New(Options{Definitions: n})
	if err := s.SetLimits("bob", Limits{}); !errors.Is(err, ErrNoUser) {
		t.Error(err)
	}
	long := strings.Repeat("x", 256)
	for _, a := range []Account{
		{},
		{Name: long},
		{Name: "\xff"},
		{Name: "a\x00b"},
		{Name: "a", Tags: []string{""}},
		{Name: "a", Tags: []string{long}},
		{Name: "a", Tags: make([]string, 65)},
		{Name: "a", Limits: Limits{Connections: hook.LimitOf(1 << 31)}},
	} {
		_, err := s.Set(a)
		if _, ok := errors.AsType[*Invalid](err); !ok {
			t.Errorf("%.50v: %v", a, err)
		}
	}
	if len(n.written) > 0 || len(s.List()) > 0 {
		t.Errorf("wrote %q", n.written)
	}
	n.err = errors.New("no disk")
	if _, err := s.Set(Account{Name: "a"}); !errors.Is(err, n.err) {
		t.Errorf("got %v", err)
	}
}

// Invalid definitions in a log are errors.
func FuzzApply(f *testing.F) {
	n := &memoryLog{}
	s := New(Options{Definitions: n})
	if err := s.CreateDefaults(); err != nil {
		f.Fatal(err)
	}
	permitTopics(f, s, TopicGrant{Guest, "/", TopicPermissions{"x", "w", "r"}})
	if _, err := s.ClearTopicPermissions(Guest, "/", "x"); err != nil {
		f.Fatal(err)
	}
	f.Add(n.written)
	f.Add(amqp.AppendTable(nil, definition.New(opSetUser)))
	f.Add(amqp.AppendTable(nil, defineNoPermissions("nobody", "/")))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := New(Options{})
		for def, err := range definition.Parse(b) {
			if err != nil {
				return
			}
			if s.Apply(def) != nil {
				break
			}
		}
		n := memoryLog{written: s.Definitions()}
		if got, want := says(n.restarted(t)), says(s); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	})
}
