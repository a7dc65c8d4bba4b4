package mgmt

import (
	"cmp"
	"errors"
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

// grants are the handlers for one kind of permissions, each of which belongs to a user and a vhost.
type grants[G any] struct {
	all    func(*auth.Store) []G
	ends   func(G) (user, vhost string)
	object func(G) object
	read   func(r *jsonobj.Reader, user, vhost string) G
	set    func(*auth.Store, G) (created bool, err error)
}

var permissions = grants[auth.Grant]{
	all: func(s *auth.Store) []auth.Grant {
		return slices.SortedFunc(slices.Values(s.Grants()), func(x, y auth.Grant) int {
			return cmp.Or(cmp.Compare(x.VHost, y.VHost), cmp.Compare(x.User, y.User))
		})
	},
	ends:   func(g auth.Grant) (user, vhost string) { return g.User, g.VHost },
	object: definitions.Permissions, read: definitions.ReadPermissions, set: (*auth.Store).SetPermissions,
}

var topicPermissions = grants[auth.TopicGrant]{
	all:    (*auth.Store).TopicGrants,
	ends:   func(g auth.TopicGrant) (user, vhost string) { return g.User, g.VHost },
	object: definitions.TopicPermissions, read: definitions.ReadTopicPermissions, set: (*auth.Store).SetTopicPermissions,
}

// named returns the permissions of the user and in the vhost that the path names, if it names them.
func (p *grants[G]) named(c *request) []G {
	name, byUser := c.vars["user"]
	in, inOne := c.vars["vhost"] // which may live at another node
	return slices.DeleteFunc(p.all(c.api.users()), func(g G) bool {
		user, vhost := p.ends(g)
		return byUser && user != name || inOne && vhost != in
	})
}

func (p *grants[G]) list(c *request) error {
	return list(c, listing[G]{items: p.named(c), object: p.object, name: func(g G) string { user, _ := p.ends(g); return user }})
}

func (p *grants[G]) listOfUser(c *request) error {
	if _, err := c.account(); err != nil {
		return err
	}
	return p.list(c)
}

// listOne lists the permissions of a user in a vhost. It fails if there are none.
func (p *grants[G]) listOne(c *request) error {
	if len(p.named(c)) == 0 {
		return errNotFound
	}
	return p.list(c)
}

func (p *grants[G]) one(c *request) error {
	own := p.named(c)
	if len(own) == 0 {
		return errNotFound
	}
	return c.reply(p.object(own[0]))
}

func (p *grants[G]) put(c *request) error {
	r := c.body()
	g := p.read(r, c.vars["user"], c.vars["vhost"])
	if err := r.Err(); err != nil {
		return err
	}
	created, err := p.set(c.api.users(), g)
	if errors.Is(err, auth.ErrNoUser) || errors.Is(err, auth.ErrNoVHost) {
		err = errNoUserOrVHost
	}
	return c.created(created, err)
}

var errNoUserOrVHost = badRequest("vhost_or_user_not_found") // RabbitMQ does not say which

func (a *userHandlers) deletePermission(c *request) error {
	return c.removed(a.store.Users().ClearPermissions(c.vars["user"], c.vars["vhost"]))
}

// deleteTopicPermissions takes away the topic permissions for one exchange, or all if the path names none.
func (a *userHandlers) deleteTopicPermissions(c *request) error {
	return c.removed(a.store.Users().ClearTopicPermissions(c.vars["user"], c.vars["vhost"], c.vars["exchange"]))
}
