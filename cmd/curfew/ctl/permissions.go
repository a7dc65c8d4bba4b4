package ctl

import (
	"context"
	"errors"
	"net/http"
)

func permissionCommands() []command {
	const patterns = "Each of the three is a regular expression for names; '' permits nothing, '.*' everything."
	return []command{
		{
			name: "set_permissions", operands: "<username> <configure> <write> <read>", least: 4, most: 4, scoped: true, run: setPermissions,
			about: "sets what a user may do in a virtual host", more: patterns,
		},
		{
			name: "clear_permissions", operands: "<username>", least: 1, most: 1, scoped: true, run: clearPermissions,
			about: "takes a user's permissions in a virtual host away",
		},
		{
			name: "list_permissions", scoped: true, run: listPermissions,
			about: "lists permissions in a virtual host",
		},
		{
			name: "list_user_permissions", operands: "<username>", least: 1, most: 1, run: listUserPermissions,
			about: "lists a user's permissions in all virtual hosts",
		},
		{
			name: "set_topic_permissions", operands: "<username> <exchange> <write> <read>", least: 4, most: 4, scoped: true, run: setTopicPermissions,
			about: "sets which routing keys a user may publish and bind with on a topic exchange",
		},
		{
			name: "clear_topic_permissions", operands: "<username> [<exchange>]", least: 1, most: 2, scoped: true, run: clearTopicPermissions,
			about: "takes a user's topic permissions away, on one exchange or on all",
		},
		{
			name: "list_topic_permissions", scoped: true, run: listTopicPermissions,
			about: "lists topic permissions in a virtual host",
		},
		{
			name: "list_user_topic_permissions", operands: "<username>", least: 1, most: 1, run: listUserTopicPermissions,
			about: "lists a user's topic permissions in all virtual hosts",
		},
	}
}

// permitting changes what is permitted to the user in the first operand. When the API refuses, the reason may be that there is no
// such user or virtual host, which it words in several ways.
func (c *call) permitting(ctx context.Context, change func() error) error {
	err := change()
	if _, ok := errors.AsType[*refusal](err); !ok {
		return err
	}
	if _, e := c.user(ctx, c.operands[0]); errors.Is(e, errNoUser) {
		return failed(noUser, "User %s does not exist", c.operands[0])
	}
	if c.needVHost(ctx) != nil {
		return failed(unavailable, "Virtual host %s does not exist", c.vhost())
	}
	return err
}

func setPermissions(ctx context.Context, c *call) error {
	user := c.operands[0]
	c.say("Setting permissions for user \"%s\" in vhost \"%s\" ...", user, c.vhost())
	body := map[string]string{"configure": c.operands[1], "write": c.operands[2], "read": c.operands[3]}
	if err := c.permitting(ctx, func() error { return c.api.put(ctx, path("permissions", c.vhost(), user), body) }); err != nil {
		return err
	}
	return c.done()
}

func clearPermissions(ctx context.Context, c *call) error {
	user := c.operands[0]
	c.say("Clearing permissions for user \"%s\" in vhost \"%s\" ...", user, c.vhost())
	return c.clearing(ctx, []string{"permissions", c.vhost(), user})
}

// clearing removes permissions. It is no error when there are none.
func (c *call) clearing(ctx context.Context, parts []string) error {
	err := c.permitting(ctx, func() error { return c.api.remove(ctx, path(parts...)) })
	if err != nil && !isRefusal(err, http.StatusNotFound) {
		return err
	}
	return c.done()
}

func listPermissions(ctx context.Context, c *call) error {
	c.say("Listing permissions for vhost \"%s\" ...", c.vhost())
	var all []object
	if err := c.api.get(ctx, path("vhosts", c.vhost(), "permissions"), &all); err != nil {
		return instead(err, noVHost(c.vhost()))
	}
	return c.showAll(all, column{name: "user"}, column{name: "configure"}, column{name: "write"}, column{name: "read"})
}

func listUserPermissions(ctx context.Context, c *call) error {
	user := c.operands[0]
	c.say("Listing permissions for user \"%s\" ...", user)
	all, err := c.ofUser(ctx, "permissions")
	if err != nil {
		return err
	}
	return c.showAll(all, column{name: "vhost"}, column{name: "configure"}, column{name: "write"}, column{name: "read"})
}

// ofUser lists what of a kind is the user's in the first operand. An empty list may mean that there is no such user.
func (c *call) ofUser(ctx context.Context, kind string) ([]object, error) {
	var all []object
	err := c.api.get(ctx, path("users", c.operands[0], kind), &all)
	if err == nil && len(all) == 0 {
		_, err = c.user(ctx, c.operands[0])
	}
	if errors.Is(err, errNoUser) {
		err = noSuchUser(c.operands[0])
	}
	return all, instead(err, noSuchUser(c.operands[0]))
}

func setTopicPermissions(ctx context.Context, c *call) error {
	user, exchange := c.operands[0], c.operands[1]
	c.say("Setting topic permissions on \"%s\" for user \"%s\" in vhost \"%s\" ...", exchange, user, c.vhost())
	body := map[string]string{"exchange": exchange, "write": c.operands[2], "read": c.operands[3]}
	if err := c.permitting(ctx, func() error { return c.api.put(ctx, path("topic-permissions", c.vhost(), user), body) }); err != nil {
		return err
	}
	return c.done()
}

func clearTopicPermissions(ctx context.Context, c *call) error {
	user := c.operands[0]
	parts := []string{"topic-permissions", c.vhost(), user}
	if len(c.operands) == 2 {
		parts = append(parts, c.operands[1])
		c.say("Clearing topic permissions on \"%s\" for user \"%s\" in vhost \"%s\" ...", c.operands[1], user, c.vhost())
	} else {
		c.say("Clearing topic permissions for user \"%s\" in vhost \"%s\" ...", user, c.vhost())
	}
	return c.clearing(ctx, parts)
}

func listTopicPermissions(ctx context.Context, c *call) error {
	c.say("Listing topic permissions for vhost \"%s\" ...", c.vhost())
	var all []object
	if err := c.api.get(ctx, path("vhosts", c.vhost(), "topic-permissions"), &all); err != nil {
		return instead(err, noVHost(c.vhost()))
	}
	return c.showAll(all, column{name: "user"}, column{name: "exchange"}, column{name: "write"}, column{name: "read"})
}

// listUserTopicPermissions prints no header, because rabbitmqctl prints none.
func listUserTopicPermissions(ctx context.Context, c *call) error {
	user := c.operands[0]
	c.say("Listing topic permissions for user \"%s\" ...", user)
	all, err := c.ofUser(ctx, "topic-permissions")
	if err != nil {
		return err
	}
	columns := []column{{name: "vhost"}, {name: "exchange"}, {name: "write"}, {name: "read"}}
	cellsOf := make([][]cell, len(all))
	for i, o := range all {
		cellsOf[i] = cells(o, columns)
	}
	t := whole(titles(columns), cellsOf)
	t.bare = true
	return c.print(t)
}
