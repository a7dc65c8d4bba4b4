package config

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/auth"
)

// Secret is a text that is not shown: if printed or logged it appears as asterisks.
type Secret string

// hidden is shown instead of a secret.
const hidden = "***"

// String implements [fmt.Stringer].
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return hidden
}

// GoString implements [fmt.GoStringer].
func (s Secret) GoString() string { return s.String() }

// LogValue implements [slog.LogValuer].
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// secret is a setting's value that is neither printed nor part of an error.
func secret(p *Secret) *value {
	return &value{secret: true, accepted: "text, printed as " + hidden, format: func() string { return p.String() }, set: func(s string) error {
		if s == hidden {
			return errors.New("stands for a password that was not printed: write the password itself")
		}
		*p = Secret(s)
		return nil
	}}
}

// User is a user that the broker adds when it starts, unless a user of that name exists. One of Password, PasswordFile and PasswordHash
// is set. It may be none if certificates log users in.
type User struct {
	Name         string `koanf:"name" bytes:"0..255" doc:"The user's name, if it differs from that of the section."`
	Password     Secret `koanf:"password" doc:"The password."`
	PasswordFile string `koanf:"password-file" kind:"path" doc:"A file with the password, such as a container's secret; a final line break is ignored. It is read when the user is added."`
	PasswordHash Secret `koanf:"password-hash" doc:"The password's hash in base64, as password_hash in definitions."`
	Hashing      string `koanf:"hashing-algorithm" oneof:"rabbit_password_hashing_sha256 rabbit_password_hashing_sha512 rabbit_password_hashing_md5 curfew_password_hashing_pbkdf2_sha256" doc:"The algorithm of password-hash, as hashing_algorithm in definitions."`

	Tags        []string                   `koanf:"tags" doc:"The user's tags: administrator, monitoring, policymaker, management, or others; they control access to the management API."`
	VHosts      []string                   `koanf:"vhosts" doc:"Virtual hosts in which the user may do everything; default: / if there are no permissions. Missing ones are added with the user."`
	Permissions map[string]*UserPermission `koanf:"permissions" entry:"VHOST" doc:"Virtual hosts with limited permissions. Missing ones are added with the user."`

	key string
}

// Key returns the key of the user's section, as in auth.users.anna.
func (u *User) Key() string { return plainName(u.key) }

// preset implements [preset].
func (u *User) preset() { u.Hashing = string(auth.SHA256) }

// UserPermission describes a user's permissions in a vhost as regular expressions. The empty one matches only the empty name.
type UserPermission struct {
	Configure string `koanf:"configure" bytes:"0..4096" doc:"Names that the user may declare and delete: a regular expression; empty = none."`
	Write     string `koanf:"write" bytes:"0..4096" doc:"Names of exchanges to publish to, and of queues to bind: a regular expression; empty = none."`
	Read      string `koanf:"read" bytes:"0..4096" doc:"Names of queues to consume from, and of exchanges to bind: a regular expression; empty = none."`
}

// Account returns the user without a password.
func (u *User) Account() auth.Account { return auth.Account{Name: u.Name, Tags: slices.Clone(u.Tags)} }

// Grants returns the user's permissions, by vhost.
func (u *User) Grants() []auth.Grant {
	var all []auth.Grant
	for _, v := range u.VHosts {
		all = append(all, auth.Grant{User: u.Name, VHost: v, Permissions: auth.Permissions{Configure: ".*", Write: ".*", Read: ".*"}})
	}
	for _, v := range slices.Sorted(maps.Keys(u.Permissions)) {
		all = append(all, auth.Grant{User: u.Name, VHost: plainName(v), Permissions: auth.Permissions(*u.Permissions[v])})
	}
	return all
}

const usersSection = "auth.users"

// checkUsers checks the configured users, and fills in values that they leave open.
func (l *loader) checkUsers() {
	sections := map[string]string{} // by user name
	for _, section := range slices.Sorted(maps.Keys(l.cfg.Auth.Users)) {
		u, key := l.cfg.Auth.Users[section], usersSection+"."+section
		u.key = key
		if u.Name == "" {
			u.Name = plainName(section)
		}
		if u.VHosts == nil && len(u.Permissions) == 0 {
			u.VHosts = []string{"/"}
		}
		if other, twice := sections[u.Name]; twice {
			l.refuseUser(key, "name", fmt.Errorf("is %q, as that of %s", u.Name, plainName(other)))
		}
		sections[u.Name] = key
		l.checkUser(key, u)
	}
}

// refuseUser reports a problem with a key of a user; "" means the user as a whole.
func (l *loader) refuseUser(section, key string, err error) {
	if key == "" {
		l.refuse(&Error{Key: section, Problem: err.Error(), Source: l.sourceBelow(section)})
		return
	}
	full := section + "." + key
	e := &Error{Key: full, Problem: err.Error(), Source: l.sourceBelow(section)}
	if s := l.cfg.setting(full); s != nil && s.source.Kind != FromDefault {
		e.Source = s.source
	}
	l.refuse(e)
}

// sourceBelow returns where the first key of a section was set.
func (l *loader) sourceBelow(section string) (first Source) {
	for _, s := range l.cfg.settings {
		if strings.HasPrefix(s.key, section+".") && s.source.Kind != FromDefault {
			return s.source
		}
	}
	for _, y := range l.layers {
		if name := y.name(section); y.said.Exists(name) {
			return y.source(name)
		}
	}
	return first
}

func (l *loader) checkUser(section string, u *User) {
	if err := (&auth.Account{Name: u.Name}).Check(); err != nil {
		l.refuseUser(section, "name", fmt.Errorf("cannot be that of a user: %w", err))
	}
	l.checkPassword(section, u)
	if err := checkTags(u.Tags); err != nil {
		l.refuseUser(section, "tags", err)
	}
	for i, v := range u.VHosts {
		if err := auth.CheckVHostName(v); err != nil {
			l.refuseUser(section, "vhosts", err)
		}
		if slices.Contains(u.VHosts[:i], v) {
			l.refuseUser(section, "vhosts", fmt.Errorf("names %q twice", v))
		}
	}
	for _, v := range slices.Sorted(maps.Keys(u.Permissions)) {
		l.checkPermission(section, v, u)
	}
}

// checkPassword refuses a user without exactly one password. No error shows it.
func (l *loader) checkPassword(section string, u *User) {
	var given []string
	for _, p := range []struct {
		key string
		set bool
	}{{"password", u.Password != ""}, {"password-file", u.PasswordFile != ""}, {"password-hash", u.PasswordHash != ""}} {
		if p.set {
			given = append(given, p.key)
		}
	}
	const one = "one of password, password-file and password-hash"
	switch {
	case l.refusedBelow(section + ".password"): // which has been reported
	case len(given) == 0 && l.cfg.Auth.CertificateLogin != CertificateLoginOff: // a certificate logs the user in
	case len(given) == 0:
		l.refuseUser(section, "", errors.New("has no password; accepted: "+one))
	case len(given) > 1:
		l.refuseUser(section, "", errors.New("has "+strings.Join(given, " and ")+"; accepted: "+one))
	case strings.Contains(string(u.Password), "\x00"):
		l.refuseUser(section, "password", errors.New("has a NUL, which no client can send"))
	case u.PasswordHash != "":
		if _, err := auth.ParseHash(string(u.PasswordHash), u.Hashing); err != nil {
			l.refuseUser(section, "password-hash", fmt.Errorf("is no hash: %w", err))
		}
	}
}

// refusedBelow reports whether a key with this prefix was refused.
func (l *loader) refusedBelow(prefix string) bool {
	return slices.ContainsFunc(l.problems, func(e *Error) bool { return strings.HasPrefix(e.Key, prefix) })
}

// checkTags refuses invalid tags, and misspelt variants of the tags that have a meaning.
func checkTags(tags []string) error {
	known := auth.Tags()
	for _, tag := range tags {
		if slices.Contains(known, tag) {
			continue
		}
		if near := Nearest(tag, known); near != "" {
			return fmt.Errorf("has %q, which means nothing; did you mean %s?", tag, near)
		}
	}
	return auth.CheckTags(tags)
}

func (l *loader) checkPermission(section, vhost string, u *User) {
	key := "permissions." + vhost
	if err := auth.CheckVHostName(plainName(vhost)); err != nil {
		l.refuseUser(section, key, err)
		return
	}
	if slices.Contains(u.VHosts, plainName(vhost)) {
		l.refuseUser(section, key, errors.New("is in vhosts, too, where everything is allowed; accepted: one of them"))
	}
	p := u.Permissions[vhost]
	for _, e := range []struct{ key, pattern string }{{"configure", p.Configure}, {"write", p.Write}, {"read", p.Read}} {
		if err := auth.CheckPattern(e.pattern); err != nil {
			l.refuseUser(section, key+"."+e.key, err)
		}
	}
}
