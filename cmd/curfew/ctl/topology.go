package ctl

import (
	"context"
	"encoding/json"
)

var exchangeColumns = known{
	columns: []column{
		{name: "name"},
		{name: "type"},
		{name: "durable"},
		{name: "auto_delete"},
		{name: "internal"},
		{name: "arguments", show: showTerms},
		{name: "policy"},
	},
	usual: "name type",
}

var bindingColumns = known{
	columns: []column{
		{name: "source_name", path: "source"},
		{name: "source_kind", path: "destination_type", show: func(json.RawMessage) cell { return word("exchange") }},
		{name: "destination_name", path: "destination"},
		{name: "destination_kind", path: "destination_type"},
		{name: "routing_key"},
		{name: "arguments", show: showTerms},
	},
	usual: "source_name source_kind destination_name destination_kind routing_key arguments",
}

var consumerColumns = known{
	columns: []column{
		{name: "queue_name", path: "queue.name"},
		{name: "channel_pid", path: "channel_details.name"},
		{name: "consumer_tag"},
		{name: "ack_required"},
		{name: "prefetch_count"},
		{name: "active"},
		{name: "activity_status"},
		{name: "arguments", show: showTerms},
	},
	usual: "queue_name channel_pid consumer_tag ack_required prefetch_count active arguments",
}

func topologyCommands() []command {
	return []command{
		{
			name: "list_exchanges", most: -1, scoped: true, lists: &exchangeColumns, check: exchangeColumns.check, run: listExchanges,
			about: "lists exchanges",
		},
		{
			name: "list_bindings", most: -1, scoped: true, lists: &bindingColumns, check: bindingColumns.check, run: listBindings,
			about: "lists bindings",
		},
		{
			name: "list_consumers", most: -1, scoped: true, lists: &consumerColumns, check: consumerColumns.check, run: listConsumers,
			about: "lists consumers",
		},
	}
}

func listExchanges(ctx context.Context, c *call) error {
	c.say("Listing exchanges for vhost %s ...", c.vhost())
	return c.listIn(ctx, "exchanges", exchangeColumns, nil)
}

func listBindings(ctx context.Context, c *call) error {
	c.say("Listing bindings for vhost %s...", c.vhost())
	return c.listIn(ctx, "bindings", bindingColumns, nil)
}

func listConsumers(ctx context.Context, c *call) error {
	c.say("Listing consumers in vhost %s ...", c.vhost())
	return c.listIn(ctx, "consumers", consumerColumns, nil)
}
