package ctl

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
)

var vhostColumns = known{
	columns: []column{
		{name: "name"},
		{name: "tracing"},
		{name: "cluster_state", show: showStates},
		{name: "description"},
		{name: "tags", show: showNames},
		{name: "default_queue_type"},
	},
	usual: "name",
}

func vhostCommands() []command {
	return []command{
		{
			name: "add_vhost", operands: "<vhost>", least: 1, most: 1, run: addVHost,
			options: []option{
				{long: "description", value: "description", about: "what it is for"},
				{long: "tags", value: "tag,tag,...", about: "names to find it by"},
				{long: "default-queue-type", value: "type", about: "the type of queues whose declaration names none"},
			},
			about: "adds a virtual host",
		},
		{
			name: "delete_vhost", operands: "<vhost>", least: 1, most: 1, run: deleteVHost,
			about: "removes a virtual host, with all that is in it",
		},
		{
			name: "set_vhost_tags", operands: "<vhost> [<tag> ...]", least: 1, most: -1, run: setVHostTags,
			about: "replaces the tags of a virtual host",
		},
		{
			name: "trace_on", scoped: true, run: traceOn,
			about: "copies all that is published and delivered in a virtual host to its exchange amq.rabbitmq.trace",
		},
		{
			name: "trace_off", scoped: true, run: traceOff,
			about: "ends that",
		},
		{
			name: "list_vhosts", most: -1, lists: &vhostColumns, check: vhostColumns.check, run: listVHosts,
			about: "lists virtual hosts",
		},
	}
}

// addVHost leaves a virtual host that is there already as it is.
func addVHost(ctx context.Context, c *call) error {
	c.say("Adding vhost \"%s\" ...", c.operands[0])
	switch err := c.api.get(ctx, path("vhosts", c.operands[0])+"?columns=name", nil); {
	case err == nil:
		return c.done()
	case !isRefusal(err, http.StatusNotFound):
		return err
	}
	body := map[string]any{}
	for _, name := range []string{"description", "tags"} {
		if c.has(name) {
			body[name] = c.value(name)
		}
	}
	if c.has("default-queue-type") {
		body["default_queue_type"] = c.value("default-queue-type")
		body["defaultqueuetype"] = c.value("default-queue-type") // what RabbitMQ before 3.11 reads
	}
	if err := c.api.put(ctx, path("vhosts", c.operands[0]), body); err != nil {
		return err
	}
	return c.done()
}

func deleteVHost(ctx context.Context, c *call) error {
	c.say("Deleting vhost \"%s\" ...", c.operands[0])
	if err := c.api.remove(ctx, path("vhosts", c.operands[0])); err != nil {
		return instead(err, noVHost(c.operands[0]))
	}
	return c.done()
}

func setVHostTags(ctx context.Context, c *call) error {
	name, tags := c.operands[0], c.operands[1:]
	c.say("Setting tags for virtual host \"%s\" to [%s] ...", name, strings.Join(tags, ", "))
	if err := c.amendVHost(ctx, name, "tags", strings.Join(tags, ",")); err != nil {
		return err
	}
	return c.done()
}

// amendVHost changes one property of a virtual host. It repeats the others, because the API sets all of them at once.
func (c *call) amendVHost(ctx context.Context, name, property string, value any) error {
	var v object
	if err := c.api.get(ctx, path("vhosts", name), &v); err != nil {
		return instead(err, noVHost(name))
	}
	body := map[string]any{}
	for _, other := range []string{"description", "tags", "default_queue_type", "tracing"} {
		if raw := v[other]; defined(raw) {
			body[other] = raw
		}
	}
	body[property] = value
	return c.api.put(ctx, path("vhosts", name), body)
}

func traceOn(ctx context.Context, c *call) error {
	c.say("Starting tracing for vhost \"%s\" ...", c.vhost())
	if err := c.amendVHost(ctx, c.vhost(), "tracing", true); err != nil {
		return err
	}
	return c.tell("Trace enabled for vhost %s", c.vhost())
}

func traceOff(ctx context.Context, c *call) error {
	c.say("Stopping tracing for vhost \"%s\" ...", c.vhost())
	if err := c.amendVHost(ctx, c.vhost(), "tracing", false); err != nil {
		return err
	}
	return c.tell("Trace disabled for vhost %s", c.vhost())
}

func listVHosts(ctx context.Context, c *call) error {
	c.say("Listing vhosts ...")
	return c.list(ctx, path("vhosts"), vhostColumns, nil)
}

// defined is whether the API says something other than "not set".
func defined(raw json.RawMessage) bool {
	return raw != nil && string(raw) != "null" && string(raw) != `"undefined"`
}
