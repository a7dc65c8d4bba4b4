package auth

import (
	"fmt"
	"maps"

	"github.com/curfewmq/curfew/core/amqp"
)

// Apply takes in the next definition of users. Nobody else may use the store yet. Nothing is written.
func (s *Store) Apply(op string, fields amqp.Table) error {
	r := reader{op: op, fields: fields}
	switch op {
	case opNoUsers:
		clear(s.users)
	case opSetUser:
		s.applyUser(&r)
	case opDeleteUser:
		delete(s.users, read[string](&r, fieldName))
	case opForgetVHost:
		maps.Copy(s.users, s.withoutVHost(read[string](&r, fieldVHost)))
	case opSetPermissions, opClearPermissions, opSetTopics, opClearTopics:
		s.applyTo(&r)
	default:
		return fmt.Errorf("definition %q: is unknown", op)
	}
	return r.err
}

func (s *Store) applyUser(r *reader) {
	a := r.account()
	if r.err == nil {
		r.err = a.Check()
	}
	if r.err == nil {
		s.users[a.Name] = s.with(a)
	}
}

// applyTo applies what is about a user.
func (s *Store) applyTo(r *reader) {
	name := read[string](r, fieldUser)
	u := s.users[name]
	if u == nil && r.err == nil {
		r.err = fmt.Errorf("definition %q: there is no user %q", r.op, name)
	}
	if r.err != nil {
		return
	}
	changed := *u
	switch r.op {
	case opSetPermissions:
		changed.applyGrant(r)
	case opClearPermissions:
		changed.dropGrant(read[string](r, fieldVHost))
	case opSetTopics:
		changed.applyTopics(r)
	case opClearTopics:
		gone := topicPlace{read[string](r, fieldVHost), read[string](r, fieldExchange)}
		changed.dropTopics(func(p topicPlace) bool { return p == gone })
	}
	s.users[name] = &changed
}

func (u *user) applyGrant(r *reader) {
	g := r.grant()
	if r.err != nil {
		return
	}
	var compiled grant
	if compiled, r.err = g.compile(); r.err == nil {
		u.grants = with(u.grants, g.VHost, compiled)
	}
}

func (u *user) applyTopics(r *reader) {
	g := r.topicGrant()
	if r.err != nil {
		return
	}
	var compiled topicGrant
	if compiled, r.err = g.compile(); r.err == nil {
		u.topics = with(u.topics, g.place(), compiled)
	}
}
