package ctl

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
