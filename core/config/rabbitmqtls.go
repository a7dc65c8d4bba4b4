package config

import (
	"cmp"
	"strings"
)

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
