package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// The parts of a translation that read several lines together.
const (
	partListeners    = "listeners"
	partTLS          = "tls"
	partManagement   = "management"
	partCertificates = "certificates"
	partBackends     = "backends"
	partHashing      = "hashing"
	partWatermarks   = "watermarks"
	partUser         = "user"
	partLoopback     = "loopback"
	partProxy        = "proxy"
	partLog          = "log"
	partCluster      = "cluster"
)

// rabbitParts are the parts in their order: some ask what earlier ones have answered.
var rabbitParts = []struct {
	name      string
	translate func(*Translation)
}{
	{partTLS, (*Translation).tls},
	{partListeners, (*Translation).listeners},
	{partManagement, (*Translation).management},
	{partProxy, (*Translation).proxy},
	{partCertificates, (*Translation).certificates},
	{partBackends, (*Translation).backends},
	{partHashing, (*Translation).hashing},
	{partWatermarks, (*Translation).watermarks},
	{partUser, (*Translation).user},
	{partLoopback, (*Translation).loopback},
	{partLog, (*Translation).log},
	{partCluster, (*Translation).cluster},
}

// below returns the lines that match a pattern and count, in their order.
func (t *Translation) below(pattern string) []*rabbitLine {
	var all []*rabbitLine
	for _, l := range t.lines {
		if t.said[l.key] == l && l.matches(pattern) {
			all = append(all, l)
		}
	}
	return all
}

func (t *Translation) answered(key string) bool {
	return slices.ContainsFunc(t.answers, func(a *answer) bool { return a.key == key })
}

// choice returns the line of a key, if its value is one of the choices. It refuses others.
func (t *Translation) choice(key string, choices ...string) *rabbitLine {
	l := t.said[key]
	if l == nil || l.done {
		return nil
	}
	if !slices.Contains(choices, l.value) {
		t.refuse(l, "is not a choice", strings.Join(choices, ", "))
		return nil
	}
	return l
}

// truth returns what a line says, which is nil where there is none.
func (t *Translation) truth(key string) (says bool, l *rabbitLine) {
	l = t.choice(key, "true", "false")
	return l != nil && l.value == "true", l
}

const onlyHere = "127.0.0.1:"

// listeners translates those for AMQP. If RabbitMQ listens nowhere, or somewhere that is not possible here, only this machine can
// connect: to listen on all interfaces, which is the default, would be more than was asked for.
func (t *Translation) listeners() {
	secure := t.below("listeners.ssl.$name")
	if none := t.choice("listeners.ssl", "none"); none != nil {
		t.remark(none, "is the default")
		t.ignore(secure, none)
		secure = nil
	}
	if len(secure) > 0 && !(t.answered("tls.cert") && t.answered("tls.key") && t.said["ssl_options.certfile"] != nil && t.said["ssl_options.keyfile"] != nil) {
		for _, l := range secure {
			t.remark(l, "listen.amqps needs tls.cert and tls.key: ssl_options.certfile and ssl_options.keyfile are not both there")
		}
		secure = nil
	}
	hasTLS := t.listen("listen.amqps", secure)
	open := t.below("listeners.tcp.$name")
	none := t.choice("listeners.tcp", "none")
	if none != nil {
		t.ignore(open, none)
		if hasTLS {
			t.answer("listen.amqp", "off", "", none)
			return
		}
		t.answer("listen.amqp", onlyHere+"5672", "the broker has to listen somewhere: only this machine can connect", none)
		return
	}
	if len(open) > 0 && !t.listen("listen.amqp", open) {
		t.answer("listen.amqp", onlyHere+"5672", "no listener of RabbitMQ's is possible here: only this machine can connect", open[0])
	}
}

func (t *Translation) ignore(lines []*rabbitLine, because *rabbitLine) {
	for _, l := range lines {
		t.remark(l, fmt.Sprintf("%s is none, on line %d", because.key, because.number))
	}
}

// listen answers with one of the listeners, and reports whether there is one.
func (t *Translation) listen(key string, lines []*rabbitLine) bool {
	type listener struct {
		line       *rabbitLine
		host, port string
	}
	var all []listener
	for _, l := range lines {
		if strings.HasPrefix(l.value, "unix:") || strings.HasPrefix(l.value, "local:") {
			t.remark(l, "listeners on Unix sockets are not offered")
			continue
		}
		host, port, err := rabbitAddress(l.value)
		if err != nil {
			t.refuse(l, err.Error(), "a port such as 5672, or an IP address and a port such as 127.0.0.1:5672 or ::1:5672")
			continue
		}
		all = append(all, listener{l, host, port})
	}
	if len(all) == 0 {
		return false
	}
	chosen := all[0]
	for _, l := range all {
		if l.port == chosen.port && (l.host == "" || l.host == "::") {
			chosen = l
			break
		}
	}
	for _, l := range all {
		switch {
		case l == chosen:
		case l.port == chosen.port && (chosen.host == "" || chosen.host == "::"):
			t.remark(l.line, fmt.Sprintf("%s, line %d, is on all interfaces of that port", key, chosen.line.number))
		default:
			t.remark(l.line, fmt.Sprintf("%s is one address, that of line %d: let a proxy or the firewall pass the others on to it", key, chosen.line.number))
		}
	}
	t.answer(key, net.JoinHostPort(chosen.host, chosen.port), "", chosen.line)
	return true
}

// rabbitAddress reads a port, or an IP address, a colon and a port. The host of a port is "".
func rabbitAddress(s string) (host, port string, err error) {
	port = s
	if at := strings.LastIndexByte(s, ':'); at >= 0 {
		host, port = s[:at], s[at+1:]
		ip, err := netip.ParseAddr(host)
		if err != nil || ip.Zone() != "" {
			return "", "", errors.New("is not the address of a listener")
		}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", "", errors.New("has no port from 1 to 65535")
	}
	return host, strconv.FormatUint(n, 10), nil
}

// rabbitTLS are the sections with options for TLS. There is one here, for all listeners: what an earlier one says counts.
var rabbitTLS = []string{"ssl_options", "management.ssl", "management.listener.ssl_opts"}

func (t *Translation) tls() {
	for _, section := range rabbitTLS {
		ca := t.said[section+".cacertfile"]
		for _, f := range []struct{ theirs, ours string }{{".certfile", "tls.cert"}, {".keyfile", "tls.key"}} {
			l := t.said[section+f.theirs]
			if l == nil {
				continue
			}
			note := ""
			if ca != nil && f.ours == "tls.cert" {
				note = "RabbitMQ takes the certificates between its own and the authority from cacertfile, too; here they have to be in this file"
			}
			t.answerTLS(f.ours, l.value, note, l)
		}
	}
	for _, section := range rabbitTLS {
		t.clients(section)
	}
	for _, section := range rabbitTLS {
		t.versions(section)
	}
}

// answerTLS answers for all sections, of which a later one may say the same.
func (t *Translation) answerTLS(key, value, note string, l *rabbitLine) {
	for _, a := range t.answers {
		if a.key == key && a.value == value {
			a.of, l.done = append(a.of, l), true
			return
		}
	}
	if t.answered(key) {
		t.remark(l, key+" is one for all listeners")
		return
	}
	t.answer(key, value, note, l)
}

// clients translates which certificates of clients are asked for.
func (t *Translation) clients(section string) {
	ca, verify := t.said[section+".cacertfile"], t.choice(section+".verify", "verify_none", "verify_peer")
	demand, strict := t.truth(section + ".fail_if_no_peer_cert")
	asks := verify != nil && verify.value == "verify_peer"
	if !asks || ca == nil {
		if ca != nil {
			t.remark(ca, "clients are asked for certificates only with verify = verify_peer")
		}
		why := "is the default"
		if asks {
			why = "clients are asked for certificates only with a cacertfile"
		}
		if verify != nil {
			t.remark(verify, why)
		}
		if strict != nil && demand {
			why = "clients are asked for certificates only with verify = verify_peer and a cacertfile"
		}
		if strict != nil {
			t.remark(strict, why)
		}
		return
	}
	t.answerTLS("tls.ca", ca.value, "", ca)
	of := []*rabbitLine{verify}
	if strict != nil {
		of = append(of, strict)
	}
	switch {
	case section != "ssl_options" && demand:
		t.answer("management.client-certificates", "required", "", of...)
	case section != "ssl_options":
		t.answer("management.client-certificates", "optional", "", of...)
	case demand:
		t.answer("tls.verify-peer", "true", "", of...)
	default:
		t.answer("tls.verify-peer", "false", "clients are asked for a certificate, which is what tls.ca does, and may have none", of...)
	}
}

func (t *Translation) versions(section string) {
	oldest, note := "", ""
	lines := t.below(section + ".versions.$version")
	var of []*rabbitLine
	for _, l := range lines {
		switch l.value {
		case "tlsv1.3":
			oldest = cmp.Or(oldest, "1.3")
		case "tlsv1.2":
			oldest = "1.2"
		case "tlsv1.1", "tlsv1":
			oldest, note = "1.2", "no older version is spoken"
		default:
			t.refuse(l, "is not a version of TLS", "tlsv1.3, tlsv1.2")
			continue
		}
		of = append(of, l)
	}
	if len(of) > 0 {
		t.answer("tls.min-version", oldest, note, of...)
	}
}

// management translates the listeners for HTTP.
func (t *Translation) management() {
	plain, secure := "management.tcp", "management.ssl"
	if isTLS, l := t.truth("management.listener.ssl"); l != nil || len(t.below("management.listener.*")) > 0 {
		legacy := &plain
		if isTLS {
			legacy = &secure
		}
		if len(t.below(*legacy+".port"))+len(t.below(*legacy+".ip")) == 0 {
			*legacy = "management.listener"
		}
		if l != nil {
			t.remark(l, "is what listen.management and listen.management-tls say")
		}
	}
	hasTLS := len(t.below("management.ssl.*")) > 0 || secure == "management.listener"
	switch {
	case hasTLS && t.answered("tls.cert") && t.answered("tls.key"):
		t.listenHTTP("listen.management-tls", secure, "15671")
		if plain == "management.tcp" && len(t.below("management.tcp.*")) == 0 && t.answered("listen.management-tls") {
			t.answers = append(t.answers, &answer{key: "listen.management", value: "off", of: t.answers[len(t.answers)-1].of})
		}
	case hasTLS:
		for _, l := range append(t.below(secure+".port"), t.below(secure+".ip")...) {
			t.remark(l, "listen.management-tls needs tls.cert and tls.key: certfile and keyfile are not both there")
		}
	}
	if len(t.below(plain+".*")) > 0 && !t.answered("listen.management") {
		t.listenHTTP("listen.management", plain, "15672")
	}
	if len(t.below("prometheus.tcp.*")) > 0 {
		t.listenHTTP("listen.metrics", "prometheus.tcp", "15692")
	}
}

// listenHTTP answers with the address and the port of a section. With a wrong address only this machine can connect.
func (t *Translation) listenHTTP(key, section, port string) {
	var of []*rabbitLine
	host, note := "", ""
	if l := t.said[section+".ip"]; l != nil && !l.done {
		if ip, err := netip.ParseAddr(l.value); err != nil || ip.Zone() != "" {
			t.refuse(l, "is not an IP address", "an address such as 127.0.0.1 or ::")
			host, note = "127.0.0.1", "RabbitMQ's address is none: only this machine can connect"
		} else {
			host, of = l.value, append(of, l)
		}
	}
	if l := t.said[section+".port"]; l != nil && !l.done {
		if _, n, err := rabbitAddress(l.value); err != nil || n != strings.TrimLeft(l.value, "+0") {
			t.refuse(l, "is not a port", "1 to 65535")
		} else {
			port, of = n, append(of, l)
		}
	}
	if len(of) == 0 && note == "" {
		others := t.below(section + ".*")
		of = others[:min(1, len(others))]
		if key == "listen.management" {
			return // all of it is the default
		}
	}
	t.listenFrom(key, net.JoinHostPort(host, port), note, of)
}

// listenFrom answers without taking lines for answered that are others' too.
func (t *Translation) listenFrom(key, address, note string, of []*rabbitLine) {
	before := make([]bool, len(of))
	for i, l := range of {
		before[i] = l.done
	}
	t.answer(key, address, note, of...)
	for i, l := range of {
		last := l.parts[len(l.parts)-1]
		l.done = before[i] || last == "port" || last == "ip"
	}
}

func (t *Translation) proxy() {
	if says, l := t.truth("proxy_protocol"); says {
		t.remark(l, "list the proxies: listen.proxy-protocol: [10.0.0.7, 10.1.0.0/16]; others connect without it (core/auth/README.md)")
	} else if l != nil {
		t.remark(l, "is the default")
	}
}

// certificates translates logins by certificate, which RabbitMQ has if EXTERNAL is among its mechanisms.
func (t *Translation) certificates() {
	var external *rabbitLine
	passwords := false
	mechanisms := t.below("auth_mechanisms.$name")
	for _, l := range mechanisms {
		switch l.value {
		case "EXTERNAL":
			external = l
		case "PLAIN", "AMQPLAIN":
			passwords = true
			t.remark(l, "is always offered")
		default:
			t.remark(l, "is not offered: PLAIN and AMQPLAIN are, and EXTERNAL by auth.certificate-login")
		}
	}
	from := t.choice("ssl_cert_login_from", "distinguished_name", "common_name", "subject_alternative_name", "subject_alt_name")
	of := []*rabbitLine{external}
	value := "distinguished-name"
	if from != nil {
		of = append(of, from)
		value = strings.ReplaceAll(from.value, "_", "-")
	}
	kind := t.choice("ssl_cert_login_san_type", "dns", "ip", "email", "uri", "other_name")
	index := t.said["ssl_cert_login_san_index"]
	if strings.HasPrefix(value, "subject-") {
		value = "san-dns"
		if kind != nil {
			of = append(of, kind)
			value = "san-" + strings.TrimSuffix(kind.value, "_name")
		}
	} else {
		for _, l := range []*rabbitLine{kind, index} {
			if l != nil && !l.done {
				t.remark(l, "is for ssl_cert_login_from = subject_alternative_name")
			}
		}
		index = nil
	}
	why := ""
	switch {
	case external == nil:
		why = "certificates log nobody in without EXTERNAL among auth_mechanisms"
	case !t.answered("tls.ca"):
		why = "auth.certificate-login needs tls.ca: ssl_options.cacertfile and ssl_options.verify = verify_peer are not both there"
	}
	if why != "" {
		for _, l := range append(of, index) {
			if l != nil && !l.done {
				t.remark(l, why)
			}
		}
		return
	}
	note := ""
	if !passwords {
		note = "passwords log users in, too: that cannot be turned off here"
	}
	t.answer("auth.certificate-login", value, note, of...)
	if index != nil {
		n, err := whole(index.value)
		if err != nil {
			t.refuse(index, err.Error(), "a whole number, 0 and above")
			return
		}
		t.answer("auth.certificate-san-index", formatInt(n), "", index)
	}
}

func (t *Translation) backends() {
	for _, pattern := range []string{"auth_backends.$num", "auth_backends.$num.authn", "auth_backends.$num.authz"} {
		for _, l := range t.below(pattern) {
			if l.value == "internal" || l.value == "rabbit_auth_backend_internal" {
				t.remark(l, "is what there is: the broker's own users")
				continue
			}
			t.remark(l, whyLogins)
		}
	}
}

func (t *Translation) hashing() {
	l := t.choice("password_hashing_module", "rabbit_password_hashing_sha256", "rabbit_password_hashing_sha512", "rabbit_password_hashing_md5")
	switch {
	case l == nil:
	case strings.HasSuffix(l.value, "sha512"):
		t.answer("auth.password-hashing", string(SHA512), "", l)
	default:
		t.remark(l, "hashes of RabbitMQ's users are accepted; new ones are pbkdf2, or sha512 if RabbitMQ has to read them (auth.password-hashing)")
	}
}

// watermarks translates limits for memory and disk, of which an absolute one counts before one that is relative.
func (t *Translation) watermarks() {
	for _, w := range []struct{ section, key, suffix string }{
		{"vm_memory_high_watermark", "limits.memory-watermark", ""},
		{"disk_free_limit", "limits.disk-free", "x"},
	} {
		absolute, relative := t.said[w.section+".absolute"], t.said[w.section+".relative"]
		if absolute != nil {
			if size, err := informationSize(absolute.value); err != nil {
				t.refuse(absolute, err.Error(), informationUnits)
			} else {
				t.answer(w.key, size.String(), "", absolute)
			}
		}
		if relative == nil {
			continue
		}
		if absolute != nil {
			t.remark(relative, fmt.Sprintf("%s.absolute is set, on line %d, and counts", w.section, absolute.number))
			continue
		}
		f, err := strconv.ParseFloat(relative.value, 64)
		if err != nil || strings.ContainsFunc(relative.value, func(r rune) bool { return r != '.' && (r < '0' || r > '9') }) {
			t.refuse(relative, "is not a number", "a number such as 0.4")
			continue
		}
		value := formatShare(f) + w.suffix
		if f == 0 && w.suffix != "" {
			value = "0"
		}
		t.answer(w.key, value, "", relative)
	}
}

// user translates the user that RabbitMQ makes at its first start.
func (t *Translation) user() {
	name, password, vhost := t.said["default_user"], t.said["default_pass"], t.said["default_vhost"]
	tags := t.below("default_user_tags.$tag")
	var patterns []*rabbitLine
	for _, p := range []string{"configure", "write", "read"} {
		if l := t.said["default_permissions."+p]; l != nil {
			patterns = append(patterns, l)
		}
	}
	if name == nil || name.value == "guest" || name.value == "" {
		t.guest(name, password, vhost, append(tags, patterns...))
		return
	}
	section := "auth.users." + keyPart(name.value)
	first := len(t.answers)
	if password != nil {
		t.answer(section+".password", password.value, "", name, password)
	} else if l := t.unread("default_pass"); l != nil {
		for _, l := range slices.Concat([]*rabbitLine{name, vhost}, tags, patterns) {
			if l != nil {
				t.remark(l, "line "+strconv.Itoa(unreadLine(t, "default_pass"))+" has no password that can be read: give "+printable(shorten(plainName(section)))+" one")
			}
		}
		return
	} else {
		t.answer(section+".password", "guest", "this is RabbitMQ's password for a user without default_pass, which everybody knows", name)
	}
	t.answers[first].notes = append(t.answers[first].notes, "the user guest is there, too, and can log in from this machine: curfew ctl delete_user guest")
	t.userTags(section, name, tags)
	t.userPermissions(section, name, vhost, patterns)
	for _, a := range t.answers[first:] {
		a.group = section
	}
}

// unread returns a line of the key that cannot be read.
func (t *Translation) unread(key string) *rabbitLine {
	i := slices.IndexFunc(t.lines, func(l *rabbitLine) bool { return l.key == key && l.problem != "" })
	if i < 0 {
		return nil
	}
	return t.lines[i]
}

func unreadLine(t *Translation, key string) int { return t.unread(key).number }

// guest explains what the file says of guest, whom a broker has before it reads a configuration.
func (t *Translation) guest(name, password, vhost *rabbitLine, others []*rabbitLine) {
	if name != nil {
		t.remark(name, "there is a user guest, with the password guest")
	}
	if password != nil {
		if password.value == "guest" {
			t.remark(password, "is the password of guest")
		} else {
			t.remark(password, "guest exists before a configuration is read: curfew ctl change_password guest")
		}
	}
	if vhost != nil && vhost.value == "/" {
		t.remark(vhost, "is always there")
	} else if vhost != nil {
		t.remark(vhost, "add it when the broker runs: curfew ctl add_vhost and curfew ctl set_permissions; / is there, too")
	}
	for _, l := range others {
		t.remark(l, "guest exists before a configuration is read, as an administrator who may do everything: see curfew ctl set_user_tags and set_permissions")
	}
}

func (t *Translation) userTags(section string, name *rabbitLine, lines []*rabbitLine) {
	var tags []string
	var of []*rabbitLine
	for _, l := range lines {
		switch {
		case l.value != "true" && l.value != "false":
			t.refuse(l, "is not a truth value", "true or false")
		case l.value == "true":
			tags, of = append(tags, l.parts[1]), append(of, l)
		default:
			t.remark(l, "the user does not have the tag")
		}
	}
	if len(lines) == 0 {
		t.answer(section+".tags", "administrator", "this is RabbitMQ's tag for a user without default_user_tags", name)
	} else if len(tags) > 0 {
		t.answer(section+".tags", strings.Join(tags, ","), "", of...)
	}
}

func (t *Translation) userPermissions(section string, name, vhost *rabbitLine, patterns []*rabbitLine) {
	of, in := []*rabbitLine{name}, "/"
	if vhost != nil {
		of, in = []*rabbitLine{vhost}, vhost.value
	}
	everything := !slices.ContainsFunc(patterns, func(l *rabbitLine) bool { return l.value != ".*" })
	if everything && !strings.ContainsAny(in, ",[") {
		t.answer(section+".vhosts", in, "", append(of, patterns...)...)
		return
	}
	for _, p := range []string{"configure", "write", "read"} {
		from, value := of, ".*"
		if l := t.said["default_permissions."+p]; l != nil {
			from, value = append(slices.Clone(of), l), l.value
		}
		t.answer(section+".permissions."+keyPart(in)+"."+p, value, "", from...)
	}
}

// loopback translates which users have to be on this machine: here that can be guest alone. A RabbitMQ that has another user has no
// guest, or not one whose password is known: here guest is kept to this machine then.
func (t *Translation) loopback() {
	users := t.below("loopback_users.$user")
	known := t.unread("default_user") == nil && t.unread("default_pass") == nil
	for _, key := range []string{"default_user", "default_pass"} {
		if l := t.said[key]; l != nil && l.value != "guest" {
			known = false
		}
	}
	open := func(l *rabbitLine) {
		if !known {
			t.remark(l, "guest exists here, with the password guest, and stays local; where nobody else can connect: auth.guest-loopback-only: false")
			return
		}
		t.answer("auth.guest-loopback-only", "false", "", l)
	}
	if none := t.choice("loopback_users", "none"); none != nil {
		open(none)
		t.ignore(users, none)
		return
	}
	for _, l := range users {
		says, err := parseBool(l.value)
		switch guest := l.parts[1] == "guest"; {
		case err != nil:
			t.refuse(l, err.Error(), "true or false")
		case guest && says:
			t.answer("auth.guest-loopback-only", "true", "", l)
		case guest:
			open(l)
		case says:
			t.remark(l, "only guest can be kept to this machine. RabbitMQ lets guest in from everywhere where others are listed; here auth.guest-loopback-only says so")
		default:
			t.remark(l, "is the default")
		}
	}
}

// log translates the level and the format. The log goes to one place: what is said of the console counts first if RabbitMQ's goes there,
// and last otherwise.
func (t *Translation) log() {
	outputs := []string{"file", "default", "journald", "syslog", "console"}
	if l := t.said["log.console"]; l != nil && l.value == "true" {
		outputs = []string{"console", "file", "default", "journald", "syslog"}
	}
	levels := map[string]string{"debug": "debug", "info": "info", "notice": "info", "warning": "warn", "error": "error", "critical": "error", "alert": "error", "emergency": "error", "none": "error"}
	for _, output := range outputs {
		l := t.said["log."+output+".level"]
		if l == nil {
			continue
		}
		level, known := levels[l.value]
		note := ""
		if !known {
			t.refuse(l, "is not a log level", "debug, info, notice, warning, error, critical, alert, emergency, none")
			continue
		}
		if level == "error" && l.value != "error" {
			note = "error is the most severe level here"
		}
		t.answer("log.level", level, note, l)
	}
	for _, output := range outputs {
		if l := t.choice("log."+output+".formatter", "plaintext", "json"); l != nil {
			t.answer("log.format", map[string]string{"plaintext": "text", "json": "json"}[l.value], "", l)
		}
	}
}

func (t *Translation) cluster() {
	if l := t.said["cluster_name"]; l != nil {
		t.answer("cluster.name", l.value, "this is for a cluster; a broker alone has its name from curfew ctl set_cluster_name", l)
	}
	var hosts []string
	nodes := t.below("cluster_formation.classic_config.nodes.$node")
	for _, l := range nodes {
		_, host, _ := strings.Cut(l.value, "@")
		hosts = append(hosts, cmp.Or(host, l.value)+":5680")
	}
	why := whyDiscovery
	if len(hosts) == clusterSize {
		why = fmt.Sprintf("a cluster needs cluster.nodes: [%s], and on each node cluster.advertise, its own one of these (core/cluster/README.md)", shorten(strings.Join(hosts, ", ")))
	}
	for _, l := range nodes {
		t.remark(l, why)
	}
}
