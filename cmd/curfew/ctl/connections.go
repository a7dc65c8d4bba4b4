package ctl

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

// A connection is known by its name here, where rabbitmqctl prints and takes the process that serves it.
var connectionColumns = known{
	columns: []column{
		{name: "pid", path: "name"},
		{name: "name"},
		{name: "port"},
		{name: "host"},
		{name: "peer_port"},
		{name: "peer_host"},
		{name: "ssl"},
		{name: "ssl_protocol"},
		{name: "ssl_key_exchange"},
		{name: "ssl_cipher"},
		{name: "ssl_hash"},
		{name: "peer_cert_subject"},
		{name: "peer_cert_issuer"},
		{name: "peer_cert_validity"},
		{name: "state"},
		{name: "channels"},
		{name: "protocol", show: showProtocol},
		{name: "auth_mechanism"},
		{name: "user"},
		{name: "user_provided_name"},
		{name: "vhost"},
		{name: "timeout"},
		{name: "frame_max"},
		{name: "channel_max"},
		{name: "client_properties", show: showTerms},
		{name: "connected_at"},
		{name: "recv_oct"},
		{name: "recv_cnt"},
		{name: "send_oct"},
		{name: "send_cnt"},
		{name: "send_pend"},
	},
	usual: "user peer_host peer_port state",
}

var channelColumns = known{
	columns: []column{
		{name: "pid", path: "name"},
		{name: "connection", path: "connection_details.name"},
		{name: "name"},
		{name: "number"},
		{name: "user"},
		{name: "vhost"},
		{name: "transactional"},
		{name: "confirm"},
		{name: "consumer_count"},
		{name: "messages_unacknowledged"},
		{name: "messages_uncommitted"},
		{name: "acks_uncommitted"},
		{name: "messages_unconfirmed"},
		{name: "prefetch_count"},
		{name: "global_prefetch_count"},
	},
	usual: "pid user consumer_count messages_unacknowledged",
}

func connectionCommands() []command {
	return []command{
		{
			name: "list_connections", most: -1, lists: &connectionColumns, check: connectionColumns.check, run: listConnections,
			about: "lists connections of all virtual hosts",
		},
		{
			name: "list_channels", most: -1, lists: &channelColumns, check: channelColumns.check, run: listChannels,
			about: "lists channels of all virtual hosts",
		},
		{
			name: "close_connection", operands: "<connection> <reason>", least: 2, most: 2, run: closeConnection,
			about: "closes a connection; its client is told the reason", more: "A connection is named as list_connections prints it in the columns pid and name.",
		},
		{
			name: "close_all_connections", operands: "<reason>", least: 1, most: 1, scoped: true, run: closeAllConnections,
			options: []option{
				{long: "global", about: "those of all virtual hosts"},
				{long: "limit", value: "number", numeric: true, about: "no more than so many"},
				{long: "per-connection-delay", value: "milliseconds", numeric: true, about: "wait so long after each"},
			},
			about: "closes the connections to a virtual host",
		},
		{
			name: "close_all_user_connections", operands: "<username> <reason>", least: 2, most: 2, run: closeUserConnections,
			about: "closes the connections of a user",
		},
	}
}

func listConnections(ctx context.Context, c *call) error {
	c.say("Listing connections ...")
	return c.list(ctx, path("connections"), connectionColumns, nil)
}

func listChannels(ctx context.Context, c *call) error {
	c.say("Listing channels ...")
	return c.list(ctx, path("channels"), channelColumns, nil)
}

func (c *call) close(ctx context.Context, connection, reason string) error {
	answer, err := c.api.send(ctx, http.MethodDelete, path("connections", connection), nil, http.Header{"X-Reason": {reason}})
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

func closeConnection(ctx context.Context, c *call) error {
	name, reason := c.operands[0], c.operands[1]
	c.say("Closing connection %s, reason: %s...", name, reason)
	if err := c.close(ctx, name, reason); err != nil {
		return instead(err, failed(unavailable, "there is no connection %s", name))
	}
	return c.done()
}

func closeAllConnections(ctx context.Context, c *call) error {
	reason := c.operands[0]
	vhost := c.vhost()
	if c.has("global") {
		c.say("Closing all connections to %s (across all vhosts), reason: %s...", c.api.base, reason)
	} else {
		c.say("Closing all connections in vhost %s, reason: %s...", vhost, reason)
	}
	closed, err := c.closeThose(ctx, func(o object) bool { return c.has("global") || o.text("vhost") == vhost }, reason)
	if err != nil {
		return err
	}
	return c.tell("Closed %d connections", closed)
}

func closeUserConnections(ctx context.Context, c *call) error {
	user, reason := c.operands[0], c.operands[1]
	c.say("Closing connections of user %s, reason: %s...", user, reason)
	if _, err := c.closeThose(ctx, func(o object) bool { return o.text("user") == user }, reason); err != nil {
		return err
	}
	return c.done()
}

// closeThose closes the connections that match. One that is gone by then is none that was closed.
func (c *call) closeThose(ctx context.Context, match func(object) bool, reason string) (closed int, err error) {
	var all []object
	if err := c.api.get(ctx, path("connections")+"?columns=name,user,vhost", &all); err != nil {
		return 0, err
	}
	limit, _ := strconv.Atoi(c.value("limit")) // parse has checked both
	delay, _ := strconv.Atoi(c.value("per-connection-delay"))
	for _, o := range all {
		if limit > 0 && closed == limit {
			break
		}
		if !match(o) {
			continue
		}
		switch err := c.close(ctx, o.text("name"), reason); {
		case err == nil:
			closed++
		case !isRefusal(err, http.StatusNotFound):
			return closed, err
		}
		if err := pause(ctx, time.Duration(delay)*time.Millisecond); err != nil {
			return closed, err
		}
	}
	return closed, nil
}

// pause waits, and no longer than ctx.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
