package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// The parts of a translation that concern listeners.

const onlyHere = "127.0.0.1:"

// listeners translates the AMQP listeners. If RabbitMQ listens nowhere, or on an address
// that is not possible here, the translation lets only this machine connect. The default,
// all interfaces, would expose more than was asked for.
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

// management translates the HTTP listeners.
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

// listenHTTP answers with the address and the port of a section. If the address is invalid, only this machine can connect.
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

// listenFrom answers without marking lines as done that also concern other keys.
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

// The parts of a translation that concern TLS and certificates.

// rabbitTLS lists the sections with options for TLS. Here all listeners share one section; an earlier section takes precedence.
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

// answerTLS answers for all TLS sections; a later section may repeat the value of an earlier one.
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

// clients translates whether clients are asked for certificates, and which.
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

// certificates translates logins by certificate, which RabbitMQ allows if EXTERNAL is among its mechanisms.
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
		why = "certificates log no client in without EXTERNAL among auth_mechanisms"
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
