package mgmt

import (
	"cmp"
	"slices"

	"github.com/curfewmq/curfew/core/auth"
)

func fullGrant(user, vhost string) auth.Grant {
	return auth.Grant{User: user, VHost: vhost, Permissions: auth.Permissions{Configure: ".*", Write: ".*", Read: ".*"}}
}

func (a *API) permissions(c *request) error {
	return a.listGrants(c, func(*auth.Grant) bool { return true })
}

func (a *API) permissionsIn(c *request) error {
	return a.listGrants(c, func(g *auth.Grant) bool { return g.VHost == c.vhost.Name() })
}

func (a *API) permissionsOf(c *request) error {
	if _, err := c.account(); err != nil {
		return err
	}
	return a.listGrants(c, func(g *auth.Grant) bool { return g.User == c.vars["user"] })
}

func (a *API) listGrants(c *request, wanted func(*auth.Grant) bool) error {
	all := slices.DeleteFunc(a.users().Grants(), func(g auth.Grant) bool { return !wanted(&g) })
	slices.SortFunc(all, func(x, y auth.Grant) int { return cmp.Or(cmp.Compare(x.VHost, y.VHost), cmp.Compare(x.User, y.User)) })
	return list(c, listing[auth.Grant]{items: all, object: describeGrant, name: func(g auth.Grant) string { return g.User }})
}

func describeGrant(g auth.Grant) object {
	return object{{"user", g.User}, {"vhost", g.VHost}, {"configure", g.Configure}, {"write", g.Write}, {"read", g.Read}}
}

func (a *API) onePermission(c *request) error {
	for _, g := range a.users().Grants() {
		if g.User == c.vars["user"] && g.VHost == c.vhost.Name() {
			return c.reply(describeGrant(g))
		}
	}
	return errNotFound
}

func (a *API) putPermission(c *request) error {
	f, err := c.body()
	if err != nil {
		return err
	}
	g, err := f.grant(c.vars["user"], c.vars["vhost"])
	if err != nil {
		return err
	}
	fresh, err := a.users().SetPermissions(g)
	if err != nil {
		return ofMissing(err)
	}
	return c.created(fresh)
}

// grant reads permissions.
func (f fields) grant(user, vhost string) (g auth.Grant, err error) {
	g.User, g.VHost = user, vhost
	if err := f.need("configure", "write", "read"); err != nil {
		return g, err
	}
	if g.Configure, err = f.text("configure"); err != nil {
		return g, err
	}
	if g.Write, err = f.text("write"); err != nil {
		return g, err
	}
	if g.Read, err = f.text("read"); err != nil {
		return g, err
	}
	return g, g.Check()
}

func (a *API) deletePermission(c *request) error {
	existed, err := a.users().ClearPermissions(c.vars["user"], c.vhost.Name())
	if err != nil {
		return err
	}
	return c.removed(existed)
}

// Topic permissions.

func (a *API) topicPermissions(c *request) error {
	return a.listTopics(c, func(*auth.TopicGrant) bool { return true })
}

func (a *API) topicPermissionsIn(c *request) error {
	return a.listTopics(c, func(g *auth.TopicGrant) bool { return g.VHost == c.vhost.Name() })
}

func (a *API) topicPermissionsOf(c *request) error {
	if _, err := c.account(); err != nil {
		return err
	}
	return a.listTopics(c, func(g *auth.TopicGrant) bool { return g.User == c.vars["user"] })
}

func (a *API) topicsOfIn(c *request) []auth.TopicGrant {
	return slices.DeleteFunc(a.users().TopicGrants(), func(g auth.TopicGrant) bool {
		return g.User != c.vars["user"] || g.VHost != c.vhost.Name()
	})
}

func (a *API) topicPermissionsOfIn(c *request) error {
	all := a.topicsOfIn(c)
	if len(all) == 0 {
		return errNotFound
	}
	return list(c, listing[auth.TopicGrant]{items: all, object: describeTopic})
}

func (a *API) listTopics(c *request, wanted func(*auth.TopicGrant) bool) error {
	all := slices.DeleteFunc(a.users().TopicGrants(), func(g auth.TopicGrant) bool { return !wanted(&g) })
	return list(c, listing[auth.TopicGrant]{items: all, object: describeTopic, name: func(g auth.TopicGrant) string { return g.User }})
}

func describeTopic(g auth.TopicGrant) object {
	return object{{"user", g.User}, {"vhost", g.VHost}, {"exchange", g.Exchange}, {"write", g.Write}, {"read", g.Read}}
}

func (a *API) putTopicPermission(c *request) error {
	f, err := c.body()
	if err != nil {
		return err
	}
	g, err := f.topicGrant(c.vars["user"], c.vars["vhost"])
	if err != nil {
		return err
	}
	fresh, err := a.users().SetTopicPermissions(g)
	if err != nil {
		return ofMissing(err)
	}
	return c.created(fresh)
}

// topicGrant reads topic permissions.
func (f fields) topicGrant(user, vhost string) (g auth.TopicGrant, err error) {
	g.User, g.VHost = user, vhost
	if err := f.need("exchange", "write", "read"); err != nil {
		return g, err
	}
	if g.Exchange, err = f.name("exchange"); err != nil {
		return g, err
	}
	if g.Write, err = f.text("write"); err != nil {
		return g, err
	}
	if g.Read, err = f.text("read"); err != nil {
		return g, err
	}
	return g, g.Check()
}

// deleteTopicPermissions takes away those for one exchange, or all if the path names none.
func (a *API) deleteTopicPermissions(c *request) error {
	existed, err := a.users().ClearTopicPermissions(c.vars["user"], c.vhost.Name(), c.vars["exchange"])
	if err != nil {
		return err
	}
	return c.removed(existed)
}
