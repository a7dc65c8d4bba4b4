package config

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// valuesOf loads a printed translation and returns the keys that it sets, with their values.
func valuesOf(t *testing.T, printed string) map[string]string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "curfew.yaml")
	if err := os.WriteFile(file, []byte(printed), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(Input{File: file})
	if err != nil {
		t.Fatalf("%v\nin\n%s", err, printed)
	}
	values := map[string]string{}
	for _, s := range c.settings {
		if s.source.Kind != FromFile {
			continue
		}
		values[plainName(s.key)] = s.value.String()
		if s.value.secret {
			name := strings.Split(s.key, ".")[2]
			values[plainName(s.key)] = string(c.Auth.Users[name].Password)
		}
	}
	return values
}

func translated(t *testing.T, conf string) (tr *Translation, printed string) {
	t.Helper()
	tr, err := translate("rabbitmq.conf", []byte(conf))
	if err != nil {
		t.Fatalf("%v\nfor\n%s", err, conf)
	}
	var b bytes.Buffer
	if err := tr.Print(&b, false); err != nil {
		t.Fatal(err)
	}
	return tr, b.String()
}

func TestTranslateValues(t *testing.T) {
	const tls = "ssl_options.certfile = /c\nssl_options.keyfile = /k\nssl_options.cacertfile = /ca\n"
	for _, tt := range []struct {
		name, conf, want string // the keys and values, sorted
		remarks          string // a regular expression for the comments
		problems         string // the problems, one a line
	}{
		{name: "nothing", conf: "# heartbeat = 60\n\n"},
		{name: "a port", conf: "listeners.tcp.default = 5673", want: "listen.amqp=:5673"},
		{name: "an address", conf: "listeners.tcp.x = 10.0.0.7:5673", want: "listen.amqp=10.0.0.7:5673"},
		{name: "IPv6", conf: "listeners.tcp.x = ::1:5673", want: "listen.amqp=[::1]:5673"},
		{name: "both loopbacks", conf: "listeners.tcp.a = 127.0.0.1:5672\nlisteners.tcp.b = ::1:5672", want: "listen.amqp=127.0.0.1:5672", remarks: `listeners.tcp.b = ::1:5672\n# .* is one address, that of line 1`},
		{name: "all interfaces, and one", conf: "listeners.tcp.a = 127.0.0.1:5672\nlisteners.tcp.b = :::5672", want: "listen.amqp=[::]:5672", remarks: `listeners.tcp.a = .*\n# .* line 2, is on all interfaces`},
		{
			name: "no listener at all is this machine's alone", conf: "listeners.tcp = none\nlisteners.tcp.x = 5672\nlisteners.ssl.x = 5671",
			want: "listen.amqp=127.0.0.1:5672", remarks: `(?s)listen somewhere: only this machine.*listeners.tcp.x = 5672\n# .*is none, on line 1.*listeners.ssl.x = 5671\n# .*listen.amqps needs tls.cert and tls.key`,
		},
		{name: "a Unix socket is this machine's alone", conf: "listeners.tcp.x = unix:/run/r.sock:0", want: "listen.amqp=127.0.0.1:5672", remarks: "Unix sockets"},
		{
			name: "a wrong listener is this machine's alone", conf: "listeners.tcp.x = localhost:5672", want: "listen.amqp=127.0.0.1:5672",
			problems: `listeners.tcp.x: "localhost:5672" is not the address of a listener; accepted: a port such as 5672, or an IP address and a port such as 127.0.0.1:5672 or ::1:5672 (file rabbitmq.conf:1)`,
		},
		{name: "TLS alone", conf: "listeners.tcp = none\nlisteners.ssl.default = 5671\n" + tls, want: "listen.amqp=off listen.amqps=:5671 tls.cert=/c tls.key=/k", remarks: `cacertfile = /ca\n# .*only with verify = verify_peer`},
		{name: "certificates demanded", conf: tls + "ssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = true", want: "tls.ca=/ca tls.cert=/c tls.key=/k tls.verify-peer=true"},
		{name: "certificates asked for", conf: tls + "ssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = false", want: "tls.ca=/ca tls.cert=/c tls.key=/k tls.verify-peer=false"},
		{name: "no authority", conf: "ssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = true", remarks: `(?s)only with a cacertfile.*only with verify = verify_peer and a cacertfile`},
		{name: "new TLS", conf: "ssl_options.versions.1 = tlsv1.3", want: "tls.min-version=1.3"},
		{name: "old TLS", conf: "ssl_options.versions.1 = tlsv1.3\nssl_options.versions.2 = tlsv1.1", want: "tls.min-version=1.2", remarks: "No older version is spoken"},
		{name: "no TLS", conf: "ssl_options.versions.1 = sslv3", problems: `ssl_options.versions.1: "sslv3" is not a version of TLS; accepted: tlsv1.3, tlsv1.2 (file rabbitmq.conf:1)`},

		{name: "management", conf: "management.tcp.port = 8080\nmanagement.tcp.ip = 127.0.0.1", want: "listen.management=127.0.0.1:8080"},
		{name: "management with a wrong address", conf: "management.tcp.ip = here", want: "listen.management=127.0.0.1:15672", problems: `management.tcp.ip: "here" is not an IP address; accepted: an address such as 127.0.0.1 or :: (file rabbitmq.conf:1)`},
		{
			name: "management with TLS has no other listener", conf: "management.ssl.port = 15671\nmanagement.ssl.certfile = /c\nmanagement.ssl.keyfile = /k\nmanagement.ssl.cacertfile = /ca\nmanagement.ssl.verify = verify_peer\nmanagement.ssl.fail_if_no_peer_cert = true",
			want: "listen.management=off listen.management-tls=:15671 management.client-certificates=required tls.ca=/ca tls.cert=/c tls.key=/k",
		},
		{name: "management both ways", conf: "management.ssl.port = 444\nmanagement.tcp.port = 81\n" + tls, want: "listen.management=:81 listen.management-tls=:444 tls.cert=/c tls.key=/k"},
		{name: "management before 3.7.9", conf: "management.listener.port = 444\nmanagement.listener.ssl = true\nmanagement.listener.ssl_opts.certfile = /c\nmanagement.listener.ssl_opts.keyfile = /k", want: "listen.management=off listen.management-tls=:444 tls.cert=/c tls.key=/k"},
		{name: "management before 3.7.9, plain", conf: "management.listener.port = 81\nmanagement.listener.ip = ::", want: "listen.management=[::]:81"},
		{name: "one certificate for all", conf: tls + "management.ssl.certfile = /other", want: "listen.management=off listen.management-tls=:15671 tls.cert=/c tls.key=/k", remarks: "tls.cert is one for all listeners"},
		{name: "Prometheus", conf: "prometheus.tcp.ip = 127.0.0.1", want: "listen.metrics=127.0.0.1:15692"},
		{name: "Prometheus' path", conf: "prometheus.path = /metrics", remarks: "the path is /metrics"},
		{name: "the API", conf: "management.http.max_body_size = 10\nmanagement.login_session_timeout = 60\nmanagement.restrictions.operator_policy_changes.disabled = true\ncollect_statistics_interval = 30000\nmanagement.tcp.max_connections = infinity", want: "limits.management-connections=0 management.body-size=64KiB management.operator-policy-changes=false management.rates-interval=30s management.session=1h", remarks: "The least here is 64KiB"},

		{name: "limits", conf: "heartbeat = 600\nframe_max = 64KB\nchannel_max = 9\nmax_message_size = 134217728\nconsumer_timeout = 1800000\nhandshake_timeout = 5000\nconnection_max = 7\nconsumer_max_per_channel = 3", want: "limits.channels=9 limits.connections=7 limits.consumer-timeout=30m limits.consumers=3 limits.frame-max=64KiB limits.handshake-timeout=5s limits.heartbeat=10m limits.message-size=128MiB"},
		{name: "no limits", conf: "heartbeat = 0\nframe_max = 0\nchannel_max = 0\nhandshake_timeout = infinity\nconnection_max = infinity", want: "limits.channels=65535 limits.connections=0 limits.frame-max=16MiB limits.handshake-timeout=10m limits.heartbeat=0s"},
		{name: "zero connections", conf: "connection_max = 0", problems: `connection_max: "0" cannot be translated: 0 admits no client there, and means no limit here; accepted: a whole number, or infinity (file rabbitmq.conf:1)`},
		{name: "out of our range", conf: "heartbeat = 65536\nframe_max = 1024", problems: "heartbeat: \"65536\" is for limits.heartbeat, and is out of range; accepted: 0s to 18h12m15s (file rabbitmq.conf:1)\nframe_max: \"1024\" is for limits.frame-max, and is out of range; accepted: 4KiB to 16MiB (file rabbitmq.conf:2)"},
		{name: "huge numbers", conf: "consumer_timeout = 9223372036854775807\nhandshake_timeout = 99999999999999999999\nmanagement.login_session_timeout = 9223372036854775807", want: "limits.consumer-timeout=365d management.session=30d", problems: `handshake_timeout: "99999999999999999999" is out of range; accepted: milliseconds, or infinity (file rabbitmq.conf:2)`},
		{name: "no consumer timeout", conf: "consumer_timeout = 0", problems: `consumer_timeout: "0" is out of range; accepted: milliseconds, 1 and above (file rabbitmq.conf:1)`},
		{name: "a share of memory", conf: "vm_memory_high_watermark.relative = 0.4\ndisk_free_limit.relative = 1.5", want: "limits.disk-free=1.5x limits.memory-watermark=0.4"},
		{name: "sizes of 1000s and 1024s", conf: "vm_memory_high_watermark.absolute = 2GB\ndisk_free_limit.absolute = 50M", want: "limits.disk-free=50MiB limits.memory-watermark=2GB"},
		{name: "absolute counts", conf: "disk_free_limit.relative = 1.0\ndisk_free_limit.absolute = 2GiB", want: "limits.disk-free=2GiB", remarks: `disk_free_limit.absolute on line 2 takes precedence`},
		{name: "watermarks of nothing", conf: "vm_memory_high_watermark.relative = 0\nvm_memory_high_watermark.absolute = some\ndisk_free_limit.relative = 0.0", want: "limits.disk-free=0", problems: `vm_memory_high_watermark.absolute: "some" is not a size; accepted: bytes, or a size such as 2GB (1000s), 2GiB or 2G (1024s) (file rabbitmq.conf:2)`},

		{name: "a user", conf: "default_user = anna\ndefault_pass = 's3#c'", want: "auth.users.anna.password=s3#c auth.users.anna.tags=administrator auth.users.anna.vhosts=/", remarks: "This file has a password(?s:.*)delete_user guest"},
		{
			name: "a user with everything", conf: "default_user = a.b\ndefault_pass = \"q\"\ndefault_vhost = v.1\ndefault_user_tags.monitoring = true\ndefault_user_tags.x = false\ndefault_permissions.configure = ^a\ndefault_permissions.read = .*",
			want: `auth.users.a.b.password="q" auth.users.a.b.permissions.v.1.configure=^a auth.users.a.b.permissions.v.1.read=.* auth.users.a.b.permissions.v.1.write=.* auth.users.a.b.tags=monitoring`, remarks: "does not have the tag",
		},
		{name: "a user without a password", conf: "default_user = anna", want: "auth.users.anna.password=guest auth.users.anna.tags=administrator auth.users.anna.vhosts=/", remarks: "which everybody knows"},
		{name: "a user with an encrypted password", conf: "default_user = anna\ndefault_pass = encrypted:abc=", remarks: "line 2 has no password that can be read", problems: "default_pass: is encrypted for RabbitMQ: write the value itself (file rabbitmq.conf:2)"},
		{
			name: "a user who cannot be is none, and not half of one", conf: "default_user = anna\ndefault_pass = p\ndefault_user_tags.administrater = true",
			problems: `default_user_tags.administrater: "true" is for auth.users.anna.tags, and has "administrater", which means nothing; did you mean administrator? (file rabbitmq.conf:3)`,
		},
		{name: "a vhost with a comma", conf: "default_user = anna\ndefault_pass = p\ndefault_vhost = a,b", want: "auth.users.anna.password=p auth.users.anna.permissions.a,b.configure=.* auth.users.anna.permissions.a,b.read=.* auth.users.anna.permissions.a,b.write=.* auth.users.anna.tags=administrator"},
		{name: "guest with a password", conf: "default_pass = s3cret", remarks: `default_pass = \*\*\*\n# .*change_password guest`},
		{name: "guest from everywhere", conf: "loopback_users = none", want: "auth.guest-loopback-only=false"},
		{name: "guest from everywhere, as in Docker's image", conf: "loopback_users.guest = false", want: "auth.guest-loopback-only=false"},
		{name: "guest here", conf: "loopback_users.guest = true", want: "auth.guest-loopback-only=true"},
		// RabbitMQ has no guest in this case. Here guest, whose password is public, would have been allowed in from everywhere.
		{name: "no guest from everywhere", conf: "default_user = anna\ndefault_pass = p\nloopback_users = none", want: "auth.users.anna.password=p auth.users.anna.tags=administrator auth.users.anna.vhosts=/", remarks: "stays local"},
		{name: "guest with a password from everywhere", conf: "default_pass = p\nloopback_users.guest = false", remarks: "stays local"},
		{name: "guest with an encrypted password from everywhere", conf: "default_pass = encrypted:p\nloopback_users.guest = false", remarks: "stays local", problems: "default_pass: is encrypted for RabbitMQ: write the value itself (file rabbitmq.conf:1)"},
		{name: "others here", conf: "loopback_users.anna = true", remarks: "only guest can be kept to this machine"},

		{name: "certificates", conf: tls + "ssl_options.verify = verify_peer\nauth_mechanisms.1 = EXTERNAL\nssl_cert_login_from = subject_alternative_name\nssl_cert_login_san_type = other_name\nssl_cert_login_san_index = 2", want: "auth.certificate-login=san-other auth.certificate-san-index=2 tls.ca=/ca tls.cert=/c tls.key=/k tls.verify-peer=false", remarks: "Passwords log users in, too"},
		{name: "certificates by default", conf: tls + "ssl_options.verify = verify_peer\nauth_mechanisms.1 = EXTERNAL\nauth_mechanisms.2 = PLAIN", want: "auth.certificate-login=distinguished-name tls.ca=/ca tls.cert=/c tls.key=/k tls.verify-peer=false"},
		{name: "certificates that nobody asks for", conf: "auth_mechanisms.1 = EXTERNAL\nssl_cert_login_from = common_name", remarks: "(?s)auth_mechanisms.1.*needs tls.ca.*ssl_cert_login_from.*needs tls.ca"},
		{name: "certificates without EXTERNAL", conf: "ssl_cert_login_from = common_name\nssl_cert_login_san_index = 1", remarks: "(?s)without EXTERNAL.*is for ssl_cert_login_from"},
		{name: "hashes", conf: "password_hashing_module = rabbit_password_hashing_sha512", want: "auth.password-hashing=sha512"},
		{name: "a proxy", conf: "proxy_protocol = true", remarks: "list the proxies"},
		{name: "no proxy", conf: "proxy_protocol = maybe", problems: `proxy_protocol: "maybe" is not a choice; accepted: true, false (file rabbitmq.conf:1)`},

		{name: "the console's log", conf: "log.console = true\nlog.console.level = warning\nlog.file.level = debug\nlog.console.formatter = json", want: "log.format=json log.level=warn", remarks: `log.file.level = debug\n# .*that of line 2`},
		{name: "the file's log", conf: "log.console = false\nlog.console.level = warning\nlog.file.level = debug", want: "log.level=debug"},
		{name: "no log", conf: "log.default.level = none", want: "log.level=error", remarks: "most severe"},
		{name: "a cluster", conf: "cluster_name = prod\ncluster_formation.classic_config.nodes.1 = r@a\ncluster_formation.classic_config.nodes.2 = r@b\ncluster_formation.classic_config.nodes.3 = r@c", want: "cluster.name=prod", remarks: `cluster.nodes: \[a:5680, b:5680, c:5680\]`},
		{name: "another product", conf: "product.name = Rabbits", want: "compat.product=Rabbits"},

		{name: "the last line counts", conf: "heartbeat = 1\nheartbeat = 2", want: "limits.heartbeat=2s", remarks: "heartbeat = 1\n# .*line 2 overrides it"},
		{name: "two names of one key", conf: "channel_max = 1\nmax_channels_per_connection = 2", want: "limits.channels=1", remarks: "limits.channels is that of line 1"},
		{name: "forms of lines", conf: "\ufeff  heartbeat=5 # often\r\n\tchannel_max\t=\t7\t\r\n", want: "limits.channels=7 limits.heartbeat=5s"},
		{name: "a typing error", conf: "heartbaet = 5\nfoo.bar.baz = 1", problems: "heartbaet: is not a key of RabbitMQ's; did you mean heartbeat? (file rabbitmq.conf:1)\nfoo.bar.baz: is not a key of RabbitMQ's (file rabbitmq.conf:2)"},
		{name: "another file's", conf: "RABBITMQ_NODENAME=rabbit@x", problems: "RABBITMQ_NODENAME: is a variable of rabbitmq-env.conf, not a key (file rabbitmq.conf:1)"},
		{name: "lines that are none", conf: "heartbeat = 5\nlog.file.level: debug\nchannel_max =\ninclude conf.d/*.conf\nframe_max = 'a'b\nlog.dir = 'x\ncluster_name = $(heartbeat)", want: "limits.heartbeat=5s", problems: `"log.file.level: debug" is not a setting such as heartbeat = 60 (file rabbitmq.conf:2)
channel_max: has no value (file rabbitmq.conf:3)
include: "conf.d/*.conf" is not followed: translate the files that it names by themselves (file rabbitmq.conf:4)
frame_max: "a" has something behind its quotes (file rabbitmq.conf:5)
log.dir: "x" has a quote that is not closed on its line (file rabbitmq.conf:6)
cluster_name: "$(heartbeat)" refers to something else by $(...): write the value itself (file rabbitmq.conf:7)`},
		{name: "bytes that are no text", conf: "cluster_name = a\x00b\nproduct.name = \xff\nproduct.version = \x7f", problems: "cluster_name: \"a\\x00b\" has a byte that is no text (file rabbitmq.conf:1)\nproduct.name: \"\\xff\" has a byte that is no text (file rabbitmq.conf:2)\nproduct.version: \"\\x7f\" has a byte that is no text (file rabbitmq.conf:3)"},
		{name: "a text too long", conf: "cluster_name = " + strings.Repeat("x", 1<<20), problems: `cluster_name: "` + strings.Repeat("x", 80) + `…" is for cluster.name, and has 1048576 bytes; accepted: 1 to 255 bytes (file rabbitmq.conf:1)`},
		{name: "logins in URLs", conf: "definitions.https.url = https://anna:pw@example.com/d", remarks: `https://\*\*\*@example.com`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tr, printed := translated(t, tt.conf)
			values := valuesOf(t, printed)
			var all []string
			for _, k := range slices.Sorted(maps.Keys(values)) {
				all = append(all, k+"="+values[k])
			}
			if got := strings.Join(all, " "); got != tt.want {
				t.Errorf("got  %s\nwant %s\nin\n%s", got, tt.want, printed)
			}
			if !regexp.MustCompile(tt.remarks).MatchString(printed) {
				t.Errorf("nothing like %s in\n%s", tt.remarks, printed)
			}
			var problems []string
			for _, p := range tr.Problems {
				problems = append(problems, p.Error())
			}
			if got := strings.Join(problems, "\n"); got != tt.problems {
				t.Errorf("problems:\n%s\nwant\n%s", got, tt.problems)
			}
		})
	}
}

// Every key of RabbitMQ 3.10's schema, of its plugins and of later versions has a row, and every row is used.
func TestTranslateKnowsAllKeys(t *testing.T) {
	b, err := os.ReadFile("testdata/rabbitmq-keys.txt")
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	tr := &Translation{}
	for pattern := range strings.Lines(string(b)) {
		key := strings.ReplaceAll(strings.TrimSpace(pattern), "$", "")
		l := &rabbitLine{key: key, parts: strings.Split(key, ".")}
		row := tr.row(l)
		if row == nil {
			t.Errorf("%s has no row", key)
			continue
		}
		used[row.patterns] = true
	}
	parts := map[string]bool{"": true}
	for _, p := range rabbitParts {
		parts[p.name] = true
	}
	for i, row := range rabbitKeys {
		said := 0
		for _, is := range []bool{row.key != "", row.part != "", row.why != ""} {
			if is {
				said++
			}
		}
		if said != 1 || !parts[row.part] || (row.key == "") != (row.how.convert == nil) {
			t.Errorf("%s has not one of a key, a part and a reason", row.patterns)
		}
		for pattern := range strings.FieldsSeq(row.patterns) {
			l := &rabbitLine{parts: strings.Split(strings.ReplaceAll(pattern, "*", "x"), ".")}
			if first := tr.row(l); first != &rabbitKeys[i] {
				t.Errorf("%s is never reached, because of %s", pattern, first.patterns)
			}
		}
		if row.key != "" && defaultsSetting(t, row.key) == nil {
			t.Errorf("%s: there is no key %s", row.patterns, row.key)
		}
	}
	if len(used) < len(rabbitKeys)/2 {
		t.Errorf("the keys use %d of %d rows", len(used), len(rabbitKeys))
	}
}

func defaultsSetting(t *testing.T, key string) *setting {
	t.Helper()
	c, err := Load(Input{})
	if err != nil {
		t.Fatal(err)
	}
	return c.setting(key)
}

// The settings of RabbitMQ's example file.
func TestTranslateExample(t *testing.T) {
	b, err := os.ReadFile("testdata/rabbitmq.conf")
	if err != nil {
		t.Fatal(err)
	}
	tr, printed := translated(t, string(b))
	for _, p := range tr.Problems {
		t.Error(p)
	}
	if values := valuesOf(t, printed); len(values) < 25 || values["limits.heartbeat"] != "1m" {
		t.Errorf("got %v", values)
	}
	everyLineIsThere(t, b, printed)
	if strings.Contains(printed, "Password\n") {
		t.Error("a password is in a comment")
	}
}

// everyLineIsThere fails if a translation does not mention a line.
func everyLineIsThere(t *testing.T, conf []byte, printed string) {
	t.Helper()
	numbers := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)line (\d+): |^# +(\d+)  `).FindAllStringSubmatch(printed, -1) {
		numbers[m[1]+m[2]] = true
	}
	elided := strings.Contains(printed, ", …\n")
	for _, l := range parseRabbit(conf) {
		if !numbers[strconv.Itoa(l.number)] && !elided {
			t.Fatalf("line %d (%q) is not in\n%s", l.number, l.key, printed)
		}
	}
}

// RabbitMQ's configuration files used to be reported as "not valid YAML", or "not a YAML mapping of sections".
func TestLoadRecognisesRabbitMQ(t *testing.T) {
	const conf, terms, no = "this prints it in Curfew's: curfew config --from ", "holds Erlang terms", ""
	for _, tt := range []struct{ name, file, content, want string }{
		{"one line", "x.yaml", "heartbeat = 60\n", conf + "x.yaml"},
		{"several", "rabbitmq.conf", "# RabbitMQ\n\nlisteners.tcp.default = 5672\nlog.file = a: b\n", conf + "rabbitmq.conf"},
		{"a line that is YAML, too", "r.conf", "cluster_name = a: b\n", conf + "r.conf"},
		{"a mistake in it", "r.conf", "heartbeat = 60\nchannel_max = 5\nlog.level: debug\n", conf + "r.conf"},
		{"Windows", "r.conf", "\ufeffheartbeat = 60\r\nchannel_max = 5\r\n", conf + "r.conf"},
		{"a name for a shell", "it's here", "heartbeat = 60\n", conf + `'it'\''s here'`},
		{"a name that is no flag", "-x", "heartbeat = 60\n", conf + `'-x'`},
		{"Erlang terms", "advanced.config", "%% advanced\n[\n  {rabbit, [{tcp_listeners, [5672]}]}\n].\n", terms},
		{"no Erlang terms", "advanced.config", "[].", terms},
		{"comments alone are no configuration", "r.conf", "# heartbeat = 60\n", no},
		{"YAML", "curfew.yaml", "limits: {heartbeat: 60s}\n", no},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if err := os.WriteFile(tt.file, []byte(tt.content), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Load(Input{File: tt.file})
			if (err == nil) != (tt.want == no) || err != nil && (!strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "(file "+tt.file+")")) {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
		})
	}
	t.Run("a mistake in YAML", func(t *testing.T) {
		_, err := Load(input(t, "limits:\n  heartbeat = 60\n", nil))
		if err == nil || strings.Contains(err.Error(), "RabbitMQ") {
			t.Errorf("got %v", err)
		}
	})
}

func TestTranslateRefusesOthers(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, tt := range []struct{ name, content, want string }{
		{"curfew.yaml", "limits:\n  heartbeat: 60s\n", `"curfew.yaml" is no rabbitmq.conf, whose lines are KEY = VALUE (file curfew.yaml)`},
		{"advanced.config", "[{rabbit, []}].", `"advanced.config" holds Erlang terms, which cannot be translated; accepted: a rabbitmq.conf, whose lines are KEY = VALUE (file advanced.config)`},
	} {
		if err := os.WriteFile(tt.name, []byte(tt.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Translate(tt.name); err == nil || err.Error() != tt.want {
			t.Errorf("got  %v\nwant %s", err, tt.want)
		}
	}
	if _, err := Translate("none.conf"); err == nil || !strings.Contains(err.Error(), `"none.conf" cannot be read: no such file`) {
		t.Errorf("got %v", err)
	}
}

func TestTranslationExplains(t *testing.T) {
	tr, _ := translated(t, "heartbeat = 60")
	var b bytes.Buffer
	if err := tr.Print(&b, true); err != nil {
		t.Fatal(err)
	}
	if want := "  # Accepted: 0s to 18h12m15s\n  # Variable: CURFEW_LIMITS__HEARTBEAT\n  heartbeat: 1m "; !strings.Contains(b.String(), want) {
		t.Errorf("got\n%swant in it\n%s", b.String(), want)
	}
	if keys, without := tr.Counts(); keys != 1 || without != 0 {
		t.Errorf("%d keys, %d lines without", keys, without)
	}
}

// Each line is mentioned, even if several lines concern one key of ours.
func TestTranslateManyLines(t *testing.T) {
	var b strings.Builder
	for i := range 1_000 {
		fmt.Fprintf(&b, "unknown.%d = %d\nlisteners.tcp.l%d = %d\n", i, i, i, 1+i)
	}
	tr, _ := translated(t, b.String())
	if len(tr.Problems) != 1_000 {
		t.Errorf("%d problems", len(tr.Problems))
	}
}

func FuzzTranslate(f *testing.F) {
	for _, s := range []string{
		"listeners.tcp.a = 127.0.0.1:5672\nheartbeat = 60\nlog.file.level = info\n", "vm_memory_high_watermark.absolute = 2GB\nssl_options.certfile = /c\n",
		"heartbeat = \x00", "default_user = \xff\ndefault_pass = '#'", "a\\.b = 'x", "default_vhost = a,b\ndefault_user = x.y", "[{rabbit, []}].", "\ufeffx = \u2028",
		"management.listener.ssl = true\nmanagement.listener.port = 1", "ssl_options.verify = verify_peer\nlisteners.ssl = none", "default_user = a\ndefault_pass = ***",
		"cluster_name = " + strings.Repeat("y", 300), "loopback_users.a = true\nlisteners.tcp.x = ::1%eth0:5", "default_user_tags.a\\.b = true\ndefault_user = u",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, conf []byte) {
		tr, err := translate("rabbitmq.conf", conf)
		if err != nil {
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Fatalf("%v", err)
			}
			return
		}
		for _, p := range tr.Problems {
			if p.Source.Line == 0 {
				t.Errorf("%v has no line", p)
			}
		}
		var b bytes.Buffer
		if err := tr.Print(&b, false); err != nil {
			t.Fatal(err)
		}
		values := valuesOf(t, b.String())
		for _, s := range tr.settings {
			want := s.value.String()
			if s.value.secret {
				want = tr.answerOf(s).value
			}
			if got := values[plainName(s.key)]; got != want {
				t.Errorf("%s is %q, and was %q", plainName(s.key), got, want)
			}
		}
		if len(values) != len(tr.settings) {
			t.Errorf("%d keys instead of %d", len(values), len(tr.settings))
		}
		everyLineIsThere(t, conf, b.String())
	})
}
