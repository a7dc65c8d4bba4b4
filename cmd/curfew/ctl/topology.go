package ctl

import (
	"context"
	"net/http"
	"time"
)

var exchangeColumns = known{columns("name type durable auto_delete internal arguments:terms policy messages_delayed next_release"), "name type"}

var bindingColumns = known{
	columns("source_name=source source_kind=destination_type:exchange destination_name=destination destination_kind=destination_type" +
		" routing_key arguments:terms"),
	"source_name source_kind destination_name destination_kind routing_key arguments",
}

var consumerColumns = known{
	columns("queue_name=queue.name channel_pid=channel_details.name consumer_tag ack_required prefetch_count active activity_status" +
		" arguments:terms delivery_lease"),
	"queue_name channel_pid consumer_tag ack_required prefetch_count active arguments",
}

func topologyCommands() []command {
	return []command{
		{
			name: "list_exchanges", scoped: true, lists: &exchangeColumns, about: "lists exchanges",
			run: columnList("Listing exchanges for vhost {vhost} ...", "exchanges/{vhost}"),
		},
		{
			name: "list_bindings", scoped: true, lists: &bindingColumns, about: "lists bindings",
			run: columnList("Listing bindings for vhost {vhost}...", "bindings/{vhost}"),
		},
		{
			name: "list_consumers", scoped: true, lists: &consumerColumns, about: "lists consumers",
			run: columnList("Listing consumers in vhost {vhost} ...", "consumers/{vhost}"),
		},
	}
}

// queueColumns are RabbitMQ's columns of a queue, and Curfew's. Where RabbitMQ prints an Erlang process, the name of the connection
// or channel is printed.
var queueColumns = known{
	columns(`name durable auto_delete arguments:terms policy operator_policy effective_policy_definition:terms
		expiry_strategy next_deadline next_release lease_expires_at delivery_lease delivery_leases_ended oldest_message_age messages_expired messages_dead_lettered:terms
		pid node owner_pid=owner_pid_details.name exclusive exclusive_consumer_pid=exclusive_consumer_details.channel_details.name
		exclusive_consumer_tag single_active_consumer_tag
		messages_redriven messages_cancelled messages_held
		messages_ready messages_unacknowledged messages messages_ready_ram messages_unacknowledged_ram messages_ram messages_persistent
		message_bytes message_bytes_ready message_bytes_unacknowledged message_bytes_ram message_bytes_persistent
		head_message_timestamp disk_reads disk_writes consumers consumer_utilisation consumer_capacity memory state type
		leader members:names online:names slave_pids:names synchronised_slave_pids:names`),
	"name messages",
}

func queueCommands() []command {
	return append([]command{
		{
			name: "list_queues", scoped: true, lists: &queueColumns, run: listQueues, patience: time.Minute, about: "lists queues",
			options: []option{
				{long: "online", about: "only queues that are running"},
				{long: "offline", about: "only queues that are not"},
				{long: "local", about: "only queues of this node"},
			},
		},
		{
			name: "purge_queue", operands: "<queue>", scoped: true, about: "removes the messages that are ready in a queue",
			run: deletion("Purging queue '{1}' in vhost '{vhost}' ...", "queues/{vhost}/{1}/contents", &failure{unavailable, "Error:\nnot_found"}),
		},
		{
			name: "delete_queue", operands: "<queue>", scoped: true, run: deleteQueue, about: "deletes a queue",
			options: []option{
				{long: "if-empty", short: "e", about: "only if it has no messages"},
				{long: "if-unused", short: "u", about: "only if it has no consumers"},
			},
		},
		peekCommand(),
	}, redriveCommands()...)
}

func listQueues(ctx context.Context, c *call) error {
	c.banner("Timeout: %.1f seconds ...", c.timeout().Seconds())
	c.banner("Listing queues for vhost %s ...", c.vhost())
	if c.has("online") == c.has("offline") {
		return c.list(ctx, "queues/{vhost}", nil)
	}
	online := c.has("online")
	return c.list(ctx, "queues/{vhost}", func(q object) bool {
		switch q.text("state") {
		case "down", "stopped", "crashed":
			return !online
		}
		return online
	}, "state")
}

var errNoQueue = failed(usageError, "Queue not found")

func deleteQueue(ctx context.Context, c *call) error {
	var condition, query string
	switch {
	case c.has("if-empty") && c.has("if-unused"):
		condition, query = " if queue is empty and if queue is unused", "?if-empty=true&if-unused=true"
	case c.has("if-empty"):
		condition, query = " if queue is empty", "?if-empty=true"
	case c.has("if-unused"):
		condition, query = " if queue is unused", "?if-unused=true"
	}
	c.banner("Deleting queue '%s' on vhost '%s'%s ...", c.operands[0], c.vhost(), condition)
	path := c.path("queues/{vhost}/{1}")
	var q object
	if err := c.api.get(ctx, path, &q); err != nil {
		return instead(err, errNoQueue)
	}
	if err := c.api.remove(ctx, path+query); err != nil {
		return c.undeletable(err, q)
	}
	return c.result("Queue was successfully deleted with %d ready messages", q.number("messages_ready"))
}

// undeletable replaces the API's refusal to delete a queue that is in use, or not empty.
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
