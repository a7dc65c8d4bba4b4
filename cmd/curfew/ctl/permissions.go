package ctl

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

func permissionCommands() []command {
	return []command{
		{
			name: "set_permissions", operands: "<username> <configure> <write> <read>", scoped: true, run: setPermissions,
			about: "sets a user's permissions in a virtual host",
			more:  "Each of the three is a regular expression for names; '' permits nothing, '.*' everything.",
		},
		{
			name: "set_permissions_globally", operands: "<username> <configure> <write> <read>", run: setAllPermissions,
			about: "sets a user's permissions in all existing virtual hosts",
		},
		{
			name: "clear_permissions", operands: "<username>", scoped: true, run: clearPermissions,
			about: "removes a user's permissions in a virtual host",
		},
		{
			name: "list_permissions", scoped: true, about: "lists permissions in a virtual host",
			run: listing{`Listing permissions for vhost "{vhost}" ...`, "vhosts/{vhost}/permissions", noVHost, columns("user configure write read")}.run,
		},
		{name: "list_user_permissions", operands: "<username>", run: listUserPermissions, about: "lists a user's permissions in all virtual hosts"},
		{
			name: "set_topic_permissions", operands: "<username> <exchange> <write> <read>", scoped: true, run: setTopicPermissions,
			about: "sets the routing keys with which a user may publish to, and bind, a topic exchange",
		},
		{
			name: "clear_topic_permissions", operands: "<username> [<exchange>]", scoped: true, run: clearTopicPermissions,
			about: "removes a user's topic permissions, for one exchange or all",
		},
		{
			name: "list_topic_permissions", scoped: true, about: "lists topic permissions in a virtual host",
			run: listing{
				`Listing topic permissions for vhost "{vhost}" ...`, "vhosts/{vhost}/topic-permissions", noVHost,
				columns("user exchange write read"),
			}.run,
		},
		{
			name: "list_user_topic_permissions", operands: "<username>", run: listUserTopicPermissions,
			about: "lists a user's topic permissions in all virtual hosts",
		},
	}
}

// permission replaces the API's refusal to change a permission of the user in the first operand if the user or the virtual host does
// not exist: the API has several texts for that.
func (c *call) permission(ctx context.Context, err error) error {
	if _, ok := errors.AsType[*refusal](err); !ok {
		return err
	}
	if _, e := c.user(ctx, c.operands[0]); isRefusal(e, http.StatusNotFound) {
		return failed(noUser, "User %s does not exist", c.operands[0])
	}
	if c.needVHost(ctx) != nil {
		return failed(unavailable, "Virtual host %s does not exist", c.vhost())
	}
	return err
}

func (c *call) setPermission(ctx context.Context, path string, body any) error {
	return c.doneUnless(c.permission(ctx, c.api.put(ctx, c.path(path), body)))
}

// clearPermission removes permissions. It does not fail if there are none.
func (c *call) clearPermission(ctx context.Context, path string) error {
	err := c.permission(ctx, c.api.remove(ctx, c.path(path)))
	if err != nil && !isRefusal(err, http.StatusNotFound) {
		return err
	}
	return c.done()
}

func setPermissions(ctx context.Context, c *call) error {
	c.banner("Setting permissions for user \"%s\" in vhost \"%s\" ...", c.operands[0], c.vhost())
	body := map[string]string{"configure": c.operands[1], "write": c.operands[2], "read": c.operands[3]}
	return c.setPermission(ctx, "permissions/{vhost}/{1}", body)
}

func setAllPermissions(ctx context.Context, c *call) error {
	c.banner("Setting permissions for user \"%s\" in all virtual hosts ...", c.operands[0])
	if _, err := c.user(ctx, c.operands[0]); err != nil {
		return instead(err, noSuchUser(c.operands[0]))
	}
	var vhosts []object
	if err := c.api.get(ctx, path("vhosts")+"?columns=name", &vhosts); err != nil {
		return err
	}
	body := map[string]string{"configure": c.operands[1], "write": c.operands[2], "read": c.operands[3]}
	for _, v := range vhosts {
		if err := c.api.put(ctx, path("permissions", v.text("name"), c.operands[0]), body); err != nil {
			return fmt.Errorf("virtual host %s: %w", v.text("name"), err)
		}
	}
	return c.done()
}

func clearPermissions(ctx context.Context, c *call) error {
	c.banner("Clearing permissions for user \"%s\" in vhost \"%s\" ...", c.operands[0], c.vhost())
	return c.clearPermission(ctx, "permissions/{vhost}/{1}")
}

func listUserPermissions(ctx context.Context, c *call) error {
	c.banner("Listing permissions for user \"%s\" ...", c.operands[0])
	all, err := c.ofUser(ctx, "users/{1}/permissions")
	if err != nil {
		return err
	}
	return c.showAll(all, columns("vhost configure write read")...)
}

// ofUser returns a list that belongs to the user in the first operand. If it is empty, it checks that the user exists.
func (c *call) ofUser(ctx context.Context, path string) ([]object, error) {
	var all []object
	err := c.api.get(ctx, c.path(path), &all)
	if err == nil && len(all) == 0 {
		_, err = c.user(ctx, c.operands[0])
	}
	return all, instead(err, noSuchUser(c.operands[0]))
}

func setTopicPermissions(ctx context.Context, c *call) error {
	user, exchange := c.operands[0], c.operands[1]
	c.banner("Setting topic permissions on \"%s\" for user \"%s\" in vhost \"%s\" ...", exchange, user, c.vhost())
	body := map[string]string{"exchange": exchange, "write": c.operands[2], "read": c.operands[3]}
	return c.setPermission(ctx, "topic-permissions/{vhost}/{1}", body)
}

func clearTopicPermissions(ctx context.Context, c *call) error {
	if len(c.operands) == 2 {
		c.banner("Clearing topic permissions on \"%s\" for user \"%s\" in vhost \"%s\" ...", c.operands[1], c.operands[0], c.vhost())
		return c.clearPermission(ctx, "topic-permissions/{vhost}/{1}/{2}")
	}
	c.banner("Clearing topic permissions for user \"%s\" in vhost \"%s\" ...", c.operands[0], c.vhost())
	return c.clearPermission(ctx, "topic-permissions/{vhost}/{1}")
}

// listUserTopicPermissions prints no header, because rabbitmqctl prints none.
func listUserTopicPermissions(ctx context.Context, c *call) error {
	c.banner("Listing topic permissions for user \"%s\" ...", c.operands[0])
	all, err := c.ofUser(ctx, "users/{1}/topic-permissions")
	if err != nil {
		return err
	}
	t := whole(all, columns("vhost exchange write read"))
	t.bare = true
	return c.print(t)
}
