package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
)

var vhostColumns = known{columns("name tracing cluster_state:states description tags:names default_queue_type"), "name"}

var vhostMetadata = []option{
	{long: "description", value: "description", about: "its purpose"},
	{long: "tags", value: "tag,tag,...", about: "tags to select it by"},
	{long: "default-queue-type", value: "type", about: "the type of queues declared without one"},
}

func vhostCommands() []command {
	return []command{
		{
			name: "add_vhost", operands: "<vhost>", run: addVHost, about: "adds a virtual host",
			options: vhostMetadata,
		},
		{
			name: "update_vhost_metadata", operands: "<vhost>", run: updateVHost, check: checkVHostUpdate,
			about: "changes the description, the tags or the default queue type of a virtual host", options: vhostMetadata,
		},
		{
			name: "delete_vhost", operands: "<vhost>", about: "removes a virtual host with everything in it",
			run: deletion(`Deleting vhost "{1}" ...`, "vhosts/{1}", &failure{dataError, "Virtual host '{1}' does not exist"}),
		},
		{name: "set_vhost_tags", operands: "<vhost> [<tag> ...]", run: setVHostTags, about: "replaces the tags of a virtual host"},
		{
			name: "trace_on", scoped: true, run: traceOn,
			about: "starts copying published and delivered messages of a virtual host to its exchange amq.rabbitmq.trace",
		},
		{name: "trace_off", scoped: true, run: traceOff, about: "stops the copying that trace_on started"},
		{name: "list_vhosts", lists: &vhostColumns, about: "lists virtual hosts", run: columnList("Listing vhosts ...", "vhosts")},
	}
}

// addVHost does not change a virtual host that exists already.
func addVHost(ctx context.Context, c *call) error {
	c.banner("Adding vhost \"%s\" ...", c.operands[0])
	switch err := c.api.get(ctx, path("vhosts", c.operands[0])+"?columns=name", nil); {
	case err == nil:
		return c.done()
	case !isRefusal(err, http.StatusNotFound):
		return err
	}
	return c.put(ctx, "vhosts/{1}", c.vhostMetadata())
}

// vhostMetadata returns the properties of a virtual host that options specify.
func (c *call) vhostMetadata() map[string]any {
	given := map[string]any{}
	for _, name := range []string{"description", "tags"} {
		if c.has(name) {
			given[name] = c.value(name)
		}
	}
	if c.has("default-queue-type") {
		given["default_queue_type"] = c.value("default-queue-type")
		given["defaultqueuetype"] = c.value("default-queue-type") // read by RabbitMQ before 3.11
	}
	return given
}

func checkVHostUpdate(c *call) error {
	if len(c.vhostMetadata()) == 0 {
		return &misuse{usageError, "not enough arguments: none of --description, --tags and --default-queue-type is given"}
	}
	return nil
}

func updateVHost(ctx context.Context, c *call) error {
	c.banner("Updating metadata of vhost \"%s\" ...", c.operands[0])
	return c.doneUnless(c.amendVHost(ctx, c.operands[0], c.vhostMetadata()))
}

func setVHostTags(ctx context.Context, c *call) error {
	name, tags := c.operands[0], c.operands[1:]
	c.banner("Setting tags for virtual host \"%s\" to [%s] ...", name, strings.Join(tags, ", "))
	return c.doneUnless(c.amendVHost(ctx, name, map[string]any{"tags": strings.Join(tags, ",")}))
}

// amendVHost changes some properties of a virtual host. It sends the others unchanged, because a request sets all of them.
func (c *call) amendVHost(ctx context.Context, name string, changes map[string]any) error {
	var v object
	if err := c.api.get(ctx, path("vhosts", name), &v); err != nil {
		return instead(err, &failure{dataError, fmt.Sprintf("Virtual host '%s' does not exist", name)})
	}
	body := map[string]any{}
	for _, other := range []string{"description", "tags", "default_queue_type", "tracing"} {
		if raw := v[other]; defined(raw) {
			body[other] = raw
		}
	}
	maps.Copy(body, changes)
	return c.api.put(ctx, path("vhosts", name), body)
}

func traceOn(ctx context.Context, c *call) error {
	c.banner("Starting tracing for vhost \"%s\" ...", c.vhost())
	return c.resultUnless(c.amendVHost(ctx, c.vhost(), map[string]any{"tracing": true}), "Trace enabled for vhost %s", c.vhost())
}

func traceOff(ctx context.Context, c *call) error {
	c.banner("Stopping tracing for vhost \"%s\" ...", c.vhost())
	return c.resultUnless(c.amendVHost(ctx, c.vhost(), map[string]any{"tracing": false}), "Trace disabled for vhost %s", c.vhost())
}

// defined reports whether the API returned a value.
func defined(raw json.RawMessage) bool {
	return raw != nil && string(raw) != "null" && string(raw) != `"undefined"`
}
