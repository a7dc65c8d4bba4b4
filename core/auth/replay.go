package auth

import (
	"fmt"
	"maps"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/definition"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Apply replays the next definition of users. The store must not be in use yet. Nothing is written.
func (s *Store) Apply(def *definition.Definition) (err error) {
	switch def.Op {
	case opNoUsers:
		clear(s.users)
	case opSetUser:
		return s.applyAccount(def)
	case opDeleteUser:
		var name string
		definition.Read(def, fieldName, &name, &err)
		delete(s.users, name)
	case opForgetVHost:
		var vhost string
		definition.Read(def, fieldVHost, &vhost, &err)
		maps.Copy(s.users, s.withoutVHost(vhost))
	case opSetPermissions, opClearPermissions, opSetTopics, opClearTopics:
		return s.applyPermissions(def)
	default:
		return def.Unknown()
	}
	return err
}

func (s *Store) applyAccount(def *definition.Definition) (err error) {
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
		s.users[a.Name] = s.with(a)
	}
	return err
}

// applyPermissions replays a definition about what one user may do.
func (s *Store) applyPermissions(def *definition.Definition) (err error) {
	var name, vhost, exchange string
	definition.Read(def, fieldUser, &name, &err)
	definition.Read(def, fieldVHost, &vhost, &err)
	if def.Op == opSetTopics || def.Op == opClearTopics {
		definition.Read(def, fieldExchange, &exchange, &err)
	}
	u := s.users[name]
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
			compiled, err = g.compile()
			changed.grants = with(changed.grants, vhost, compiled)
		}
	case opSetTopics:
		g := TopicGrant{User: name, VHost: vhost, TopicPermissions: TopicPermissions{Exchange: exchange}}
		definition.Read(def, fieldWrite, &g.Write, &err)
		definition.Read(def, fieldRead, &g.Read, &err)
		if err == nil {
			var compiled compiledTopicGrant
			compiled, err = g.compile()
			changed.topics = with(changed.topics, g.key(), compiled)
		}
	case opClearPermissions:
		changed.revoke(vhost)
	case opClearTopics:
		changed.revokeTopics(func(k topicKey) bool { return k == topicKey{vhost, exchange} })
	}
	if err == nil {
		s.users[name] = &changed
	}
	return err
}
