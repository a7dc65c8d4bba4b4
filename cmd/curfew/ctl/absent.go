package ctl

import "slices"

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
