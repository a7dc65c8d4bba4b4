package config

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/core/auth"
)

const usersYAML = `auth:
  users:
    anna:
      password: "s3cret: 1"
      tags: [administrator]
    Dr.No@example.com:
      password-file: /run/secrets/no
      vhosts: [/, orders.eu]
    probe:
      password-hash: kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR
      permissions:
        "/": {read: ".*"}
        a.b: {configure: "^x", write: "^x"}
`

func granted(u *User) string {
	var all []string
	for _, g := range u.Grants() {
		all = append(all, fmt.Sprintf("%s in %s: %q %q %q", g.User, g.VHost, g.Configure, g.Write, g.Read))
	}
	return strings.Join(all, "; ")
}

func usersOf(c *Config) map[string]*User {
	all := map[string]*User{}
	for _, u := range c.Auth.Users {
		all[u.Name] = u
	}
	return all
}

func TestUsers(t *testing.T) {
	all := usersOf(load(t, input(t, usersYAML, nil)))
	for _, tt := range []struct{ user, tags, grants string }{
		{"anna", "administrator", `anna in /: ".*" ".*" ".*"`},
		{"Dr.No@example.com", "", `Dr.No@example.com in /: ".*" ".*" ".*"; Dr.No@example.com in orders.eu: ".*" ".*" ".*"`},
		{"probe", "", `probe in /: "" "" ".*"; probe in a.b: "^x" "^x" ""`},
	} {
		u := all[tt.user]
		if u == nil {
			t.Errorf("there is no %s: %v", tt.user, all)
			continue
		}
		if got := granted(u); got != tt.grants || strings.Join(u.Tags, " ") != tt.tags {
			t.Errorf("%s: got tags %v, %s, want %s, %s", tt.user, u.Tags, got, tt.tags, tt.grants)
		}
	}
	if string(all["anna"].Password) != "s3cret: 1" || all["Dr.No@example.com"].PasswordFile != "/run/secrets/no" || all["probe"].Hashing != string(auth.SHA256) {
		t.Errorf("got %+v", all)
	}
	if key := all["Dr.No@example.com"].Key(); key != "auth.users.Dr.No@example.com" {
		t.Errorf("key: got %q", key)
	}
}

// A name in a variable refers to the name in the file that is spelt alike, otherwise to one in lower case with dashes.
func TestUsersFromVariables(t *testing.T) {
	all := usersOf(load(t, input(t, "auth: {users: {Anna_B.c: {password: x}}}\n", []string{
		"CURFEW_AUTH__USERS__ANNA_B_C__PASSWORD= p w ",
		"CURFEW_AUTH__USERS__ORDER_SERVICE__PASSWORD=1234",
		"CURFEW_AUTH__USERS__ORDER_SERVICE__TAGS=monitoring,management",
		"CURFEW_AUTH__USERS__ORDER_SERVICE__VHOSTS=/,orders",
		"CURFEW_AUTH__USERS__OPS__NAME=Ops@example.com",
		"CURFEW_AUTH__USERS__OPS__PASSWORD_FILE=/run/secrets/ops",
		"CURFEW_AUTH__USERS__WATCH__PASSWORD=x",
		"CURFEW_AUTH__USERS__WATCH__VHOSTS=",
	})))
	if len(all) != 4 || all["Anna_B.c"] == nil || all["order-service"] == nil || all["Ops@example.com"] == nil || all["watch"] == nil {
		t.Fatalf("got %v", all)
	}
	if got := string(all["Anna_B.c"].Password); got != " p w " {
		t.Errorf("got password %q", got)
	}
	if u := all["order-service"]; string(u.Password) != "1234" || !slices.Equal(u.Tags, []string{"monitoring", "management"}) || !slices.Equal(u.VHosts, []string{"/", "orders"}) {
		t.Errorf("got %+v", u)
	}
	if got := granted(all["watch"]); got != "" {
		t.Errorf("with an empty list of vhosts: got %s", got)
	}
}

// A configuration is printed without its secrets.
func TestUsersArePrinted(t *testing.T) {
	c := load(t, input(t, usersYAML, nil))
	var b strings.Builder
	if err := c.Print(&b, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"  users:\n    \"Dr.No@example.com\":\n", "    anna:\n", `      password: "***"  `, `      vhosts: ["/", orders.eu]`,
		"        \"/\":\n", "        a.b:\n          configure: \"^x\"", `      password-hash: "***"  `,
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s is not in\n%s", want, b.String())
		}
	}
	logged := &strings.Builder{}
	slog.New(slog.NewTextHandler(logged, nil)).Info("x", "password", usersOf(c)["anna"].Password)
	for _, shown := range []string{b.String(), fmt.Sprintf("%v %+v %#v", *c.Auth.Users["anna"], c.Auth.Users["anna"], c.Auth.Users["anna"]), logged.String()} {
		if strings.Contains(shown, "s3cret") || strings.Contains(shown, "kI3GC") {
			t.Errorf("a secret in %s", shown)
		}
	}
	if _, err := Load(input(t, b.String(), nil)); err == nil || strings.Count(err.Error(), "stands for a password that was not printed") != 2 || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("loaded back: %v", err)
	}
	restored := strings.Replace(b.String(), `password: "***"`, `password: "other"`, 1)
	restored = strings.Replace(restored, `password-hash: "***"`, `password-hash: kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR`, 1)
	if changes := c.Changes(load(t, input(t, restored, nil))); len(changes) > 0 {
		t.Errorf("printed and loaded again, it differs: %+v", changes)
	}
}

func TestUserErrors(t *testing.T) {
	const one = "one of password, password-file and password-hash"
	for _, tt := range []struct{ name, users, want string }{
		{"empty name", `{"": {password: s3cret}}`, `auth.users..name: cannot be that of a user: user name: empty`},
		{"long name", `{a: {password: s3cret, name: ` + strings.Repeat("x", 256) + `}}`, `auth.users.a.name: "` + strings.Repeat("x", 80) + `…" has 256 bytes; accepted: up to 255 bytes`},
		{"no password", `{a.b: {tags: [management]}}`, "auth.users.a.b: has no password; accepted: " + one},
		{"nothing", `{a: {}}`, "auth.users.a: has no password; accepted: " + one},
		{"null", `{a: }`, "auth.users.a: has no password; accepted: " + one},
		{"empty password", `{a: {password: ""}}`, "auth.users.a: has no password; accepted: " + one},
		{"two passwords", `{a: {password: s3cret, password-hash: s3cret}}`, "auth.users.a: has password and password-hash; accepted: " + one},
		{"not base64", `{a: {password-hash: s3cret!}}`, "auth.users.a.password-hash: is no hash: password_hash: not base64"},
		{"short hash", `{a: {password-hash: s3cretss}}`, "auth.users.a.password-hash: is no hash: password_hash of 6 bytes: those of rabbit_password_hashing_sha256 have 36"},
		{"algorithm", `{a: {password-hash: s3cretss, hashing-algorithm: rot13}}`, `auth.users.a.hashing-algorithm: "rot13" is not a choice; accepted: rabbit_password_hashing_sha256, rabbit_password_hashing_sha512, rabbit_password_hashing_md5, curfew_password_hashing_pbkdf2_sha256`},
		{"printed password", `{a: {password: "***"}}`, `auth.users.a.password: "***" stands for a password that was not printed: write the password itself; accepted: text, printed as ***`},
		{"list", `{a: {password: [s3cret]}}`, "auth.users.a.password: is a single value, not a list; accepted: text, printed as ***"},
		{"section", `{a: {password: {s3: cret}}}`, "auth.users.a.password: is a single value, not a section; accepted: text, printed as ***"},
		{"NUL", `{a: {password: "s3\0cret"}}`, "auth.users.a.password: has a NUL, which no client can send"},
		{"alias", `{a: {password: *s3cret }}`, "is not valid YAML: unknown alias: a text that begins with * needs quotes"},
		{"tag", `{a: {password: s3cret, tags: [admin]}}`, `auth.users.a.tags: has "admin", which means nothing; did you mean administrator?`},
		{"long tag", `{a: {password: s3cret, tags: [` + strings.Repeat("x", 256) + `]}}`, "auth.users.a.tags: tag of 256 bytes: at most 255 are allowed"},
		{"vhost", `{a: {password: s3cret, vhosts: [` + strings.Repeat("x", 256) + `]}}`, "auth.users.a.vhosts: vhost name of 256 bytes: at most 255 are allowed"},
		{"vhost twice", `{a: {password: s3cret, vhosts: [x, x]}}`, `auth.users.a.vhosts: names "x" twice`},
		{"both", `{a: {password: s3cret, vhosts: [x.y], permissions: {x.y: {read: x}}}}`, "auth.users.a.permissions.x.y: is in vhosts, too, where everything is allowed; accepted: one of them"},
		{"pattern", `{a: {password: s3cret, permissions: {x: {read: "("}}}}`, "auth.users.a.permissions.x.read: error parsing regexp: missing closing ): `(` (the syntax is RE2's"},
		{"key", `{a: {password: s3cret, pasword-hash: s3cret}}`, "auth.users.a.pasword-hash: unknown key; did you mean auth.users.a.password-hash?"},
		{"no section", `{a: s3cret}`, "auth.users.a: is a section; it has the keys auth.users.a.name, "},
		{"no section of users", `s3cret`, "auth.users: is a section: it has keys of your choice, and no value"},
		{"one name", `{a: {password: s3cret}, b: {password: s3cret, name: a}}`, `auth.users.b.name: is "a", as that of auth.users.a`},
		{"NUL in a name", `{"a\0b": {password: s3cret}}`, "auth.users.<key>: has a NUL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Load(input(t, "auth:\n  users: "+tt.users+"\n", nil))
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "curfew.yaml") {
				t.Fatalf("got %v\nwant %s", err, tt.want)
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the password is shown: %v", err)
			}
		})
	}
}

// A user that a certificate logs in needs no password.
func TestUserWithoutAPassword(t *testing.T) {
	all := usersOf(load(t, input(t, "tls: {ca: ca.pem}\nauth: {certificate-login: common-name, users: {app: {tags: [management]}}}\n", nil)))
	if u := all["app"]; u == nil || u.Password != "" {
		t.Errorf("got %+v", all)
	}
}
