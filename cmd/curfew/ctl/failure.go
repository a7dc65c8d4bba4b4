package ctl

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/curfewmq/curfew/cmd/curfew/printable"
)

// The exit statuses are rabbitmqctl's, taken from BSD's sysexits.
const (
	usageError       = 64 // the command line is wrong; another broker would not change that
	dataError        = 65 // an operand or the input is invalid
	noUser           = 67
	unavailable      = 69 // the broker cannot be reached, or refuses the request
	softwareError    = 70 // something exists already
	temporaryFailure = 75 // it took too long, or may succeed later
	noPermission     = 77 // the API does not accept the user
)

// failure ends a command: an exit status, and the text to print.
type failure struct {
	status int
	text   string
}

func (f *failure) Error() string { return f.text }

// failed returns a failure that the broker reported.
func failed(status int, format string, args ...any) error {
	return &failure{status, "Error:\n" + fmt.Sprintf(format, args...)}
}

// misuse is an error in the command line.
type misuse struct {
	status  int
	problem string
}

func (m *misuse) Error() string { return m.problem }

func misused(format string, args ...any) error {
	return &misuse{usageError, fmt.Sprintf(format, args...)}
}

// report prints an error and returns the exit status.
func (p *Program) report(err error) int {
	if err == nil {
		return 0
	}
	if f, ok := errors.AsType[*failure](err); ok {
		fmt.Fprintln(p.Stderr, printable.Lines(f.text))
		return f.status
	}
	fmt.Fprintf(p.Stderr, "Error:\n%s\n", printable.Lines(err.Error()))
	return unavailable
}

func noSuchUser(name string) error { return failed(noUser, "User \"%s\" does not exist", name) }

// instead replaces the API's "not found" by e, because the API does not say what is missing.
func instead(err, e error) error {
	if isRefusal(err, http.StatusNotFound) {
		return e
	}
	return err
}

// Reasons why commands of rabbitmqctl do not exist here.
const (
	noErlang  = "this broker does not run on an Erlang node"
	noCluster = "the nodes of a cluster are listed in cluster.nodes; see \"cluster replace\""
	noMirrors = "there are no mirrored queues"
	noProcess = "the broker is an ordinary process: start it with \"curfew serve\", stop it with SIGTERM"
	noCipher  = "the configuration has no encrypted values"
	noMoving  = "there are no shovels and no federation; redrive moves messages inside the broker"
	noOther   = "the broker speaks only AMQP 0-9-1"
	noStreams = "there are no streams"
	noBackend = "the broker manages users, passwords and permissions itself"
	noGuard   = "virtual hosts cannot be protected from deletion; only administrators can delete them"
	noWatch   = "the broker always watches its disk; set_disk_free_limit sets how much must stay free"
	noList    = "drain closes the client listeners, and revive opens them again"
)

// absent returns why a command of rabbitmqctl does not exist here; "" if rabbitmqctl has no such command.
func absent(name string) string {
	for _, group := range []struct {
		reason string
		names  []string
	}{
		{noErlang, []string{
			"eval_file", "exec", "force_gc", "hipe_compile", "schema_info", "report", "remote_shell",
			"list_unresponsive_queues", "restart_vhost", "environment", "reset_stats_db", "resume_replica",
		}},
		{noCluster, []string{
			"join_cluster", "forget_cluster_node", "change_cluster_node_type", "rename_cluster_node", "update_cluster_nodes",
			"force_boot", "force_standalone_boot", "force_standalone_khepri_boot", "reset", "force_reset", "discover_peers",
		}},
		{noMirrors, []string{"sync_queue", "cancel_sync_queue"}},
		{noProcess, []string{"stop", "shutdown", "stop_app", "start_app", "rotate_logs"}},
		{noCipher, []string{"encode", "decode", "encrypt_conf_value", "decrypt_conf_value", "list_ciphers", "list_hashes"}},
		{noMoving, []string{"shovel_status", "restart_shovel", "delete_shovel", "federation_status", "restart_federation_link"}},
		{noOther, []string{
			"list_amqp10_connections", "list_mqtt_connections", "list_web_mqtt_connections", "decommission_mqtt_node",
			"list_stomp_connections", "list_web_stomp_connections",
		}},
		{noStreams, []string{
			"add_super_stream", "delete_super_stream", "activate_stream_consumer", "list_stream_connections", "list_stream_consumers",
			"list_stream_publishers", "list_stream_consumer_groups", "list_stream_group_consumers", "list_stream_tracking",
			"set_stream_retention_policy",
		}},
		{noBackend, []string{"clear_auth_backend_cache", "add_uaa_key", "add_signing_key"}},
		{noGuard, []string{
			"enable_vhost_protection_from_deletion", "disable_vhost_protection_from_deletion",
			"enable_vhost_deletion_protection", "disable_vhost_deletion_protection",
		}},
		{noWatch, []string{"activate_free_disk_space_monitoring", "deactivate_free_disk_space_monitoring"}},
		{noList, []string{"suspend_listeners", "resume_listeners"}},
	} {
		if slices.Contains(group.names, name) {
			return group.reason
		}
	}
	return ""
}
