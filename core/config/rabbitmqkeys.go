package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// rabbitKey says how keys of RabbitMQ are translated. The first matching one applies.
type rabbitKey struct {
	patterns string // as in RabbitMQ's schema, with a space between two: see [rabbitLine.matches]
	key      string // our key, with how
	how      conversion
	part     string // the part of the translation that reads these keys together with others, one of rabbitParts
	why      string // why there is no corresponding key
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
	{patterns: "listeners.tcp listeners.tcp.$name listeners.ssl listeners.ssl.$name", part: partListeners},
	{patterns: "num_acceptors.* socket_writer.*", why: whyErlang},
	{patterns: "tcp_listen_options tcp_listen_options.*", why: whySockets},
	{patterns: "ranch_connection_max", why: "limits.connections limits AMQP connections, and limits.management-connections those for HTTP"},
	{patterns: "reverse_dns_lookups", why: "addresses are not looked up"},
	{patterns: "proxy_protocol", part: partProxy},

	{patterns: "handshake_timeout", key: "limits.handshake-timeout", how: milliseconds(100*time.Millisecond, 10*time.Minute, true)},
	{patterns: "ssl_handshake_timeout", why: "limits.handshake-timeout is for the handshakes of TLS and AMQP together"},
	{patterns: "heartbeat", key: "limits.heartbeat", how: conversion{"seconds, 0 to 65535", wholeSeconds}},
	{patterns: "frame_max", key: "limits.frame-max", how: conversion{"a size such as 131072 or 128KB (1024 bytes)", frameMax}},
	{patterns: "initial_frame_max", why: "frames before connection.tune have up to 8 KiB"},
	{patterns: "channel_max max_channels_per_connection", key: "limits.channels", how: channels},
	{patterns: "channel_max_per_node", why: "limits.channels is per connection"},
	{patterns: "session_max_per_connection link_max_per_session", why: whyProtocols},
	{patterns: "consumer_max_per_channel", key: "limits.consumers", how: most("0 is no limit here")},
	{patterns: "connection_max max_connections", key: "limits.connections", how: most("0 admits no client there, and means no limit here")},
	{patterns: "vhost_max", why: "the number of virtual hosts has no limit"},
	{patterns: "cluster_queue_limit", why: "curfew ctl set_vhost_limits limits the queues of a virtual host"},
	{patterns: "cluster_exchange_limit", why: "the number of exchanges has no limit"},
	{patterns: "max_message_size", key: "limits.message-size", how: conversion{"bytes, 1 to 536870912", plainBytes}},
	{patterns: "consumer_timeout", key: "limits.consumer-timeout", how: milliseconds(time.Millisecond, 365*day, false)},

	{patterns: "vm_memory_high_watermark.relative vm_memory_high_watermark.absolute", part: partWatermarks},
	{patterns: "vm_memory_high_watermark_paging_ratio", why: "bodies beyond memory.bodies are on the disk, whatever the watermark is"},
	{patterns: "vm_memory_calculation_strategy", why: "limits.memory-watermark is for the memory that the broker counts itself"},
	{patterns: "total_memory_available_override_value", why: "the memory is the machine's, or the limit of its control group; limits.memory-watermark may be a size"},
	{patterns: "memory_monitor_interval", why: whyFixed},
	{patterns: "disk_free_limit.relative disk_free_limit.absolute", part: partWatermarks},
	{patterns: "queue_index_embed_msgs_below", why: whyRaft},

	{patterns: "default_user default_pass default_vhost default_permissions.configure default_permissions.write " +
		"default_permissions.read default_user_tags.$tag", part: partUser},
	{patterns: "default_users.$name.*", why: whyUsersBy},
	{patterns: "loopback_users loopback_users.$user", part: partLoopback},
	{patterns: "password_hashing_module", part: partHashing},
	{patterns: "credential_validator.*", why: "passwords are not checked for their length or form"},
	{patterns: "default_policies.operator.$id.*", why: whyPolicies},
	{patterns: "default_limits.vhosts.$id.*", why: whyLimits},
	{patterns: "default_queue_type", why: "each virtual host has its own: curfew ctl update_vhost_metadata VHOST --default-queue-type TYPE"},
	{patterns: "runtime_parameters.*", why: whyFixed},
	{patterns: "message_interceptors.*", why: "no header is added to messages"},
	{patterns: "channel_interceptor.*", why: "there are no interceptors"},

	{patterns: "auth_mechanisms.$name ssl_cert_login_from ssl_cert_login_san_type ssl_cert_login_san_index", part: partCertificates},
	{patterns: "auth_backends.$num auth_backends.$num.authn auth_backends.$num.authz", part: partBackends},
	{patterns: "auth_cache.* auth_ldap.* auth_http.* auth_oauth2.* auth_internal_loopback.* anonymous_login_user " +
		"anonymous_login_pass", why: whyLogins},
	{patterns: "trust_store.*", why: "tls.ca names the authorities whose certificates are trusted"},

	{patterns: "ssl_options.cacertfile ssl_options.certfile ssl_options.keyfile ssl_options.verify ssl_options.fail_if_no_peer_cert " +
		"ssl_options.versions.$version", part: partTLS},
	{patterns: "ssl_options.password", why: "tls.key has to be a key without a passphrase: openssl pkey takes it off"},
	{patterns: "ssl_options ssl_options.*", why: whyTLS},
	{patterns: "ssl_allow_poodle_attack", why: "SSL 3 is not spoken"},
	{patterns: "amqp_client.ssl_options amqp_client.ssl_options.*", why: "the broker makes no AMQP connections"},

	{patterns: "management.tcp.port management.tcp.ip", part: partManagement},
	{patterns: "management.tcp.max_connections", key: "limits.management-connections", how: most("0 is no limit here")},
	{patterns: "management.tcp.*", why: whyFixed},
	{patterns: "management.ssl.port management.ssl.ip", part: partManagement},
	{patterns: "management.ssl.max_connections", key: "limits.management-connections", how: most("0 is no limit here")},
	{patterns: "management.ssl.cacertfile management.ssl.certfile management.ssl.keyfile management.ssl.verify " +
		"management.ssl.fail_if_no_peer_cert management.ssl.versions.$version", part: partTLS},
	{patterns: "management.ssl.password", why: "tls.key has to be a key without a passphrase: openssl pkey takes it off"},
	{patterns: "management.ssl.*", why: whyTLS},
	{patterns: "management.listener.port management.listener.ip management.listener.ssl", part: partManagement},
	{patterns: "management.listener.ssl_opts.cacertfile management.listener.ssl_opts.certfile management.listener.ssl_opts.keyfile " +
		"management.listener.ssl_opts.verify management.listener.ssl_opts.fail_if_no_peer_cert " +
		"management.listener.ssl_opts.versions.$version", part: partTLS},
	{patterns: "management.listener.ssl_opts management.listener.ssl_opts.*", why: whyTLS},
	{patterns: "management.listener.server.*", why: whyFixed},
	{patterns: "management.http.max_body_size", key: "management.body-size", how: conversion{"bytes, 0 and above", bodySize}},
	{patterns: "management.http.*", why: whyFixed},
	{patterns: "management.http_log_dir http_dispatch.access_log_dir", why: "requests are not logged to a file"},
	{patterns: "management.login_session_timeout", key: "management.session", how: conversion{"minutes, 0 and above", minutes}},
	{patterns: "management.restrictions.operator_policy_changes.disabled", key: "management.operator-policy-changes", how: conversion{"true or false", negated}},
	{patterns: "management.restrictions.*", why: "queues have no replicas of their own"},
	{patterns: "management.load_definitions", why: whyDefinition},
	{patterns: "management.definitions.*", why: whyFixed},
	{patterns: "management.path_prefix", why: "paths begin at /; a proxy in front may take a prefix off"},
	{patterns: "management.rates_mode", why: "rates are always there (management.rates-interval)"},
	{patterns: "management.sample_retention_policies.*", why: "no history is kept: Prometheus keeps it"},
	{patterns: "management.disable_stats management.enable_queue_totals", why: "numbers are always there"},
	{patterns: "management.db_cache_multiplier", why: whyFixed},
	{patterns: "management.delegate_count", why: whyErlang},
	{patterns: "management.credential_encryption_secret", why: "logins to the page are kept in the broker, not in the browser (management.session)"},
	{patterns: "management.require_auth_for_api_reference", why: whyFixed},
	{patterns: "management.cors.*", why: "pages of other origins cannot use the API"},
	{patterns: "management.csp.*", why: whyFixed},
	{patterns: "management.hsts.*", why: "let a proxy in front add the header"},
	{patterns: "management.headers.*", why: whyFixed},
	{patterns: "management.disable_basic_auth management.enable_uaa management.uaa_client_id management.uaa_location " +
		"management.oauth_enabled management.oauth_disable_basic_auth management.oauth_provider_url " +
		"management.oauth_client_id management.oauth_client_secret management.oauth_response_type " +
		"management.oauth_metadata_url management.oauth_scopes management.oauth_initiated_logon_type " +
		"management.oauth_authorization_endpoint_params.* management.oauth_token_endpoint_params.* " +
		"management.oauth_resource_servers.*", why: whyLogins},
	{patterns: "management_agent.* collect_statistics", why: "numbers are always there (telemetry.metrics.queues)"},
	{patterns: "collect_statistics_interval", key: "management.rates-interval", how: milliseconds(time.Second, 10*time.Minute, false)},
	{patterns: "prometheus.tcp.port prometheus.tcp.ip", part: partManagement},
	{patterns: "prometheus.tcp.*", why: whyFixed},
	{patterns: "prometheus.path", why: "the path is /metrics"},
	{patterns: "prometheus.return_per_object_metrics", why: "telemetry.metrics.queues says how many queues have series at /metrics; /metrics/per-object has all"},
	{patterns: "prometheus.ssl.*", why: "listen.metrics has no TLS; listen.management-tls serves /metrics with a login"},
	{patterns: "prometheus.authentication.*", why: "listen.metrics needs no login; listen.management-tls serves /metrics with one"},
	{patterns: "prometheus.filter_aggregated_queue_metrics_pattern", why: whyFixed},

	{patterns: "load_definitions definitions.*", why: whyDefinition},

	{patterns: "log.console.level log.console.formatter log.file.level log.file.formatter log.default.level log.journald.level " +
		"log.syslog.level log.syslog.formatter", part: partLog},
	{patterns: "log.console log.console.stdio", why: "the log always goes to standard error"},
	{patterns: "log.console.*", why: "log.format is auto, text or json, and no more"},
	{patterns: "log.dir log.file log.file.rotation.*", why: whyLogFile},
	{patterns: "log.file.*", why: "log.format is auto, text or json, and no more"},
	{patterns: "log.default.rotation.*", why: whyLogFile},
	{patterns: "log.exchange log.exchange.*", why: "the log is not published; events are: curfew ctl events"},
	{patterns: "log.journald log.journald.*", why: "in systemd's journal log.format: auto has priorities, and no more is to be set"},
	{patterns: "log.syslog log.syslog.*", why: whyLogFile},
	{patterns: "log.$category.level", why: "log.level is for all of the log"},
	{patterns: "log.$category.file log.$category.rotation.*", why: whyLogFile},
	{patterns: "motd_file", why: "there is no banner"},

	{patterns: "cluster_name cluster_formation.classic_config.nodes.$node", part: partCluster},
	{patterns: "cluster_formation.*", why: whyDiscovery},
	{patterns: "cluster_partition_handling cluster_partition_handling.*", why: "a node without a second one stops by itself, and nothing is lost: there is nothing to choose"},
	{patterns: "cluster_keepalive_interval net_ticktime", why: "cluster.election says how long a node may be silent"},
	{patterns: "cluster_tags.*", why: "clusters have no tags"},
	{patterns: "node_tags.*", why: "nodes have no tags"},
	{patterns: "aws.*", why: whyDiscovery},
	{patterns: "queue_master_locator queue_leader_locator mirroring_sync_batch_size mirroring_sync_max_throughput", why: whyMirrors},
	{patterns: "quorum_queue.property_equivalence.*", why: "a queue that is declared again with another type or other arguments is refused"},
	{patterns: "quorum_queue.initial_cluster_size quorum_queue.continuous_membership_reconciliation.*", why: whyMirrors},
	{patterns: "quorum_queue.* classic_queue.* raft.* metadata_store.* message_store_shutdown_timeout vhost_restart_strategy " +
		"mnesia_table_loading_retry_timeout mnesia_table_loading_retry_limit", why: whyRaft},

	{patterns: "distribution.* delegate_count default_worker_pool_size background_gc_enabled background_gc_target_interval " +
		"hipe_compile erlang.* sysmon_handler.*", why: whyErlang},
	{patterns: "deprecated_features.*", why: "no feature is to be permitted"},
	{patterns: "product.name", key: "compat.product", how: conversion{"text", asIs}},
	{patterns: "product.version", key: "compat.version", how: conversion{"text", asIs}},

	{patterns: "mqtt.* stomp.*", why: whyProtocols},
	{patterns: "stream.*", why: "there are no streams"},
	{patterns: "amqp1_0.* web_mqtt.* web_stomp.* web_mqtt_examples.* web_stomp_examples.*", why: whyProtocols},
	{patterns: "event_exchange.*", why: "events go over HTTP: curfew ctl events"},
	{patterns: "shovel.*", why: "there are no shovels"},
	{patterns: "federation.*", why: "there is no federation"},
	{patterns: "tracing.*", why: "traces are not written to files: curfew ctl trace_on publishes them"},
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
