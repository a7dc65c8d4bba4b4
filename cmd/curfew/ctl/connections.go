package ctl

import (
	"context"
	"net/http"
	"time"
)

// connectionColumns has the name of the connection where rabbitmqctl prints, and accepts, the process that serves it.
var connectionColumns = known{
	columns(`pid=name name port host peer_port peer_host ssl ssl_protocol ssl_key_exchange ssl_cipher ssl_hash
		peer_cert_subject peer_cert_issuer peer_cert_validity state channels protocol:protocol auth_mechanism
		user user_provided_name vhost timeout frame_max channel_max client_properties:terms connected_at
		recv_oct recv_cnt send_oct send_cnt send_pend`),
	"user peer_host peer_port state",
}

var channelColumns = known{
	columns(`pid=name connection=connection_details.name name number user vhost transactional confirm consumer_count
		messages_unacknowledged messages_uncommitted acks_uncommitted messages_unconfirmed prefetch_count global_prefetch_count`),
	"pid user consumer_count messages_unacknowledged",
}

func connectionCommands() []command {
	return []command{
		{
			name: "list_connections", lists: &connectionColumns, about: "lists connections of all virtual hosts",
			run: columnList("Listing connections ...", "connections"),
		},
		{
			name: "list_channels", lists: &channelColumns, about: "lists channels of all virtual hosts",
			run: columnList("Listing channels ...", "channels"),
		},
		{
			name: "close_connection", operands: "<connection> <reason>", run: closeConnection,
			about: "closes a connection and tells its client the reason", more: "A connection is identified by the columns pid or name of list_connections.",
		},
		{
			name: "close_all_connections", operands: "<reason>", scoped: true, run: closeAllConnections,
			about: "closes the connections to a virtual host",
			options: []option{
				{long: "global", about: "connections to all virtual hosts"},
				{long: "limit", value: "number", numeric: true, about: "at most this many"},
				{long: "per-connection-delay", value: "milliseconds", numeric: true, about: "pause after each connection"},
			},
		},
		{name: "close_all_user_connections", operands: "<username> <reason>", run: closeUserConnections, about: "closes the connections of a user"},
	}
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
	c.banner("Closing connection %s, reason: %s...", name, reason)
	if err := c.close(ctx, name, reason); err != nil {
		return instead(err, failed(unavailable, "there is no connection %s", name))
	}
	return c.done()
}

func closeAllConnections(ctx context.Context, c *call) error {
	reason := c.operands[0]
	vhost := c.vhost()
	if c.has("global") {
		c.banner("Closing all connections to %s (across all vhosts), reason: %s...", c.api.base, reason)
	} else {
		c.banner("Closing all connections in vhost %s, reason: %s...", vhost, reason)
	}
	closed, err := c.closeThose(ctx, func(o object) bool { return c.has("global") || o.text("vhost") == vhost }, reason)
	if err == nil && closed == 0 && !c.has("global") {
		err = c.checkVHost(ctx)
	}
	if err != nil {
		return err
	}
	return c.result("Closed %d connections", closed)
}

// checkVHost returns an error if the virtual host of --vhost does not exist; not under the name rabbitmqctl, which has no such check.
func (c *call) checkVHost(ctx context.Context) error {
	if c.program.Name == rabbitmqctl || !c.has("vhost") {
		return nil
	}
	return c.missing(c.api.get(ctx, c.path("vhosts/{vhost}")+"?columns=name", nil), noVHost)
}

func closeUserConnections(ctx context.Context, c *call) error {
	user, reason := c.operands[0], c.operands[1]
	c.banner("Closing connections of user %s, reason: %s...", user, reason)
	if _, err := c.closeThose(ctx, func(o object) bool { return o.text("user") == user }, reason); err != nil {
		return err
	}
	return c.done()
}

// closeThose closes the connections that match and returns their number. It does not count connections that were closed meanwhile.
func (c *call) closeThose(ctx context.Context, match func(object) bool, reason string) (closed int, err error) {
	var all []object
	if err := c.api.get(ctx, path("connections")+"?columns=name,user,vhost", &all); err != nil {
		return 0, err
	}
	limit, delay := c.number("limit"), c.number("per-connection-delay")
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

// pause waits for d, or until ctx ends.
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
