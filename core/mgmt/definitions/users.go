package definitions

import (
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// The names of limits.
const (
	MaxConnections = "max-connections"
	MaxChannels    = "max-channels"
	MaxQueues      = "max-queues"
)

// User returns a user's definition.
func User(u auth.Account) jsonobj.Object {
	hash, algorithm := u.Password.Encode()
	return object{
		{"name", u.Name},
		{"password_hash", hash},
		{"hashing_algorithm", algorithm},
		{"tags", Tags(u.Tags)},
		{"limits", UserLimits(&u)},
	}
}

// UserLimits returns the limits that are set for a user.
func UserLimits(u *auth.Account) jsonobj.Object {
	return limits(MaxConnections, u.Limits.Connections, MaxChannels, u.Limits.Channels)
}

// VHostLimits returns the limits that are set for a vhost.
func VHostLimits(v *vhost.VHost) jsonobj.Object {
	l := v.Parameters().Limits()
	return limits(MaxConnections, l.Connections, MaxQueues, l.Queues)
}

func limits(name string, l hook.Limit, other string, m hook.Limit) object {
	o := object{}
	if l.Set() {
		o.Add(name, l.N())
	}
	if m.Set() {
		o.Add(other, m.N())
	}
	return o
}

// ReadUser reads a user without limits. Tags are required. The user may have a password or a password_hash, but not both; without either
// the user cannot log in with a password. hash is slow, and is called only for an account without errors so far.
func ReadUser(r *reader, name string, hash func(password string) (auth.Hash, error)) auth.Account {
	if !r.Has("tags") {
		r.Fail(jsonobj.Errorf("tags_not_present"))
	}
	u := auth.Account{Name: name, Tags: r.Tags("tags")}
	if r.Has("password") && r.Has("password_hash") {
		r.Fail(jsonobj.Errorf("both_password_and_password_hash_are_provided"))
	}
	r.Fail(u.Check())
	password := r.Text("password")
	if r.Err() != nil {
		return u
	}
	var err error
	if r.Has("password") {
		u.Password, err = hash(password)
	} else {
		u.Password, err = auth.ParseHash(r.Text("password_hash"), r.Text("hashing_algorithm"))
	}
	r.Fail(err)
	return u
}

// AllPermissions returns a grant of every permission in a vhost.
func AllPermissions(user, vhost string) auth.Grant {
	return auth.Grant{User: user, VHost: vhost, Permissions: auth.Permissions{Configure: ".*", Write: ".*", Read: ".*"}}
}

// Permissions returns the definition of a user's permissions.
func Permissions(g auth.Grant) jsonobj.Object {
	return object{{"user", g.User}, {"vhost", g.VHost}, {"configure", g.Configure}, {"write", g.Write}, {"read", g.Read}}
}

// ReadPermissions reads a user's permissions in a vhost.
func ReadPermissions(r *reader, user, vhost string) auth.Grant {
	r.Need("configure", "write", "read")
	g := auth.Grant{User: user, VHost: vhost, Permissions: auth.Permissions{
		Configure: r.Text("configure"), Write: r.Text("write"), Read: r.Text("read"),
	}}
	r.Fail(g.Check())
	return g
}

// TopicPermissions returns the definition of a user's topic permissions.
func TopicPermissions(g auth.TopicGrant) jsonobj.Object {
	return object{{"user", g.User}, {"vhost", g.VHost}, {"exchange", g.Exchange}, {"write", g.Write}, {"read", g.Read}}
}

// ReadTopicPermissions reads a user's topic permissions for an exchange of a vhost.
func ReadTopicPermissions(r *reader, user, vhost string) auth.TopicGrant {
	r.Need("exchange", "write", "read")
	g := auth.TopicGrant{User: user, VHost: vhost, TopicPermissions: auth.TopicPermissions{
		Exchange: r.Name("exchange"), Write: r.Text("write"), Read: r.Text("read"),
	}}
	r.Fail(g.Check())
	return g
}
