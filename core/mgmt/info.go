package mgmt

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/curfewmq/curfew/core/mgmt/definitions"
)

// index lists the paths for people.
func (a *API) index(c *request) error {
	var b strings.Builder
	b.WriteString(a.Product + " " + a.Version + ", management HTTP API\n\nThe paths, shapes and status codes are RabbitMQ's; (+) marks requests that it does not have. There are:\n\n")
	for _, r := range a.router.routes {
		for _, e := range r.endpoints {
			about := reference[e.method+" "+r.path]
			mark := ""
			if about.from == ours {
				mark = " (+)"
			}
			fmt.Fprintf(&b, "%-6s %s%s\n         %s\n", e.method, root+r.path, mark, about.does)
		}
	}
	c.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = c.w.Write([]byte(b.String())) // if the client is gone, the server notices
	return nil
}

func whoami(c *request) error {
	return c.reply(object{{"name", c.user.Name}, {"tags", definitions.Tags(c.user.Tags)}})
}

// authSettings says that the only way to log in is the one that the request used.
func authSettings(c *request) error {
	return c.reply(object{{"enable_uaa", false}, {"oauth_enabled", false}, {"uaa_client_id", ""}, {"uaa_location", ""}})
}

// nothing answers with an empty list, without pages: plugins cannot extend anything, logins are not counted by address, and no feature is
// deprecated.
func nothing(c *request) error {
	c.query = query{}
	return listObjects(c, nil)
}

// features are the feature flags that tools look for, with descriptions.
var features = [...][2]string{
	{"drop_unroutable_metric", "Count unroutable publishes to be dropped in stats"},
	{"empty_basic_get_metric", "Count AMQP `basic.get` on empty queues in stats"},
	{"implicit_default_bindings", "Bindings to the default exchange are implicit"},
	{"maintenance_mode_status", "Maintenance mode status"},
	{"quorum_queue", "Support queues of type `quorum`"},
	// Clients ask for it because at-least-once dead-lettering came to RabbitMQ with streams.
	{"stream_queue", "At-least-once dead-lettering; queues of type `stream` are not offered"},
	{"user_limits", "Configure connection and channel limits for a user"},
	{"virtual_host_metadata", "Virtual host metadata (description, tags, etc)"},
}

// enableFeature has nothing to do: all features are enabled.
func enableFeature(c *request) error {
	for _, f := range features {
		if f[0] == c.vars["flag"] {
			return c.done(nil)
		}
	}
	return badRequest("unsupported")
}

func featureFlags(c *request) error {
	var all []object
	for _, f := range features {
		all = append(all, object{
			{"name", f[0]}, {"desc", f[1]}, {"doc_url", ""}, {"state", "enabled"}, {"stability", "stable"}, {"provided_by", "curfew"},
		})
	}
	return listObjects(c, all)
}

// toolText is the answer at /cli, where RabbitMQ's users download rabbitmqadmin. As a shell script it does nothing, because "curl -o
// rabbitmqadmin" without --fail stores it in a file.
const toolText = `# Not found: rabbitmqadmin is RabbitMQ's, and this broker does not serve it. It works with this broker:
#
#   - on Debian and Ubuntu it is /usr/bin/rabbitmqadmin of the package rabbitmq-server. To have it without the broker of that package:
#       apt-get download rabbitmq-server && dpkg-deb -x rabbitmq-server_*.deb .
#     and then run usr/bin/rabbitmqadmin;
#   - elsewhere, download it from the releases of RabbitMQ (rabbitmqadmin of the 3.x series, in Python),
#     or from those of rabbitmqadmin-ng (a program without dependencies).
#
# "curfew ctl" needs no download: it has the commands of rabbitmqctl, and speaks to this port. "curfew ctl help" lists them:
#   curfew ctl list_queues name messages         in place of  rabbitmqadmin list queues name messages
#   curfew ctl export_definitions FILE           in place of  rabbitmqadmin export FILE
#   curfew ctl import_definitions FILE           in place of  rabbitmqadmin import FILE
# Queues, exchanges and bindings are declared, and messages published, through the HTTP API: /api/index.html lists its paths.
`

// noTool answers for all paths below /cli.
func noTool(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusNotFound)
	_, _ = w.Write([]byte(toolText)) // if the client is gone, the server notices
}
