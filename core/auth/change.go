package auth

import (
	"fmt"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/definition"
)

// change is a change of users, and the definitions that record it.
type change struct {
	users       map[string]*user // the new state of each; nil = deleted
	definitions []byte
}

// put sets the new state of the user called name; nil = the user is deleted.
func (c *change) put(name string, u *user, defs ...amqp.Table) {
	if c.users == nil {
		c.users = map[string]*user{}
	}
	c.users[name] = u
	for _, def := range defs {
		c.definitions = amqp.AppendTable(c.definitions, def)
	}
}

// change makes a change after it has become durable, so that no client relies on a change that may be lost. plan runs with changing
// and mu held. If plan adds no definitions, nothing is written. Changes are made one at a time.
func (s *Store) change(plan func(*change) error) error {
	s.plan()
	defer s.changing.Unlock()
	var c change
	err := s.reading(func() error { return plan(&c) })
	if err != nil || len(c.definitions) == 0 {
		return s.confirm(err)
	}
	if log := s.options.Definitions; log != nil {
		log.Write(c.definitions)
	}
	if err := s.waitDurable(); err != nil {
		return err
	}
	if s.options.Follows == nil {
		s.apply(&c)
	}
	s.compact()
	return nil
}

// confirm returns the result of a plan that changes nothing, or an error if the plan may
// have read outdated users. The caller holds changing.
func (s *Store) confirm(result error) error {
	if s.options.Follows != nil {
		if err := s.waitDurable(); err != nil {
			return err
		}
	}
	return result
}

// apply puts a change in force. The caller holds changing.
func (s *Store) apply(c *change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, u := range c.users {
		if u == nil {
			delete(s.users, name)
			continue
		}
		s.users[name] = u
	}
	s.version.Add(1)
}

func (s *Store) waitDurable() error {
	if s.options.Definitions == nil {
		return nil
	}
	if err := s.options.Definitions.WaitDurable(); err != nil {
		return fmt.Errorf("users: definitions: %w", err)
	}
	return nil
}

// CompactDefinitions rewrites the definitions of all users if the log asks for it.
func (s *Store) CompactDefinitions() {
	s.plan()
	defer s.changing.Unlock()
	s.compact()
}

// reading calls fn with mu held, and releases mu even if fn panics: a panic in a request does not end the broker.
func (s *Store) reading(fn func() error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return fn()
}

// plan takes the lock under which changes are planned.
func (s *Store) plan() {
	s.changing.Lock()
	if s.options.Follows != nil {
		s.options.Follows()
	}
}

// compact is CompactDefinitions for a caller that holds changing.
func (s *Store) compact() {
	if log := s.options.Definitions; log != nil && log.NeedsCompaction() {
		log.Rewrite(definition.Parts(s.definitions))
	}
}
