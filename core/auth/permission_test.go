package auth

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
)

func TestCheck(t *testing.T) {
	s := store(t)
	for vhost, p := range map[string]Permissions{
		"/":     {Configure: "^alice-", Write: "orders|amq\\.default", Read: ""},
		"other": {Configure: ".*", Write: ".*", Read: ".*"},
	} {
		permit(t, s, Grant{"alice", vhost, p})
	}
	for _, c := range []struct {
		user string
		p    Permission
		r    Resource
		err  string
	}{
		{"guest", Configure, Resource{Queue, "/", "q"}, ""},
		{"guest", Write, Resource{Exchange, "/", ""}, ""},
		{"guest", Read, Resource{Queue, "/", "two\nlines \xff"}, ""},
		{"guest", Read, Resource{Queue, "other", "q"}, "read access to queue 'q' in vhost 'other' refused for user 'guest'"},
		{"alice", Configure, Resource{Queue, "/", "alice-q"}, ""},
		{"alice", Configure, Resource{Queue, "/", "q-alice-"}, "configure access to queue 'q-alice-' in vhost '/' refused for user 'alice'"},
		{"alice", Write, Resource{Exchange, "/", "my-orders-x"}, ""},
		{"alice", Write, Resource{Exchange, "/", "x"}, "write access to exchange 'x' in vhost '/' refused for user 'alice'"},
		{"alice", Write, Resource{Exchange, "/", ""}, ""},
		{"alice", Read, Resource{Exchange, "/", ""}, "read access to exchange 'amq.default' in vhost '/' refused for user 'alice'"},
		{"alice", Read, Resource{Queue, "/", "q"}, "read access to queue 'q' in vhost '/' refused for user 'alice'"},
		{"alice", Read, Resource{Queue, "/", ""}, ""},
		{"alice", Read, Resource{Queue, "other", "q"}, ""},
		{"bob", Read, Resource{Queue, "/", "q"}, "read access to queue 'q' in vhost '/' refused for user 'bob'"},
	} {
		err := s.Check(c.user, c.p, c.r)
		if c.err == "" {
			if err != nil {
				t.Errorf("%s %s %+v: %v", c.user, c.p, c.r, err)
			}
			continue
		}
		var e *amqp.Error
		if !errors.As(err, &e) || e.Code != amqp.ReplyAccessRefused || err.Error() != "ACCESS_REFUSED - "+c.err {
			t.Errorf("%s %s %+v: got %v, want %s", c.user, c.p, c.r, err, c.err)
		}
	}
}

func TestOpenVHost(t *testing.T) {
	s := store(t)
	if err := s.OpenVHost("guest", "/"); err != nil {
		t.Error(err)
	}
	for _, user := range []string{"alice", "bob"} {
		err := s.OpenVHost(user, "/")
		var e *amqp.Error
		if !errors.As(err, &e) || e.Code != amqp.ReplyNotAllowed || e.Text != "access to vhost '/' refused for user '"+user+"'" {
			t.Errorf("%s: %v", user, err)
		}
	}
}

func TestSetPermissions(t *testing.T) {
	s := store(t)
	s.options.VHost = func(name string) bool { return name == "/" }
	long := strings.Repeat("x", maxPattern+1)
	for _, c := range []struct {
		g    Grant
		want string
	}{
		{Grant{"bob", "/", Permissions{}}, `user "bob": no such user`},
		{Grant{"alice", "other", Permissions{}}, `vhost "other": no such vhost`},
		{Grant{"alice", "", Permissions{}}, `vhost name: empty`},
		{Grant{"", "/", Permissions{}}, `user name: empty`},
		{Grant{"alice", "/", Permissions{Write: "("}}, `user "alice": vhost "/": write: error parsing regexp`},
		{Grant{"alice", "/", Permissions{Configure: "(?=x)"}}, "user \"alice\": vhost \"/\": configure: error parsing regexp: invalid or unsupported Perl syntax: `(?=` (the syntax is RE2's, which has no look-around and no back-references)"},
		{Grant{"alice", "/", Permissions{Read: long}}, `user "alice": vhost "/": read: regular expression of 4097 bytes: at most 4096 are allowed`},
	} {
		if _, err := s.SetPermissions(c.g); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%.50v: got %v, want %s", c.g, err, c.want)
		}
	}
	r := Resource{Queue, "/", "q"}
	before := s.Version()
	if created, err := s.SetPermissions(Grant{Guest, "/", Permissions{Read: "x"}}); created || err != nil {
		t.Fatal(created, err)
	}
	if s.Check("guest", Read, r) == nil || s.Version() == before {
		t.Error("the old permissions still hold, or the version does")
	}
	if _, err := s.Login(t.Context(), "PLAIN", plainResponse("guest", "guest"), from(true)); err != nil {
		t.Error(err)
	}
	if created, err := s.SetPermissions(Grant{"alice", "/", Permissions{Read: ".*"}}); !created || err != nil || s.Check("alice", Read, r) != nil {
		t.Error(created, err)
	}
}

func TestClearPermissions(t *testing.T) {
	s := store(t)
	if existed, err := s.ClearPermissions("guest", "/"); !existed || err != nil {
		t.Error(existed, err)
	}
	if s.OpenVHost("guest", "/") == nil || s.Check("guest", Write, Resource{Queue, "/", "q"}) == nil {
		t.Error("the permissions still hold")
	}
	if existed, err := s.ClearPermissions("guest", "/"); existed || err != nil {
		t.Error(existed, err)
	}
	if _, err := s.ClearPermissions("bob", "/"); !errors.Is(err, ErrNoUser) {
		t.Error(err)
	}
}

func TestCheckDoesNotAllocate(t *testing.T) {
	s := store(t)
	if n := testing.AllocsPerRun(100, func() { _ = s.Check("guest", Write, Resource{Exchange, "/", "x"}) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// Permissions that list names were refused beyond 2,000 characters, because the limit was on the cost of repetitions, which they do not have.
// RabbitMQ's definitions could not be imported, and a broker did not start with its configuration.
func TestPermissionsMayListNames(t *testing.T) {
	var names []string
	for i := range uint64(178) {
		names = append(names, strconv.FormatUint((i+1)*0x9E3779B97F4A7C15, 36)+".incoming")
	}
	pattern := "^(" + strings.Join(names, "|") + ")$"
	if len(pattern) < 4000 || len(pattern) > maxPattern {
		t.Fatalf("the pattern has %d bytes", len(pattern))
	}
	for _, pattern := range []string{pattern, strings.Repeat("a*", maxPattern/2), strings.Repeat("(a)", maxPattern/3), strings.Repeat("a|b.|", maxPattern/5), strings.Repeat("x", maxPattern)} {
		g := Grant{User: "u", VHost: "/", Permissions: Permissions{Configure: pattern, Write: pattern, Read: pattern}}
		if err := g.Check(); err != nil {
			t.Errorf("%.60s: %.300v", pattern, err)
		}
	}
	g := TopicGrant{User: strings.Repeat("u", 200), VHost: "/", TopicPermissions: TopicPermissions{Exchange: "amq.topic", Read: strings.Repeat("{username}.", maxPattern/12)}}
	if err := g.Check(); err == nil || !strings.Contains(err.Error(), "steps, more than 16000") {
		t.Errorf("names put in: got %.300v", err)
	}
}

// A broker starts with permissions that an earlier version has accepted.
func TestCostlyPermissionsAreRefusedUnlessTheyAreStored(t *testing.T) {
	g := Grant{User: "u", VHost: "/", Permissions: Permissions{Configure: ".{0,999}.{0,999}.{0,999}"}}
	topics := TopicGrant{User: "u", VHost: "/", TopicPermissions: TopicPermissions{Exchange: "amq.topic", Read: "({vhost}{username}){0,999}.{0,2}"}}
	topics.User = strings.Repeat("u", 200)
	for _, err := range []error{g.Check(), topics.Check(), CheckPattern(g.Configure)} {
		if err == nil || !strings.Contains(err.Error(), "steps, more than 2000") {
			t.Errorf("fresh: got %v", err)
		}
	}
	if _, err := g.compile(stored); err != nil {
		t.Errorf("stored: %v", err)
	}
	if _, err := topics.compile(stored); err != nil {
		t.Errorf("stored: %v", err)
	}
}
