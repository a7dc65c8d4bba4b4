package mgmt

import "net/http"

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
