package auth

import (
	"slices"

	"github.com/curfewmq/curfew/core/amqp"
)

// Add adds a user with permissions, all or nothing. created is false if a user of that name exists. The vhosts must exist.
func (s *Store) Add(a Account, grants []Grant) (created bool, err error) {
	if err := a.Check(); err != nil {
		return false, err
	}
	a.Tags = slices.Clone(a.Tags)
	err = s.change(func(c *change) error {
		if s.users[a.Name] != nil {
			return nil
		}
		u, defs := s.with(nil, a), []amqp.Table{defineAccount(&a)}
		for _, g := range grants {
			g.User = a.Name
			compiled, err := s.compileFor(&g)
			if err != nil {
				return err
			}
			u.grants = with(u.grants, g.VHost, compiled)
			defs = append(defs, definePermissions(&g))
		}
		c.put(a.Name, u, defs...)
		created = true
		return nil
	})
	return created && err == nil, err
}

// compileFor compiles a grant for a vhost that exists.
func (s *Store) compileFor(g *Grant) (compiledGrant, error) {
	if exists := s.options.VHost; exists != nil && !exists(g.VHost) {
		return compiledGrant{}, errNoVHost(g.VHost)
	}
	return g.compile(fresh)
}
