package mgmt

import (
	"errors"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/sdk/hook"
)

func (a *API) listUsers(c *request) error { return listAccounts(c, a.users().List()) }

func listAccounts(c *request, all []auth.Account) error {
	return list(c, listing[auth.Account]{items: all, object: describeUser, name: func(u auth.Account) string { return u.Name }})
}

func describeUser(u auth.Account) object {
	hash, algorithm := u.Password.Encode()
	return object{
		{"name", u.Name},
		{"password_hash", hash},
		{"hashing_algorithm", algorithm},
		{"tags", tagList(u.Tags)},
		{"limits", userLimitsObject(&u)},
	}
}

func userLimitsObject(u *auth.Account) object {
	return limitsObject(limit{limitConnections, u.Limits.Connections}, limit{limitChannels, u.Limits.Channels})
}

func (a *API) usersWithoutPermissions(c *request) error {
	granted := map[string]bool{}
	for _, g := range a.users().Grants() {
		granted[g.User] = true
	}
	var all []auth.Account
	for _, u := range a.users().List() {
		if !granted[u.Name] {
			all = append(all, u)
		}
	}
	return listAccounts(c, all)
}

// account finds the user that the path names.
func (c *request) account() (auth.Account, error) {
	u, ok := c.api.users().Lookup(c.vars["user"])
	if !ok {
		return u, errNotFound
	}
	return u, nil
}

func (*API) oneUser(c *request) error {
	u, err := c.account()
	if err != nil {
		return err
	}
	return c.reply(describeUser(u))
}

func (a *API) putUser(c *request) error {
	f, err := c.body()
	if err != nil {
		return err
	}
	old, _ := a.users().Lookup(c.vars["user"])
	u, err := f.account(c.vars["user"], a.users().Hash)
	if err != nil {
		return err
	}
	u.Limits = old.Limits
	fresh, err := a.users().Set(u)
	if err != nil {
		return err
	}
	return c.created(fresh)
}

// account reads a user without limits. The tags must be there; of password and password_hash there may be one, and without
// any the user cannot log in with a password.
func (f fields) account(name string, hash func(password string) (auth.Hash, error)) (u auth.Account, err error) {
	u.Name = name
	if f["tags"] == nil {
		return u, badRequest("tags_not_present")
	}
	if u.Tags, err = f.tags("tags"); err != nil {
		return u, err
	}
	if f["password"] != nil && f["password_hash"] != nil {
		return u, badRequest("both_password_and_password_hash_are_provided")
	}
	if err := u.Check(); err != nil {
		return u, err
	}
	password, err := f.text("password")
	if err != nil {
		return u, err
	}
	if f["password"] != nil {
		u.Password, err = hash(password)
		return u, err
	}
	u.Password, err = f.passwordHash()
	return u, err
}

func (f fields) passwordHash() (auth.Hash, error) {
	encoded, err := f.text("password_hash")
	if err != nil {
		return auth.Hash{}, err
	}
	algorithm, err := f.text("hashing_algorithm")
	if err != nil {
		return auth.Hash{}, err
	}
	return auth.ParseHash(encoded, algorithm)
}

func (a *API) deleteUser(c *request) error {
	existed, err := a.users().Delete(c.vars["user"])
	if err != nil {
		return err
	}
	return c.removed(existed)
}

func (a *API) deleteUsers(c *request) error {
	f, err := c.body()
	if err != nil {
		return err
	}
	if err := f.need("users"); err != nil {
		return err
	}
	names, ok := f["users"].([]any)
	if !ok {
		return badTerm("not_list", "users")
	}
	for _, it := range names {
		name, _ := it.(string)
		if _, ok := a.users().Lookup(name); !ok {
			return noSuchUser(name)
		}
	}
	for _, it := range names {
		if _, err := a.users().Delete(it.(string)); err != nil {
			return err
		}
	}
	return c.done()
}

func noSuchUser(name string) error { return badTerm("no_such_user", name) }

// The limits of users.

func (a *API) userLimits(c *request) error { return listUserLimits(c, a.users().List()) }

func listUserLimits(c *request, all []auth.Account) error {
	return listLimits(c, "user", all, func(u auth.Account) (string, object) { return u.Name, userLimitsObject(&u) })
}

func (*API) limitsOfUser(c *request) error {
	u, err := c.account()
	if err != nil {
		return err
	}
	return listUserLimits(c, []auth.Account{u})
}

func (a *API) putUserLimit(c *request) error {
	u, err := c.account()
	if err != nil {
		return noSuchUser(c.vars["user"])
	}
	const unknown, wrong = "Unrecognised terms [{<<\"%s\">>,%d}] in user-limits", "%s should be a number, actually was %s"
	if err := c.readLimit(unknown, wrong, map[string]*hook.Limit{
		limitConnections: &u.Limits.Connections, limitChannels: &u.Limits.Channels,
	}); err != nil {
		return err
	}
	return c.limitUser(u)
}

func (c *request) limitUser(u auth.Account) error {
	if err := c.api.users().SetLimits(u.Name, u.Limits); err != nil {
		return err
	}
	return c.done()
}

func (*API) deleteUserLimit(c *request) error {
	u, err := c.account()
	if err != nil {
		return err
	}
	switch c.vars["limit"] {
	case limitConnections:
		u.Limits.Connections = 0
	case limitChannels:
		u.Limits.Channels = 0
	}
	return c.limitUser(u)
}

// ofMissing words what RabbitMQ says when permissions are given to nobody, or nowhere.
func ofMissing(err error) error {
	if errors.Is(err, auth.ErrNoUser) || errors.Is(err, auth.ErrNoVHost) {
		return errNobodyOrNowhere
	}
	return err
}

var errNobodyOrNowhere = badRequest("vhost_or_user_not_found")
