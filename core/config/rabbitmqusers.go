package config

import (
	"slices"
	"strconv"
	"strings"
)

// The parts of a translation that concern logins.

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

// user translates the user that RabbitMQ creates at its first start.
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
	} else if lost := t.unread("default_pass"); lost != nil {
		for _, l := range slices.Concat([]*rabbitLine{name, vhost}, tags, patterns) {
			if l != nil {
				t.remark(l, "line "+strconv.Itoa(lost.number)+" has no password that can be read: give "+printable(shorten(plainName(section)))+" one")
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

// unread returns an unreadable line with the key.
func (t *Translation) unread(key string) *rabbitLine {
	i := slices.IndexFunc(t.lines, func(l *rabbitLine) bool { return l.key == key && l.problem != "" })
	if i < 0 {
		return nil
	}
	return t.lines[i]
}

// guest explains the file's settings about guest, which every broker has before it reads a configuration.
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

// loopback translates which users may log in from this machine only. Here that can only be
// guest. A RabbitMQ whose default user is another one has no guest, or none with a known
// password; in that case guest is limited to this machine here.
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
			t.remark(l, "guest exists here, with the password guest, and stays local; where no other machine can connect: auth.guest-loopback-only: false")
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
