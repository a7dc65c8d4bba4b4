package ctl

import "slices"

// Why commands of rabbitmqctl are missing.
const (
	noErlang  = "there is no Erlang node behind this broker"
	noCluster = "the nodes of a cluster are those of cluster.nodes; see \"cluster replace\""
	noMirrors = "there are no mirrored queues"
	noProcess = "the broker is a process of the system: start it with \"curfew serve\", stop it with SIGTERM"
	noCipher  = "the configuration holds no encrypted values"
	noList    = "drain closes the listeners of clients, and revive opens them again"
)

// absent returns why a command of rabbitmqctl does not exist here; "" if rabbitmqctl has no such command.
func absent(name string) string {
	for _, group := range []struct {
		reason string
		names  []string
	}{
		{noErlang, []string{
			"eval", "eval_file", "exec", "force_gc", "hipe_compile", "schema_info", "report", "remote_shell",
			"list_unresponsive_queues", "restart_vhost", "environment",
		}},
		{noCluster, []string{
			"join_cluster", "forget_cluster_node", "change_cluster_node_type", "rename_cluster_node", "update_cluster_nodes",
			"force_boot", "force_standalone_boot", "reset", "force_reset",
		}},
		{noMirrors, []string{"sync_queue", "cancel_sync_queue"}},
		{noProcess, []string{"stop", "shutdown", "stop_app", "start_app", "rotate_logs"}},
		{noCipher, []string{"encode", "decode", "encrypt_conf_value", "decrypt_conf_value", "list_ciphers", "list_hashes"}},
		{noList, []string{"suspend_listeners", "resume_listeners"}},
	} {
		if slices.Contains(group.names, name) {
			return group.reason
		}
	}
	return ""
}
