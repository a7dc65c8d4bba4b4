package ctl

import (
	"context"
	"net/http"
	"time"
)

// What RabbitMQ knows of a queue, and what we know besides. Processes of Erlang there are not; what stands for one is the name of
// the connection or the channel.
var queueColumns = known{
	columns: []column{
		{name: "name"},
		{name: "durable"},
		{name: "auto_delete"},
		{name: "arguments", show: showTerms},
		{name: "policy"},
		{name: "operator_policy"},
		{name: "effective_policy_definition", show: showTerms},
		{name: "expiry_strategy"},
		{name: "next_deadline"},
		{name: "lease_expires_at"},
		{name: "oldest_message_age"},
		{name: "messages_expired"},
		{name: "messages_dead_lettered", show: showTerms},
		{name: "pid", path: "pid"},
		{name: "owner_pid", path: "owner_pid_details.name"},
		{name: "exclusive"},
		{name: "exclusive_consumer_pid", path: "exclusive_consumer_details.channel_details.name"},
		{name: "exclusive_consumer_tag"},
		{name: "single_active_consumer_tag"},
		{name: "messages_ready"},
		{name: "messages_unacknowledged"},
		{name: "messages"},
		{name: "messages_ready_ram"},
		{name: "messages_unacknowledged_ram"},
		{name: "messages_ram"},
		{name: "messages_persistent"},
		{name: "message_bytes"},
		{name: "message_bytes_ready"},
		{name: "message_bytes_unacknowledged"},
		{name: "message_bytes_ram"},
		{name: "message_bytes_persistent"},
		{name: "head_message_timestamp"},
		{name: "disk_reads"},
		{name: "disk_writes"},
		{name: "consumers"},
		{name: "consumer_utilisation"},
		{name: "consumer_capacity"},
		{name: "memory"},
		{name: "state"},
		{name: "type"},
		{name: "leader"},
		{name: "members", show: showNames},
		{name: "online", show: showNames},
		{name: "slave_pids", show: showNames},
		{name: "synchronised_slave_pids", show: showNames},
	},
	usual: "name messages",
}

func queueCommands() []command {
	return []command{
		{
			name: "list_queues", most: -1, scoped: true, lists: &queueColumns, check: queueColumns.check, run: listQueues, patience: time.Minute,
			options: []option{
				{long: "online", about: "those that are running"},
				{long: "offline", about: "those that are not"},
				{long: "local", about: "those of this node"},
			},
			about: "lists queues",
		},
		{
			name: "purge_queue", operands: "<queue>", least: 1, most: 1, scoped: true, run: purgeQueue,
			about: "removes the messages that are ready in a queue",
		},
		{
			name: "delete_queue", operands: "<queue>", least: 1, most: 1, scoped: true, run: deleteQueue,
			options: []option{
				{long: "if-empty", short: "e", about: "only when it has no messages"},
				{long: "if-unused", short: "u", about: "only when it has no consumers"},
			},
			about: "deletes a queue",
		},
	}
}

func listQueues(ctx context.Context, c *call) error {
	c.say("Timeout: %.1f seconds ...", c.timeout().Seconds())
	c.say("Listing queues for vhost %s ...", c.vhost())
	if c.has("online") == c.has("offline") {
		return c.listIn(ctx, "queues", queueColumns, nil)
	}
	online := c.has("online")
	return c.listIn(ctx, "queues", queueColumns, func(q object) bool {
		switch q.text("state") {
		case "down", "stopped", "crashed":
			return !online
		}
		return online
	}, "state")
}

// listIn lists things of a virtual host. A virtual host that does not exist has none.
func (c *call) listIn(ctx context.Context, kind string, k known, keep func(object) bool, fields ...string) error {
	err := c.list(ctx, path(kind, c.vhost()), k, keep, fields...)
	if isRefusal(err, http.StatusNotFound) {
		return c.print(table{rows: whole(nil, nil).rows})
	}
	return err
}

func purgeQueue(ctx context.Context, c *call) error {
	c.say("Purging queue '%s' in vhost '%s' ...", c.operands[0], c.vhost())
	if err := c.api.remove(ctx, path("queues", c.vhost(), c.operands[0], "contents")); err != nil {
		return instead(err, failed(unavailable, "not_found"))
	}
	return c.done()
}

var errNoQueue = failed(usageError, "Queue not found")

func deleteQueue(ctx context.Context, c *call) error {
	name, condition, query := c.operands[0], "", ""
	if c.has("if-empty") {
		condition, query = " if queue is empty", "?if-empty=true"
	}
	if c.has("if-unused") {
		condition, query = " if queue is unused", "?if-unused=true"
	}
	if c.has("if-empty") && c.has("if-unused") {
		condition, query = " if queue is empty and if queue is unused", "?if-empty=true&if-unused=true"
	}
	c.say("Deleting queue '%s' on vhost '%s'%s ...", name, c.vhost(), condition)
	var q object
	if err := c.api.get(ctx, path("queues", c.vhost(), name), &q); err != nil {
		return instead(err, errNoQueue)
	}
	if err := c.api.remove(ctx, path("queues", c.vhost(), name)+query); err != nil {
		return c.undeletable(err, q)
	}
	return c.tell("Queue was successfully deleted with %d ready messages", q.number("messages_ready"))
}

// undeletable says why a queue that is in use, or not empty, stays.
func (c *call) undeletable(err error, q object) error {
	switch {
	case !isRefusal(err, http.StatusBadRequest):
		return instead(err, errNoQueue)
	case c.has("if-unused") && q.number("consumers") > 0:
		return failed(usageError, "Queue is in use")
	case c.has("if-empty"):
		return failed(usageError, "Queue is not empty")
	}
	return err
}
