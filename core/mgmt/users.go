package mgmt

import (
	"slices"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/mgmt/definitions"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/sdk/hook"
)

// userHandlers show and change users.
type userHandlers struct{ store *store.Store }

func (a *userHandlers) list(c *request) error { return listAccounts(c, a.store.Users().List()) }

func listAccounts(c *request, all []auth.Account) error {
	return list(c, listing[auth.Account]{items: all, object: definitions.User, name: func(u auth.Account) string { return u.Name }})
}

func (a *userHandlers) usersWithoutPermissions(c *request) error {
	granted := map[string]bool{}
	for _, g := range a.store.Users().Grants() {
		granted[g.User] = true
	}
	return listAccounts(c, slices.DeleteFunc(a.store.Users().List(), func(u auth.Account) bool { return granted[u.Name] }))
}

// account finds the user that the path names.
func (c *request) account() (auth.Account, error) {
	u, ok := c.api.users().Lookup(c.vars["user"])
	if !ok {
		return u, errNotFound
	}
	return u, nil
}

func oneUser(c *request) error {
	u, err := c.account()
	if err != nil {
		return err
	}
	return c.reply(definitions.User(u))
}

func (a *userHandlers) put(c *request) error {
	r := c.body()
	u := definitions.ReadUser(r, c.vars["user"], a.store.Users().Hash)
	if err := r.Err(); err != nil {
		return err
	}
	return c.created(a.store.Users().Put(u))
}

func (a *userHandlers) delete(c *request) error {
	return c.removed(a.store.Users().Delete(c.vars["user"]))
}

func (a *userHandlers) deleteUsers(c *request) error {
	r := c.body()
	r.Need("users")
	names, ok := r.Value("users").([]any)
	if !ok {
		r.Fail(jsonobj.Pair("not_list", "users"))
	}
	for _, it := range names {
		name, _ := it.(string)
		if _, ok := a.store.Users().Lookup(name); !ok {
			r.Fail(noSuchUser(name))
		}
	}
	if err := r.Err(); err != nil {
		return err
	}
	for i, it := range names {
		_, err := a.store.Users().Delete(it.(string))
		if err != nil && i > 0 {
			err = begun(err)
		}
		if err != nil {
			return err
		}
	}
	return c.done(nil)
}

func noSuchUser(name string) error { return jsonobj.Pair("no_such_user", name) }

// The limits of users.

func (a *userHandlers) userLimits(c *request) error { return listUserLimits(c, a.store.Users().List()) }

func listUserLimits(c *request, all []auth.Account) error {
	return listLimits(c, "user", all, func(u auth.Account) (string, object) { return u.Name, definitions.UserLimits(&u) })
}

// listLimits lists the limits of everything that has any.
func listLimits[T any](c *request, what string, items []T, limits func(T) (name string, o object)) error {
	var all []object
	for _, it := range items {
		if name, o := limits(it); len(o) > 0 {
			all = append(all, object{{what, name}, {"value", o}})
		}
	}
	return listObjects(c, all)
}

func limitsOfUser(c *request) error {
	u, err := c.account()
	if err != nil {
		return err
	}
	return listUserLimits(c, []auth.Account{u})
}

func userLimitsByName(l *auth.Limits) map[string]*hook.Limit {
	return map[string]*hook.Limit{definitions.MaxConnections: &l.Connections, definitions.MaxChannels: &l.Channels}
}

func (a *userHandlers) putUserLimit(c *request) error {
	if _, err := c.account(); err != nil {
		return noSuchUser(c.vars["user"])
	}
	const unknown, wrong = "Unrecognised terms [{<<\"%s\">>,%d}] in user-limits", "%s should be a number, actually was %s"
	limit, err := readLimit(c, unknown, wrong, userLimitsByName(&auth.Limits{}))
	if err != nil {
		return err
	}
	return c.done(a.store.Users().ChangeLimits(c.vars["user"], func(l *auth.Limits) { *userLimitsByName(l)[c.vars["limit"]] = limit }))
}

func (a *userHandlers) deleteUserLimit(c *request) error {
	return c.done(a.store.Users().ChangeLimits(c.vars["user"], func(l *auth.Limits) { clearLimit(c, userLimitsByName(l)) }))
}

// attempts counts logins by protocol. Protocols without any are left out.
func (a *userHandlers) attempts(c *request) error {
	sasl, basic := a.store.Users().Attempts()
	var all []object
	for _, p := range [...]struct {
		name string
		auth.Attempts
	}{{"amqp091", sasl}, {"http", basic}} {
		if n := p.Succeeded + p.Failed; n > 0 {
			all = append(all, object{
				{"protocol", p.name}, {"auth_attempts", n}, {"auth_attempts_failed", p.Failed}, {"auth_attempts_succeeded", p.Succeeded},
			})
		}
	}
	return listObjects(c, all)
}
