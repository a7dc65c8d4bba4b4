package mgmt

import (
	"cmp"
	"errors"
	"slices"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/mgmt/definitions"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
)

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
