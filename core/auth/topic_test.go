package auth

import (
	"errors"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
)

func permitTopics(tb testing.TB, s *Store, g TopicGrant) {
	tb.Helper()
	if _, err := s.SetTopicPermissions(g); err != nil {
		tb.Fatal(err)
	}
}

func TestCheckTopic(t *testing.T) {
	s := store(t)
	put(t, s, "a.*", "x")
	permitTopics(t, s, TopicGrant{"alice", "v.w", TopicPermissions{Exchange: "x", Write: `^{username}\.{vhost}\.`, Read: ""}})
	permitTopics(t, s, TopicGrant{"alice", "v.w", TopicPermissions{Exchange: "y", Write: ".*", Read: "{client_id}"}})
	permitTopics(t, s, TopicGrant{"a.*", "v.w", TopicPermissions{Exchange: "x", Write: "^{username}$", Read: ".*"}})
	for _, c := range []struct {
		user          string
		p             Permission
		exchange, key string
		ok            bool
	}{
		{"alice", Write, "x", "alice.v.w.1", true},
		{"alice", Write, "x", "alice.v-w.1", false}, // names stand for themselves
		{"alice", Write, "x", "bob.v.w.1", false},
		{"alice", Read, "x", "", true},
		{"alice", Read, "x", "a", false},
		{"alice", Write, "y", "whatever", true},
		{"alice", Read, "y", "{client_id}", true},
		{"alice", Read, "y", "c", false},
		{"alice", Read, "z", "whatever", true},
		{"guest", Write, "x", "whatever", true},
		{"a.*", Write, "x", "a.*", true},
		{"a.*", Write, "x", "abc", false},
	} {
		err := s.CheckTopic(c.user, c.p, Topic{"v.w", c.exchange, c.key})
		if c.ok != (err == nil) {
			t.Errorf("%s %s %s %s: %v", c.user, c.p, c.exchange, c.key, err)
		}
		want := c.p.String() + " access to topic '" + c.key + "' in exchange '" + c.exchange + "' in vhost 'v.w' refused for user '" + c.user + "'"
		if e, ok := errors.AsType[*amqp.Error](err); err != nil && (!ok || e.Code != amqp.ReplyAccessRefused || e.Text != want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestSetTopicPermissions(t *testing.T) {
	s := store(t)
	s.options.VHost = func(name string) bool { return name == "/" }
	for _, c := range []struct {
		g    TopicGrant
		want string
	}{
		{TopicGrant{"bob", "/", TopicPermissions{Exchange: "x"}}, `user "bob": no such user`},
		{TopicGrant{"alice", "v", TopicPermissions{Exchange: "x"}}, `vhost "v": no such vhost`},
		{TopicGrant{"alice", "/", TopicPermissions{}}, `exchange name: empty`},
		{TopicGrant{"alice", "/", TopicPermissions{Exchange: "x", Write: "("}}, `user "alice": vhost "/": topics of exchange "x": write: error parsing regexp`},
		{TopicGrant{"alice", "/", TopicPermissions{Exchange: "x", Read: "["}}, `user "alice": vhost "/": topics of exchange "x": read: error parsing regexp`},
	} {
		if _, err := s.SetTopicPermissions(c.g); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %s", c.g, err, c.want)
		}
	}
	g := TopicGrant{"alice", "/", TopicPermissions{Exchange: "x", Write: "a", Read: "b"}}
	for _, want := range []bool{true, false} {
		if created, err := s.SetTopicPermissions(g); created != want || err != nil {
			t.Error(created, err)
		}
	}
	g.Exchange = "y"
	permitTopics(t, s, g)
	if got := s.TopicGrants(); len(got) != 2 || got[0].Exchange != "x" || got[1] != g {
		t.Errorf("got %v", got)
	}
	if existed, err := s.ClearTopicPermissions("alice", "/", "y"); !existed || err != nil {
		t.Error(existed, err)
	}
	permitTopics(t, s, g)
	for _, want := range []bool{true, false} {
		if existed, err := s.ClearTopicPermissions("alice", "/", ""); existed != want || err != nil {
			t.Error(existed, err)
		}
	}
	if got := s.TopicGrants(); len(got) > 0 {
		t.Errorf("got %v", got)
	}
}
