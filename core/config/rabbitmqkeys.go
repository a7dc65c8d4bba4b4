package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// rabbitKey says how a key of RabbitMQ is translated. The first matching one applies.
type rabbitKey struct {
	pattern string // as in RabbitMQ's schema, see [rabbitLine.matches]
	key     string // our key, with how
	how     conversion
	part    string // the part of the translation that reads this key together with others, one of rabbitParts
	why     string // why there is no corresponding key
}

// conversion converts a value of RabbitMQ to one of ours.
type conversion struct {
	accepts string // RabbitMQ's form
	// convert returns a note if the result deviates from the original value. Its error continues a sentence that begins with the value.
	convert func(string) (value, note string, err error)
}

// Reasons that apply to several keys.
const (
	whyProtocols  = "only AMQP 0-9-1 is spoken here"
	whyErlang     = "is about the Erlang machine, which is not here"
	whyTLS        = "Go's TLS decides this, and has safe settings"
	whySockets    = "not to be set here; connections have TCP_NODELAY and keep-alives"
	whyLogins     = "users are the broker's own, with passwords or certificates (core/auth/README.md)"
	whyRaft       = "not to be set here: logs are made and trimmed by themselves"
	whyMirrors    = "no node or replica is chosen for a queue: all queues of a virtual host are together"
	whyDiscovery  = "cluster.nodes lists the three nodes of a cluster (core/cluster/README.md)"
	whyFixed      = "not to be set here"
	whyLogFile    = "the log goes to standard error, and the service manager keeps it"
	whyDefinition = "no file is read at the start: run curfew ctl import_definitions FILE once, when the broker runs"
	whyPolicies   = "set it when the broker runs: curfew ctl set_operator_policy, kept across restarts"
	whyLimits     = "set it for each virtual host when the broker runs: curfew ctl set_vhost_limits, kept across restarts"
	whyUsersBy    = "permissions here are for named virtual hosts: see auth.users"
)

// rabbitKeys are the keys of RabbitMQ 3.13 and its plugins, and the keys of 3.8 to 4.3 that 3.13 lacks.
var rabbitKeys = []rabbitKey{
	{pattern: "listeners.tcp", part: partListeners},
	{pattern: "listeners.tcp.$name", part: partListeners},
	{pattern: "listeners.ssl", part: partListeners},
	{pattern: "listeners.ssl.$name", part: partListeners},
	{pattern: "num_acceptors.*", why: whyErlang},
	{pattern: "socket_writer.*", why: whyErlang},
	{pattern: "tcp_listen_options", why: whySockets},
	{pattern: "tcp_listen_options.*", why: whySockets},
	{pattern: "ranch_connection_max", why: "limits.connections limits AMQP connections, and limits.management-connections those for HTTP"},
	{pattern: "reverse_dns_lookups", why: "addresses are not looked up"},
	{pattern: "proxy_protocol", part: partProxy},

	{pattern: "handshake_timeout", key: "limits.handshake-timeout", how: milliseconds(100*time.Millisecond, 10*time.Minute, true)},
	{pattern: "ssl_handshake_timeout", why: "limits.handshake-timeout is for the handshakes of TLS and AMQP together"},
	{pattern: "heartbeat", key: "limits.heartbeat", how: conversion{"seconds, 0 to 65535", wholeSeconds}},
	{pattern: "frame_max", key: "limits.frame-max", how: conversion{"a size such as 131072 or 128KB (1024 bytes)", frameMax}},
	{pattern: "initial_frame_max", why: "frames before connection.tune have up to 8 KiB"},
	{pattern: "channel_max", key: "limits.channels", how: channels},
	{pattern: "max_channels_per_connection", key: "limits.channels", how: channels},
	{pattern: "channel_max_per_node", why: "limits.channels is per connection"},
	{pattern: "session_max_per_connection", why: whyProtocols},
	{pattern: "link_max_per_session", why: whyProtocols},
	{pattern: "consumer_max_per_channel", key: "limits.consumers", how: most("0 is no limit here")},
	{pattern: "connection_max", key: "limits.connections", how: most("0 admits no client there, and means no limit here")},
	{pattern: "max_connections", key: "limits.connections", how: most("0 admits no client there, and means no limit here")},
	{pattern: "vhost_max", why: "the number of virtual hosts has no limit"},
	{pattern: "cluster_queue_limit", why: "curfew ctl set_vhost_limits limits the queues of a virtual host"},
	{pattern: "cluster_exchange_limit", why: "the number of exchanges has no limit"},
	{pattern: "max_message_size", key: "limits.message-size", how: conversion{"bytes, 1 to 536870912", plainBytes}},
	{pattern: "consumer_timeout", key: "limits.consumer-timeout", how: milliseconds(time.Millisecond, 365*day, false)},

	{pattern: "vm_memory_high_watermark.relative", part: partWatermarks},
	{pattern: "vm_memory_high_watermark.absolute", part: partWatermarks},
	{pattern: "vm_memory_high_watermark_paging_ratio", why: "bodies beyond memory.bodies are on the disk, whatever the watermark is"},
	{pattern: "vm_memory_calculation_strategy", why: "limits.memory-watermark is for the memory that the broker counts itself"},
	{pattern: "total_memory_available_override_value", why: "the memory is the machine's, or the limit of its control group; limits.memory-watermark may be a size"},
	{pattern: "memory_monitor_interval", why: whyFixed},
	{pattern: "disk_free_limit.relative", part: partWatermarks},
	{pattern: "disk_free_limit.absolute", part: partWatermarks},
	{pattern: "queue_index_embed_msgs_below", why: whyRaft},

	{pattern: "default_user", part: partUser},
	{pattern: "default_pass", part: partUser},
	{pattern: "default_vhost", part: partUser},
	{pattern: "default_permissions.configure", part: partUser},
	{pattern: "default_permissions.write", part: partUser},
	{pattern: "default_permissions.read", part: partUser},
	{pattern: "default_user_tags.$tag", part: partUser},
	{pattern: "default_users.$name.*", why: whyUsersBy},
	{pattern: "loopback_users", part: partLoopback},
	{pattern: "loopback_users.$user", part: partLoopback},
	{pattern: "password_hashing_module", part: partHashing},
	{pattern: "credential_validator.*", why: "passwords are not checked for their length or form"},
	{pattern: "default_policies.operator.$id.*", why: whyPolicies},
	{pattern: "default_limits.vhosts.$id.*", why: whyLimits},
	{pattern: "default_queue_type", why: "each virtual host has its own: curfew ctl update_vhost_metadata VHOST --default-queue-type TYPE"},
	{pattern: "runtime_parameters.*", why: whyFixed},
	{pattern: "message_interceptors.*", why: "no header is added to messages"},
	{pattern: "channel_interceptor.*", why: "there are no interceptors"},

	{pattern: "auth_mechanisms.$name", part: partCertificates},
	{pattern: "ssl_cert_login_from", part: partCertificates},
	{pattern: "ssl_cert_login_san_type", part: partCertificates},
	{pattern: "ssl_cert_login_san_index", part: partCertificates},
	{pattern: "auth_backends.$num", part: partBackends},
	{pattern: "auth_backends.$num.authn", part: partBackends},
	{pattern: "auth_backends.$num.authz", part: partBackends},
	{pattern: "auth_cache.*", why: whyLogins},
	{pattern: "auth_ldap.*", why: whyLogins},
	{pattern: "auth_http.*", why: whyLogins},
	{pattern: "auth_oauth2.*", why: whyLogins},
	{pattern: "auth_internal_loopback.*", why: whyLogins},
	{pattern: "anonymous_login_user", why: whyLogins},
	{pattern: "anonymous_login_pass", why: whyLogins},
	{pattern: "trust_store.*", why: "tls.ca names the authorities whose certificates are trusted"},

	{pattern: "ssl_options.cacertfile", part: partTLS},
	{pattern: "ssl_options.certfile", part: partTLS},
	{pattern: "ssl_options.keyfile", part: partTLS},
	{pattern: "ssl_options.verify", part: partTLS},
	{pattern: "ssl_options.fail_if_no_peer_cert", part: partTLS},
	{pattern: "ssl_options.versions.$version", part: partTLS},
	{pattern: "ssl_options.password", why: "tls.key has to be a key without a passphrase: openssl pkey takes it off"},
	{pattern: "ssl_options", why: whyTLS},
	{pattern: "ssl_options.*", why: whyTLS},
	{pattern: "ssl_allow_poodle_attack", why: "SSL 3 is not spoken"},
	{pattern: "amqp_client.ssl_options", why: "the broker makes no AMQP connections"},
	{pattern: "amqp_client.ssl_options.*", why: "the broker makes no AMQP connections"},

	{pattern: "management.tcp.port", part: partManagement},
	{pattern: "management.tcp.ip", part: partManagement},
	{pattern: "management.tcp.max_connections", key: "limits.management-connections", how: most("0 is no limit here")},
	{pattern: "management.tcp.*", why: whyFixed},
	{pattern: "management.ssl.port", part: partManagement},
	{pattern: "management.ssl.ip", part: partManagement},
	{pattern: "management.ssl.max_connections", key: "limits.management-connections", how: most("0 is no limit here")},
	{pattern: "management.ssl.cacertfile", part: partTLS},
	{pattern: "management.ssl.certfile", part: partTLS},
	{pattern: "management.ssl.keyfile", part: partTLS},
	{pattern: "management.ssl.verify", part: partTLS},
	{pattern: "management.ssl.fail_if_no_peer_cert", part: partTLS},
	{pattern: "management.ssl.versions.$version", part: partTLS},
	{pattern: "management.ssl.password", why: "tls.key has to be a key without a passphrase: openssl pkey takes it off"},
	{pattern: "management.ssl.*", why: whyTLS},
	{pattern: "management.listener.port", part: partManagement},
	{pattern: "management.listener.ip", part: partManagement},
	{pattern: "management.listener.ssl", part: partManagement},
	{pattern: "management.listener.ssl_opts.cacertfile", part: partTLS},
	{pattern: "management.listener.ssl_opts.certfile", part: partTLS},
	{pattern: "management.listener.ssl_opts.keyfile", part: partTLS},
	{pattern: "management.listener.ssl_opts.verify", part: partTLS},
	{pattern: "management.listener.ssl_opts.fail_if_no_peer_cert", part: partTLS},
	{pattern: "management.listener.ssl_opts.versions.$version", part: partTLS},
	{pattern: "management.listener.ssl_opts", why: whyTLS},
	{pattern: "management.listener.ssl_opts.*", why: whyTLS},
	{pattern: "management.listener.server.*", why: whyFixed},
	{pattern: "management.http.max_body_size", key: "management.body-size", how: conversion{"bytes, 0 and above", bodySize}},
	{pattern: "management.http.*", why: whyFixed},
	{pattern: "management.http_log_dir", why: "requests are not logged to a file"},
	{pattern: "http_dispatch.access_log_dir", why: "requests are not logged to a file"},
	{pattern: "management.login_session_timeout", key: "management.session", how: conversion{"minutes, 0 and above", minutes}},
	{pattern: "management.restrictions.operator_policy_changes.disabled", key: "management.operator-policy-changes", how: conversion{"true or false", negated}},
	{pattern: "management.restrictions.*", why: "queues have no replicas of their own"},
	{pattern: "management.load_definitions", why: whyDefinition},
	{pattern: "management.definitions.*", why: whyFixed},
	{pattern: "management.path_prefix", why: "paths begin at /; a proxy in front may take a prefix off"},
	{pattern: "management.rates_mode", why: "rates are always there (management.rates-interval)"},
	{pattern: "management.sample_retention_policies.*", why: "no history is kept: Prometheus keeps it"},
	{pattern: "management.disable_stats", why: "numbers are always there"},
	{pattern: "management.enable_queue_totals", why: "numbers are always there"},
	{pattern: "management.db_cache_multiplier", why: whyFixed},
	{pattern: "management.delegate_count", why: whyErlang},
	{pattern: "management.credential_encryption_secret", why: "logins to the page are kept in the broker, not in the browser (management.session)"},
	{pattern: "management.require_auth_for_api_reference", why: whyFixed},
	{pattern: "management.cors.*", why: "pages of other origins cannot use the API"},
	{pattern: "management.csp.*", why: whyFixed},
	{pattern: "management.hsts.*", why: "let a proxy in front add the header"},
	{pattern: "management.headers.*", why: whyFixed},
	{pattern: "management.disable_basic_auth", why: whyLogins},
	{pattern: "management.enable_uaa", why: whyLogins},
	{pattern: "management.uaa_client_id", why: whyLogins},
	{pattern: "management.uaa_location", why: whyLogins},
	{pattern: "management.oauth_enabled", why: whyLogins},
	{pattern: "management.oauth_disable_basic_auth", why: whyLogins},
	{pattern: "management.oauth_provider_url", why: whyLogins},
	{pattern: "management.oauth_client_id", why: whyLogins},
	{pattern: "management.oauth_client_secret", why: whyLogins},
	{pattern: "management.oauth_response_type", why: whyLogins},
	{pattern: "management.oauth_metadata_url", why: whyLogins},
	{pattern: "management.oauth_scopes", why: whyLogins},
	{pattern: "management.oauth_initiated_logon_type", why: whyLogins},
	{pattern: "management.oauth_authorization_endpoint_params.*", why: whyLogins},
	{pattern: "management.oauth_token_endpoint_params.*", why: whyLogins},
	{pattern: "management.oauth_resource_servers.*", why: whyLogins},
	{pattern: "management_agent.*", why: "numbers are always there (telemetry.metrics.queues)"},
	{pattern: "collect_statistics", why: "numbers are always there (telemetry.metrics.queues)"},
	{pattern: "collect_statistics_interval", key: "management.rates-interval", how: milliseconds(time.Second, 10*time.Minute, false)},
	{pattern: "prometheus.tcp.port", part: partManagement},
	{pattern: "prometheus.tcp.ip", part: partManagement},
	{pattern: "prometheus.tcp.*", why: whyFixed},
	{pattern: "prometheus.path", why: "the path is /metrics"},
	{pattern: "prometheus.return_per_object_metrics", why: "telemetry.metrics.queues says how many queues have series at /metrics; /metrics/per-object has all"},
	{pattern: "prometheus.ssl.*", why: "listen.metrics has no TLS; listen.management-tls serves /metrics with a login"},
	{pattern: "prometheus.authentication.*", why: "listen.metrics needs no login; listen.management-tls serves /metrics with one"},
	{pattern: "prometheus.filter_aggregated_queue_metrics_pattern", why: whyFixed},

	{pattern: "load_definitions", why: whyDefinition},
	{pattern: "definitions.*", why: whyDefinition},

	{pattern: "log.console.level", part: partLog},
	{pattern: "log.console.formatter", part: partLog},
	{pattern: "log.file.level", part: partLog},
	{pattern: "log.file.formatter", part: partLog},
	{pattern: "log.default.level", part: partLog},
	{pattern: "log.journald.level", part: partLog},
	{pattern: "log.syslog.level", part: partLog},
	{pattern: "log.syslog.formatter", part: partLog},
	{pattern: "log.console", why: "the log always goes to standard error"},
	{pattern: "log.console.stdio", why: "the log always goes to standard error"},
	{pattern: "log.console.*", why: "log.format is auto, text or json, and no more"},
	{pattern: "log.dir", why: whyLogFile},
	{pattern: "log.file", why: whyLogFile},
	{pattern: "log.file.rotation.*", why: whyLogFile},
	{pattern: "log.file.*", why: "log.format is auto, text or json, and no more"},
	{pattern: "log.default.rotation.*", why: whyLogFile},
	{pattern: "log.exchange", why: "the log is not published; events are: curfew ctl events"},
	{pattern: "log.exchange.*", why: "the log is not published; events are: curfew ctl events"},
	{pattern: "log.journald", why: "in systemd's journal log.format: auto has priorities, and no more is to be set"},
	{pattern: "log.journald.*", why: "in systemd's journal log.format: auto has priorities, and no more is to be set"},
	{pattern: "log.syslog", why: whyLogFile},
	{pattern: "log.syslog.*", why: whyLogFile},
	{pattern: "log.$category.level", why: "log.level is for all of the log"},
	{pattern: "log.$category.file", why: whyLogFile},
	{pattern: "log.$category.rotation.*", why: whyLogFile},
	{pattern: "motd_file", why: "there is no banner"},

	{pattern: "cluster_name", part: partCluster},
	{pattern: "cluster_formation.classic_config.nodes.$node", part: partCluster},
	{pattern: "cluster_formation.*", why: whyDiscovery},
	{pattern: "cluster_partition_handling", why: "a node without a second one stops by itself, and nothing is lost: there is nothing to choose"},
	{pattern: "cluster_partition_handling.*", why: "a node without a second one stops by itself, and nothing is lost: there is nothing to choose"},
	{pattern: "cluster_keepalive_interval", why: "cluster.election says how long a node may be silent"},
	{pattern: "net_ticktime", why: "cluster.election says how long a node may be silent"},
	{pattern: "cluster_tags.*", why: "clusters have no tags"},
	{pattern: "node_tags.*", why: "nodes have no tags"},
	{pattern: "aws.*", why: whyDiscovery},
	{pattern: "queue_master_locator", why: whyMirrors},
	{pattern: "queue_leader_locator", why: whyMirrors},
	{pattern: "mirroring_sync_batch_size", why: whyMirrors},
	{pattern: "mirroring_sync_max_throughput", why: whyMirrors},
	{pattern: "quorum_queue.property_equivalence.*", why: "a queue that is declared again with another type or other arguments is refused"},
	{pattern: "quorum_queue.initial_cluster_size", why: whyMirrors},
	{pattern: "quorum_queue.continuous_membership_reconciliation.*", why: whyMirrors},
	{pattern: "quorum_queue.*", why: whyRaft},
	{pattern: "classic_queue.*", why: whyRaft},
	{pattern: "raft.*", why: whyRaft},
	{pattern: "metadata_store.*", why: whyRaft},
	{pattern: "message_store_shutdown_timeout", why: whyRaft},
	{pattern: "vhost_restart_strategy", why: whyRaft},
	{pattern: "mnesia_table_loading_retry_timeout", why: whyRaft},
	{pattern: "mnesia_table_loading_retry_limit", why: whyRaft},

	{pattern: "distribution.*", why: whyErlang},
	{pattern: "delegate_count", why: whyErlang},
	{pattern: "default_worker_pool_size", why: whyErlang},
	{pattern: "background_gc_enabled", why: whyErlang},
	{pattern: "background_gc_target_interval", why: whyErlang},
	{pattern: "hipe_compile", why: whyErlang},
	{pattern: "erlang.*", why: whyErlang},
	{pattern: "sysmon_handler.*", why: whyErlang},
	{pattern: "deprecated_features.*", why: "no feature is to be permitted"},
	{pattern: "product.name", key: "compat.product", how: conversion{"text", asIs}},
	{pattern: "product.version", key: "compat.version", how: conversion{"text", asIs}},

	{pattern: "mqtt.*", why: whyProtocols},
	{pattern: "stomp.*", why: whyProtocols},
	{pattern: "stream.*", why: "there are no streams"},
	{pattern: "amqp1_0.*", why: whyProtocols},
	{pattern: "web_mqtt.*", why: whyProtocols},
	{pattern: "web_stomp.*", why: whyProtocols},
	{pattern: "web_mqtt_examples.*", why: whyProtocols},
	{pattern: "web_stomp_examples.*", why: whyProtocols},
	{pattern: "event_exchange.*", why: "events go over HTTP: curfew ctl events"},
	{pattern: "shovel.*", why: "there are no shovels"},
	{pattern: "federation.*", why: "there is no federation"},
	{pattern: "tracing.*", why: "traces are not written to files: curfew ctl trace_on publishes them"},
}

func whole(s string) (int64, error) {
	n, err := parseInt(s)
	if err == nil && n < 0 {
		err = errors.New("is negative")
	}
	return n, err
}

func asIs(s string) (value, note string, err error) { return s, "", nil }

func wholeSeconds(s string) (value, note string, err error) {
	n, err := whole(s)
	return strconv.FormatInt(n, 10) + "s", "", err
}

// nearestOf returns the nearest allowed value, and a note if it differs from v.
func nearestOf[T int64 | time.Duration | Size](v, low, high T, format func(T) string) (value, note string) {
	switch {
	case v < low:
		return format(low), "the least here is " + format(low)
	case v > high:
		return format(high), "the most here is " + format(high)
	}
	return format(v), ""
}

// milliseconds converts to a duration between low and high.
func milliseconds(low, high time.Duration, infinity bool) conversion {
	accepts := "milliseconds, 1 and above"
	if infinity {
		accepts = "milliseconds, or infinity"
	}
	return conversion{accepts, func(s string) (value, note string, err error) {
		if infinity && s == "infinity" {
			return FormatDuration(high), "the most here is " + FormatDuration(high), nil
		}
		n, err := whole(s)
		if err == nil && n == 0 && !infinity {
			err = errOutOfRange
		}
		d := high + 1 // beyond the maximum
		if n <= int64(high/time.Millisecond) {
			d = time.Duration(n) * time.Millisecond
		}
		value, note = nearestOf(d, low, high, FormatDuration)
		return value, note, err
	}}
}

func minutes(s string) (value, note string, err error) {
	n, err := whole(s)
	value, note = nearestOf(time.Duration(min(n, 100_000))*time.Minute, time.Minute, 30*day, FormatDuration)
	return value, note, err
}

var channels = conversion{"a whole number, 0 = no limit", func(s string) (value, note string, err error) {
	n, err := whole(s)
	if n == 0 {
		return "65535", "no connection has more", err
	}
	return formatInt(n), "", err
}}

// most converts a limit for which 0 has another meaning here.
func most(zero string) conversion {
	return conversion{"a whole number, or infinity", func(s string) (value, note string, err error) {
		if s == "infinity" {
			return "0", "", nil
		}
		n, err := whole(s)
		if err == nil && n == 0 {
			err = fmt.Errorf("cannot be translated: %s", zero)
		}
		return formatInt(n), "", err
	}}
}

func plainBytes(s string) (value, note string, err error) {
	n, err := whole(s)
	return Size(n).String(), "", err
}

func bodySize(s string) (value, note string, err error) {
	n, err := whole(s)
	value, note = nearestOf(Size(n), 64*kiB, giB, Size.String)
	return value, note, err
}

func negated(s string) (value, note string, err error) {
	b, err := parseBool(s)
	return strconv.FormatBool(!b), "", err
}

// frameMax converts a size whose units are powers of 1024, whatever their names. 0 means no limit.
func frameMax(s string) (value, note string, err error) {
	n, err := unitSize(s, map[string]Size{"": 1, "kb": kiB, "mb": miB, "gb": giB, "k": kiB, "kib": kiB, "m": miB, "mib": miB, "g": giB, "gib": giB})
	if err == nil && n == 0 {
		n = 16*miB + 1
	}
	if n > 16*miB {
		return (16 * miB).String(), "the most here is " + (16 * miB).String(), err
	}
	return n.String(), "", err
}

const informationUnits = "bytes, or a size such as 2GB (1000s), 2GiB or 2G (1024s)"

// informationSize reads a size as RabbitMQ reads sizes of memory and disks.
func informationSize(s string) (Size, error) {
	return unitSize(s, map[string]Size{
		"": 1, "k": kiB, "kib": kiB, "m": miB, "mib": miB, "g": giB, "gib": giB, "t": tiB, "tib": tiB, "p": 1024 * tiB, "pib": 1024 * tiB,
		"kb": 1e3, "mb": mb, "gb": 1e9, "tb": 1e12, "pb": 1e15,
	})
}

func unitSize(s string, units map[string]Size) (Size, error) {
	number := strings.TrimRight(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	unit, known := units[strings.ToLower(s[len(number):])]
	n, err := strconv.ParseInt(number, 10, 64)
	switch {
	case !known || err != nil || n < 0:
		return 0, errors.New("is not a size")
	case n > math.MaxInt64/int64(unit):
		return 0, errOutOfRange
	}
	return Size(n) * unit, nil
}
