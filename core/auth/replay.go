package auth

import (
	"fmt"
	"iter"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Apply replays the next definition of users, before the store is used. Nothing is written.
func (s *Store) Apply(def *definition.Definition) error {
	f := following{store: s}
	if err := f.apply(def); err != nil {
		return err
	}
	f.put()
	return nil
}

// Follow applies definitions that another node wrote: all of them or, with an error, none. The effects are those of the same changes
// made here; for example, connections of deleted users are closed. A user that is voided and defined again by the same definitions
// remains the same user, and its logins hold if the password is equal.
func (s *Store) Follow(defs []*definition.Definition) error {
	gone, err := s.follow(defs)
	if err != nil {
		return err
	}
	s.followed.Store(true)
	for _, name := range gone {
		s.tracker.evict(name, "user '"+name+"' is deleted")
	}
	return nil
}

// follow is Follow without the effects on connections. It returns the users that were deleted.
func (s *Store) follow(defs []*definition.Definition) (gone []string, err error) {
	f := following{store: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, def := range defs {
		if err := f.apply(def); err != nil {
			return nil, err
		}
	}
	return f.put(), nil
}

// following computes the effect of definitions on the users of a store. The store is unchanged until put.
type following struct {
	store   *Store
	void    bool             // only the users in changed count, not the store's
	changed map[string]*user // the new state of each; nil = deleted
}

// user returns the user of a name, nil if there is none.
func (f *following) user(name string) *user {
	if u, ok := f.changed[name]; ok || f.void {
		return u
	}
	return f.store.users[name]
}

// before returns the present state of the user that is about to be defined; nil = there is none.
func (f *following) before(name string) *user {
	if _, ok := f.changed[name]; ok || !f.void {
		return f.user(name)
	}
	u := f.store.users[name]
	if u == nil {
		return nil
	}
	same := *u
	same.grants, same.topics = nil, nil
	return &same
}

func (f *following) all() iter.Seq2[string, *user] {
	return func(yield func(string, *user) bool) {
		for name, u := range f.changed {
			if u != nil && !yield(name, u) {
				return
			}
		}
		if f.void {
			return
		}
		for name, u := range f.store.users {
			if _, ok := f.changed[name]; !ok && !yield(name, u) {
				return
			}
		}
	}
}

func (f *following) set(name string, u *user) {
	if f.changed == nil {
		f.changed = map[string]*user{}
	}
	f.changed[name] = u
}

// put applies the changes to the store, and returns the users whose connections must be closed.
func (f *following) put() (gone []string) {
	users := f.store.users
	if f.void {
		for name := range users {
			if f.changed[name] == nil {
				f.set(name, nil)
			}
		}
	}
	for name, u := range f.changed {
		if was := users[name]; was != nil && (u == nil || u.generation != was.generation) {
			gone = append(gone, name)
		}
		users[name] = u
		if u == nil {
			delete(users, name)
		}
	}
	f.store.version.Add(1)
	return gone
}

// apply applies the next definition.
func (f *following) apply(def *definition.Definition) (err error) {
	switch def.Op {
	case opNoUsers:
		f.void, f.changed = true, nil
	case opSetUser:
		return f.applyAccount(def)
	case opDeleteUser:
		var name string
		if definition.Read(def, fieldName, &name, &err); err == nil {
			f.set(name, nil)
		}
	case opForgetVHost:
		var vhost string
		if definition.Read(def, fieldVHost, &vhost, &err); err == nil {
			for name, u := range withoutVHost(f.all(), vhost) {
				f.set(name, u)
			}
		}
	case opSetPermissions, opClearPermissions, opSetTopics, opClearTopics:
		return f.applyPermissions(def)
	default:
		return def.Unknown()
	}
	return err
}

func (f *following) applyAccount(def *definition.Definition) (err error) {
	var a Account
	var tags amqp.Array
	var algorithm string
	var password []byte
	var connections, channels int64
	definition.Read(def, fieldName, &a.Name, &err)
	definition.Read(def, fieldTags, &tags, &err)
	definition.Read(def, fieldMaxConnections, &connections, &err)
	definition.Read(def, fieldMaxChannels, &channels, &err)
	definition.Read(def, fieldAlgorithm, &algorithm, &err)
	definition.Read(def, fieldPassword, &password, &err)
	for _, raw := range tags {
		tag, _ := raw.(string)
		a.Tags = append(a.Tags, tag)
	}
	a.Limits = Limits{Connections: hook.LimitOf(connections), Channels: hook.LimitOf(channels)}
	if err == nil && algorithm != "" {
		a.Password, err = hashOf(Algorithm(algorithm), password)
	}
	if err == nil {
		err = a.Check()
	}
	if err == nil {
		f.set(a.Name, f.store.with(f.before(a.Name), a))
	}
	return err
}

// applyPermissions applies a definition of one user's permissions.
func (f *following) applyPermissions(def *definition.Definition) (err error) {
	var name, vhost, exchange string
	definition.Read(def, fieldUser, &name, &err)
	definition.Read(def, fieldVHost, &vhost, &err)
	if def.Op == opSetTopics || def.Op == opClearTopics {
		definition.Read(def, fieldExchange, &exchange, &err)
	}
	u := f.user(name)
	if u == nil && err == nil {
		err = fmt.Errorf("definition %q: there is no user %q", def.Op, name)
	}
	if err != nil {
		return err
	}
	changed := *u
	switch def.Op {
	case opSetPermissions:
		g := Grant{User: name, VHost: vhost}
		definition.Read(def, fieldConfigure, &g.Configure, &err)
		definition.Read(def, fieldWrite, &g.Write, &err)
		definition.Read(def, fieldRead, &g.Read, &err)
		if err == nil {
			var compiled compiledGrant
			compiled, err = g.compile(stored)
			changed.grants = with(changed.grants, vhost, compiled)
		}
	case opSetTopics:
		g := TopicGrant{User: name, VHost: vhost, TopicPermissions: TopicPermissions{Exchange: exchange}}
		definition.Read(def, fieldWrite, &g.Write, &err)
		definition.Read(def, fieldRead, &g.Read, &err)
		if err == nil {
			var compiled compiledTopicGrant
			compiled, err = g.compile(stored)
			changed.topics = with(changed.topics, g.key(), compiled)
		}
	case opClearPermissions:
		changed.revoke(vhost)
	case opClearTopics:
		changed.revokeTopics(func(k topicKey) bool { return k == topicKey{vhost, exchange} })
	}
	if err == nil {
		f.set(name, &changed)
	}
	return err
}
