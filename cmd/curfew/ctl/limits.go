package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
)

func limitCommands() []command {
	const definition = "A definition is a JSON object; a negative number is no limit."
	everyone := []option{{long: "global", about: "list those of all"}}
	return []command{
		{
			name: "set_vhost_limits", operands: "<definition>", least: 1, most: 1, scoped: true, run: setVHostLimits,
			about: "replaces the limits of a virtual host: max-connections, max-queues", more: definition,
		},
		{
			name: "clear_vhost_limits", most: 0, scoped: true, run: clearVHostLimits,
			about: "removes the limits of a virtual host",
		},
		{
			name: "list_vhost_limits", scoped: true, options: everyone, run: listVHostLimits,
			about: "prints the limits of a virtual host",
		},
		{
			name: "set_user_limits", operands: "<username> <definition>", least: 2, most: 2, run: setUserLimits,
			about: "sets limits of a user: max-connections, max-channels", more: definition,
		},
		{
			name: "clear_user_limits", operands: "<username> <limit>|all", least: 2, most: 2, run: clearUserLimits,
			about: "removes a limit of a user, or all",
		},
		{
			name: "list_user_limits", run: listUserLimits,
			options: append([]option{{long: "user", value: "username", about: "the user (default guest)"}}, everyone...),
			about:   "prints the limits of a user",
		},
	}
}

// limitsOf asks for the limits of one virtual host or user. The API answers with a list of one, or none.
func (c *call) limitsOf(ctx context.Context, kind, name string) (object, error) {
	var all []object
	if err := c.api.get(ctx, path(kind, name), &all); err != nil {
		return nil, err
	}
	limits := object{}
	if len(all) == 0 {
		return limits, nil
	}
	return limits, json.Unmarshal(all[0]["value"], &limits)
}

func definedLimits(text string) (object, error) {
	raw, err := document(text)
	if err != nil {
		return nil, err
	}
	var limits object
	if err := json.Unmarshal(raw, &limits); err != nil {
		return nil, failed(unavailable, "limits are a JSON object, as in {\"max-connections\": 10}")
	}
	return limits, nil
}

func (c *call) setLimits(ctx context.Context, kind, name string, limits object) error {
	for _, limit := range slices.Sorted(maps.Keys(limits)) {
		if err := c.api.put(ctx, path(kind, name, limit), map[string]any{"value": limits[limit]}); err != nil {
			return err
		}
	}
	return nil
}

func (c *call) clearLimits(ctx context.Context, kind, name string, limits object) error {
	for _, limit := range slices.Sorted(maps.Keys(limits)) {
		if err := c.api.remove(ctx, path(kind, name, limit)); err != nil {
			return err
		}
	}
	return nil
}

// setVHostLimits clears the limits that the definition does not have once the others are set, so that a refused one clears none.
func setVHostLimits(ctx context.Context, c *call) error {
	c.say("Setting vhost limits to \"%s\" for vhost \"%s\" ...", c.operands[0], c.vhost())
	limits, err := definedLimits(c.operands[0])
	if err != nil {
		return err
	}
	old, err := c.limitsOf(ctx, "vhost-limits", c.vhost())
	if err != nil {
		return instead(err, noVHost(c.vhost()))
	}
	if err := c.setLimits(ctx, "vhost-limits", c.vhost(), limits); err != nil {
		return err
	}
	maps.DeleteFunc(old, func(limit string, _ json.RawMessage) bool { _, kept := limits[limit]; return kept })
	if err := c.clearLimits(ctx, "vhost-limits", c.vhost(), old); err != nil {
		return err
	}
	return c.done()
}

func clearVHostLimits(ctx context.Context, c *call) error {
	c.say("Clearing vhost \"%s\" limits ...", c.vhost())
	limits, err := c.limitsOf(ctx, "vhost-limits", c.vhost())
	switch {
	case err != nil:
		return instead(err, errNoParameter)
	case len(limits) == 0:
		return errNoParameter
	}
	if err := c.clearLimits(ctx, "vhost-limits", c.vhost(), limits); err != nil {
		return err
	}
	return c.done()
}

func listVHostLimits(ctx context.Context, c *call) error {
	if c.has("global") {
		c.say("Listing limits for all vhosts ...")
		return c.allLimits(ctx, "vhost-limits", column{name: "vhost"})
	}
	c.say("Listing limits for vhost \"%s\" ...", c.vhost())
	limits, err := c.limitsOf(ctx, "vhost-limits", c.vhost())
	if err != nil {
		return instead(err, noVHost(c.vhost()))
	}
	if len(limits) == 0 {
		return c.print(whole(nil, nil))
	}
	return c.tellLimits(limits)
}

func (c *call) tellLimits(limits object) error {
	text, err := encode(limits)
	if err != nil {
		return err
	}
	return c.tell("%s", text)
}

func (c *call) allLimits(ctx context.Context, kind string, of column) error {
	var all []object
	if err := c.api.get(ctx, path(kind), &all); err != nil {
		return err
	}
	return c.showAll(all, of, column{name: "limits", path: "value", show: showText})
}

// needUser fails when there is no such user, which the API does not mind.
func (c *call) needUser(ctx context.Context, name string) error {
	_, err := c.user(ctx, name)
	if errors.Is(err, errNoUser) {
		return noSuchUser(name)
	}
	return err
}

func setUserLimits(ctx context.Context, c *call) error {
	user := c.operands[0]
	c.say("Setting user limits to \"%s\" for user \"%s\" ...", c.operands[1], user)
	limits, err := definedLimits(c.operands[1])
	if err != nil {
		return err
	}
	if err := c.needUser(ctx, user); err != nil {
		return err
	}
	if err := c.setLimits(ctx, "user-limits", user, limits); err != nil {
		return err
	}
	return c.done()
}

func clearUserLimits(ctx context.Context, c *call) error {
	user, limit := c.operands[0], c.operands[1]
	limits := object{limit: nil}
	if limit == "all" {
		c.say("Clearing all limits for user \"%s\" ...", user)
		var err error
		if limits, err = c.limitsOf(ctx, "user-limits", user); err != nil {
			return instead(err, noSuchUser(user))
		}
	} else {
		c.say("Clearing \"%s\" limit for user \"%s\" ...", limit, user)
	}
	if err := c.needUser(ctx, user); err != nil {
		return err
	}
	if err := c.clearLimits(ctx, "user-limits", user, limits); err != nil {
		return err
	}
	return c.done()
}

func listUserLimits(ctx context.Context, c *call) error {
	if c.has("global") {
		c.say("Listing limits for all users ...")
		return c.allLimits(ctx, "user-limits", column{name: "user"})
	}
	user := "guest"
	if c.has("user") {
		user = c.value("user")
	}
	c.say("Listing limits for user \"%s\" ...", user)
	if err := c.needUser(ctx, user); err != nil {
		return err
	}
	limits, err := c.limitsOf(ctx, "user-limits", user)
	if err != nil {
		return err
	}
	return c.tellLimits(limits)
}
