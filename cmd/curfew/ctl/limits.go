package ctl

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
)

func limitCommands() []command {
	const definition = "A definition is a JSON object; a negative number is no limit."
	everyone := option{long: "global", about: "list the limits of all"}
	return []command{
		{
			name: "set_vhost_limits", operands: "<definition>", scoped: true, run: setVHostLimits,
			about: "replaces the limits of a virtual host: max-connections, max-queues", more: definition,
		},
		{name: "clear_vhost_limits", scoped: true, run: clearVHostLimits, about: "removes the limits of a virtual host"},
		{name: "list_vhost_limits", scoped: true, options: []option{everyone}, run: listVHostLimits, about: "prints the limits of a virtual host"},
		{
			name: "set_user_limits", operands: "<username> <definition>", run: setUserLimits,
			about: "sets limits of a user: max-connections, max-channels", more: definition,
		},
		{name: "clear_user_limits", operands: "<username> <limit>|all", run: clearUserLimits, about: "removes a limit of a user, or all"},
		{
			name: "list_user_limits", run: listUserLimits, about: "prints the limits of a user",
			options: []option{{long: "user", value: "username", about: "the user (default guest)"}, everyone},
		},
	}
}

// limits are the limits of one virtual host or user.
type limits struct {
	*call
	kind, name string // as in the API's path
}

func (c *call) vhostLimits() limits           { return limits{c, "vhost-limits", c.vhost()} }
func (c *call) userLimits(user string) limits { return limits{c, "user-limits", user} }

// get returns the limits by name. The API answers with a list of one object, or with an empty list.
func (l limits) get(ctx context.Context) (object, error) {
	var all []object
	if err := l.api.get(ctx, path(l.kind, l.name), &all); err != nil {
		return nil, err
	}
	values := object{}
	if len(all) == 0 {
		return values, nil
	}
	return values, json.Unmarshal(all[0]["value"], &values)
}

func (l limits) set(ctx context.Context, values object) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if err := l.api.put(ctx, path(l.kind, l.name, name), map[string]any{"value": values[name]}); err != nil {
			return err
		}
	}
	return nil
}

// clear removes the limits with these names, and ends the command.
func (l limits) clear(ctx context.Context, values object) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if err := l.api.remove(ctx, path(l.kind, l.name, name)); err != nil {
			return err
		}
	}
	return l.done()
}

func parseLimits(text string) (object, error) {
	raw, err := parseJSON(text)
	if err != nil {
		return nil, err
	}
	var values object
	if err := json.Unmarshal(raw, &values); err != nil {
		return nil, failed(unavailable, "limits are a JSON object, as in {\"max-connections\": 10}")
	}
	return values, nil
}

// setVHostLimits sets the limits of the definition before it clears the others, so that a refused definition clears none.
func setVHostLimits(ctx context.Context, c *call) error {
	c.banner("Setting vhost limits to \"%s\" for vhost \"%s\" ...", c.operands[0], c.vhost())
	values, err := parseLimits(c.operands[0])
	if err != nil {
		return err
	}
	l := c.vhostLimits()
	old, err := l.get(ctx)
	if err != nil {
		return c.missing(err, noVHost)
	}
	if err := l.set(ctx, values); err != nil {
		return err
	}
	maps.DeleteFunc(old, func(name string, _ json.RawMessage) bool { _, set := values[name]; return set })
	return l.clear(ctx, old)
}

func clearVHostLimits(ctx context.Context, c *call) error {
	c.banner("Clearing vhost \"%s\" limits ...", c.vhost())
	values, err := c.vhostLimits().get(ctx)
	switch {
	case err != nil:
		return instead(err, noParameter)
	case len(values) == 0:
		return noParameter
	}
	return c.vhostLimits().clear(ctx, values)
}

func listVHostLimits(ctx context.Context, c *call) error {
	if c.has("global") {
		return listing{"Listing limits for all vhosts ...", "vhost-limits", nil, columns("vhost limits=value:text")}.run(ctx, c)
	}
	c.banner("Listing limits for vhost \"%s\" ...", c.vhost())
	values, err := c.vhostLimits().get(ctx)
	if err != nil {
		return c.missing(err, noVHost)
	}
	if len(values) == 0 {
		return c.showAll(nil)
	}
	return c.printLimits(values)
}

func (c *call) printLimits(values object) error {
	text, err := encode(values)
	if err != nil {
		return err
	}
	return c.result("%s", text)
}

// needUser fails if the user does not exist, which the API does not check.
func (c *call) needUser(ctx context.Context, name string) error {
	_, err := c.user(ctx, name)
	return instead(err, noSuchUser(name))
}

func setUserLimits(ctx context.Context, c *call) error {
	user := c.operands[0]
	c.banner("Setting user limits to \"%s\" for user \"%s\" ...", c.operands[1], user)
	values, err := parseLimits(c.operands[1])
	if err != nil {
		return err
	}
	if err := c.needUser(ctx, user); err != nil {
		return err
	}
	return c.doneUnless(c.userLimits(user).set(ctx, values))
}

func clearUserLimits(ctx context.Context, c *call) error {
	user, name := c.operands[0], c.operands[1]
	values := object{name: nil}
	if name == "all" {
		c.banner("Clearing all limits for user \"%s\" ...", user)
		var err error
		if values, err = c.userLimits(user).get(ctx); err != nil {
			return instead(err, noSuchUser(user))
		}
	} else {
		c.banner("Clearing \"%s\" limit for user \"%s\" ...", name, user)
	}
	if err := c.needUser(ctx, user); err != nil {
		return err
	}
	return c.userLimits(user).clear(ctx, values)
}

func listUserLimits(ctx context.Context, c *call) error {
	if c.has("global") {
		return listing{"Listing limits for all users ...", "user-limits", nil, columns("user limits=value:text")}.run(ctx, c)
	}
	user := "guest"
	if c.has("user") {
		user = c.value("user")
	}
	c.banner("Listing limits for user \"%s\" ...", user)
	if err := c.needUser(ctx, user); err != nil {
		return err
	}
	values, err := c.userLimits(user).get(ctx)
	if err != nil {
		return err
	}
	return c.printLimits(values)
}
