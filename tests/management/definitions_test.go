package management

import (
	"bytes"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// What RabbitMQ 3.10 wrote over HTTP, and with rabbitmqctl, which has pairs where the other has objects: virtual hosts with
// metadata and limits, users whose passwords are hashed in each of its ways, permissions, policies of both kinds, parameters,
// exchanges, queues, bindings.
const (
	exported        = "testdata/rabbitmq-3.10.json"
	exportedWithCtl = "testdata/rabbitmqctl-3.10.json"
)

// Who is in the export, and how the password is hashed there. The password is the name with -secret behind it.
var exportedUsers = map[string]string{
	"exp-sha256": "rabbit_password_hashing_sha256",
	"exp-sha512": "rabbit_password_hashing_sha512",
	"exp-admin":  "rabbit_password_hashing_sha256",
}

// definitions is a definitions file, as far as tests compare it.
type definitions map[string][]map[string]any

func parseDefinitions(t *testing.T, text string) definitions {
	t.Helper()
	var raw map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &raw); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	d := make(definitions)
	for name, value := range raw {
		var objects []map[string]any
		if json.Unmarshal(value, &objects) == nil {
			d[name] = objects
		}
	}
	return d
}

// about keeps what is in virtual hosts with this prefix, and users and parameters that have it.
func (d definitions) about(prefix string) definitions {
	kept := make(definitions)
	for kind, objects := range d {
		for _, o := range objects {
			vhost, _ := o["vhost"].(string)
			name, _ := o["name"].(string)
			if strings.HasPrefix(vhost, prefix) || strings.HasPrefix(name, prefix) && vhost == "" {
				kept[kind] = append(kept[kind], o)
			}
		}
	}
	return kept
}

// compare checks that all of want is in got. Fields that got has besides do not count: RabbitMQ adds some in each version.
func compare(t *testing.T, got, want definitions) {
	t.Helper()
	for kind, objects := range want {
		for _, o := range objects {
			if !slices.ContainsFunc(got[kind], func(g map[string]any) bool { return covers(g, o) }) {
				t.Errorf("%s: %v is not among %v", kind, o, got[kind])
			}
		}
	}
}

// covers is whether got says all that want says.
func covers(got, want map[string]any) bool {
	metadata, _ := got["metadata"].(map[string]any) // where RabbitMQ 3.10 has what others say of a virtual host itself
	for name, w := range want {
		g := got[name]
		if g == nil {
			g = metadata[name]
		}
		switch {
		case reflect.DeepEqual(g, w), blank(g) && blank(w):
		case (name == "limits" || name == "value") && reflect.DeepEqual(pairs(g), pairs(w)):
		case name == "metadata" && within(g, w):
		case name == "arguments" && reflect.DeepEqual(typed(g), typed(w)):
		default:
			return false
		}
	}
	return true
}

// within is whether one object has what another has.
func within(got, want any) bool {
	g, ok := got.(map[string]any)
	w, also := want.(map[string]any)
	return ok && also && covers(g, w)
}

// typed are the arguments of a queue with its type, which rabbitmqctl exports beside them.
func typed(arguments any) map[string]any {
	all := map[string]any{"x-queue-type": "classic"}
	given, _ := arguments.(map[string]any)
	maps.Copy(all, given)
	return all
}

// blank is whether something is empty, of which RabbitMQ has three kinds: [], {} and nothing at all.
func blank(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	case string:
		return v == ""
	case bool:
		return !v
	}
	return false
}

// pairs makes an object of a list of pairs, which is how rabbitmqctl 3.10 exports limits and global parameters.
func pairs(v any) any {
	list, ok := v.([]any)
	if !ok {
		return v
	}
	object := make(map[string]any)
	for _, p := range list {
		if pair, ok := p.([]any); ok && len(pair) == 2 {
			if name, ok := pair[0].(string); ok {
				object[name] = pair[1]
			}
		}
	}
	return object
}

func TestRabbitMQsExportLoads(t *testing.T) {
	for _, file := range []string{exported, exportedWithCtl} {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			b := curfew(t)
			b.ctl(t, "import_definitions", file)
			text, err := os.ReadFile(exported)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, parseDefinitions(t, b.ctl(t, "export_definitions", "-")), parseDefinitions(t, string(text)).about("exp"))
			for name := range exportedUsers {
				b.dial(t, name, name+"-secret", "exp.one")
			}
			_, err = b.connect("exp-admin", "wrong", "exp.one")
			wantClosed(t, err, amqp091.AccessRefused, "username or password not allowed")
			b.wantListed(t, "exp.one", "name,policy,operator_policy", "exp.ttl\texp-ttl\texp-ceiling", "exp.dead\t\t", "exp.args\t\t")
			declare(t, b.dial(t, "guest", "guest", "exp.one"), nil, "exp.ttl") // is what it was
			// A second time, nothing changes.
			before := b.ctl(t, "export_definitions", "-")
			b.ctl(t, "import_definitions", file)
			if after := b.ctl(t, "export_definitions", "-"); after != before {
				t.Errorf("importing again changed\n%s\nto\n%s", before, after)
			}
		})
	}
}

// populate puts something of everything into a broker. All names begin with exp.
func populate(t *testing.T, b broker) {
	t.Helper()
	b.ctl(t, "add_vhost", "exp.one", "--description", "first", "--tags", "a,b")
	b.ctl(t, "add_vhost", "exp.two", "--default-queue-type", "classic")
	for _, user := range []string{"exp-sha256", "exp-admin"} {
		b.ctl(t, "add_user", user, user+"-secret")
	}
	b.change(t, http.MethodPut, "/users/exp-sha512", `{"tags":"","hashing_algorithm":"rabbit_password_hashing_sha512","password_hash":"`+hashed("exp-sha512-secret")+`"}`)
	b.ctl(t, "set_user_tags", "exp-admin", "administrator")
	b.ctl(t, "set_user_limits", "exp-sha256", `{"max-connections":50,"max-channels":100}`)
	for user := range exportedUsers {
		b.ctl(t, "set_permissions", "-p", "exp.one", user, "^exp", "^exp|^amq\\.", ".*")
	}
	b.ctl(t, "set_permissions", "-p", "exp.one", "guest", ".*", ".*", ".*")
	b.ctl(t, "set_topic_permissions", "-p", "exp.one", "exp-sha256", "amq.topic", "^exp", ".*")
	b.ctl(t, "set_vhost_limits", "-p", "exp.one", `{"max-connections":100,"max-queues":50}`)
	b.ctl(t, "set_policy", "-p", "exp.one", "--apply-to", "queues", "--priority", "7", "exp-ttl", "^exp\\.ttl$",
		`{"message-ttl":3600000,"dead-letter-exchange":"exp.x"}`)
	b.ctl(t, "set_operator_policy", "-p", "exp.one", "--apply-to", "queues", "exp-ceiling", "^exp\\.ttl$", `{"max-length":1000}`)
	b.ctl(t, "set_global_parameter", "exp-parameter", `{"a":[1,"b",true]}`)
	ch := b.dial(t, "guest", "guest", "exp.one")
	declare(t, ch, nil, "exp.ttl", "exp.dead")
	declare(t, ch, amqp091.Table{
		"x-message-ttl": int32(60000), "x-max-priority": int32(3), "x-dead-letter-exchange": "exp.x", "x-overflow": "reject-publish",
	}, "exp.args")
	for name, kind := range map[string]string{"exp.x": "fanout", "exp.topic": "topic", "exp.headers": "headers"} {
		if err := ch.ExchangeDeclare(name, kind, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, bind := range []func() error{
		func() error { return ch.QueueBind("exp.dead", "", "exp.x", false, nil) },
		func() error { return ch.QueueBind("exp.ttl", "a.*.#", "exp.topic", false, nil) },
		func() error {
			return ch.QueueBind("exp.args", "", "exp.headers", false, amqp091.Table{"x-match": "any", "k": "v", "n": int32(5)})
		},
		func() error { return ch.ExchangeBind("exp.x", "k", "amq.direct", false, nil) },
	} {
		if err := bind(); err != nil {
			t.Fatal(err)
		}
	}
}

// unpopulate takes away what populate has put there.
func unpopulate(t *testing.T, b broker) {
	t.Helper()
	for _, name := range []string{"exp.one", "exp.two"} {
		b.ctl(t, "delete_vhost", name)
	}
	for user := range exportedUsers {
		b.ctl(t, "delete_user", user)
	}
	b.ctl(t, "clear_global_parameter", "exp-parameter")
}

// hashed is a password as RabbitMQ hashes it with SHA-512: a salt of four bytes, and the digest of salt and password.
func hashed(password string) string {
	salt := []byte{1, 2, 3, 4}
	digest := sha512.Sum512(append(salt, password...))
	return base64.StdEncoding.EncodeToString(append(salt[:4:4], digest[:]...))
}

// TestRecordExport writes the exports anew, with -rewrite.
func TestRecordExport(t *testing.T) {
	if !*rewrite {
		t.Skip("records testdata, with -rewrite")
	}
	b := rabbitmq(t)
	populate(t, b)
	for file, tool := range map[string]func(*testing.T, string, ...string) (int, string, string){exported: b.tool, exportedWithCtl: rabbitTool} {
		b.tool = tool
		whole := filepath.Join(t.TempDir(), "definitions.json")
		b.ctl(t, "export_definitions", whole)
		text, err := os.ReadFile(whole)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, append(bytes.TrimSpace(text), '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Not in parallel: RabbitMQ's rabbitmqctl exports all that there is, and fails over some of what other tests set.
func TestOurExportLoadsIntoRabbitMQ(t *testing.T) {
	rabbit := rabbitmq(t)
	t.Cleanup(func() { unpopulate(t, rabbit) })
	b := curfew(t)
	populate(t, b)
	file := filepath.Join(t.TempDir(), "definitions.json")
	b.ctl(t, "export_definitions", file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rabbit.tool = rabbitTool
	rabbit.ctl(t, "import_definitions", file)
	want := parseDefinitions(t, string(text)).about("exp")
	var got definitions
	eventually(t, "RabbitMQ has imported everything", func() bool {
		got = parseDefinitions(t, rabbit.ctl(t, "export_definitions", "-"))
		return len(got["bindings"]) >= len(want["bindings"])
	})
	compare(t, got, want)
	for name := range exportedUsers {
		rabbit.dial(t, name, name+"-secret", "exp.one")
	}
	rabbit.tool = ourTool(rabbit.api)
	rabbit.wantListed(t, "exp.one", "name,policy,operator_policy", "exp.ttl\texp-ttl\texp-ceiling", "exp.dead\t\t", "exp.args\t\t")
}

// All of a file is checked before any of it is applied.
func TestImportIsAllOrNothing(t *testing.T) {
	t.Parallel()
	b := curfew(t)
	before := b.ctl(t, "export_definitions", "-")
	for _, tt := range []struct{ name, definitions, text string }{
		{"a policy", `{"vhosts":[{"name":"new"}],"policies":[{"vhost":"new","name":"p","pattern":"","definition":{"message-ttl":-1}}]}`, "is not a valid message TTL"},
		{"a user", `{"vhosts":[{"name":"new"}],"users":[{"name":"u","password_hash":"x","tags":""}]}`, "u"},
		{"a virtual host that is not there", `{"users":[{"name":"u","password":"p","tags":""}],"queues":[{"vhost":"nosuch","name":"q"}]}`, "nosuch"},
		{"an exchange's type", `{"vhosts":[{"name":"new"}],"exchanges":[{"vhost":"new","name":"x","type":"nosuch"}]}`, "nosuch"},
		{"a queue's argument", `{"vhosts":[{"name":"new"}],"queues":[{"vhost":"new","name":"q","arguments":{"x-message-ttl":"soon"}}]}`, "x-message-ttl"},
		{"a permission", `{"vhosts":[{"name":"new"}],"permissions":[{"user":"guest","vhost":"new","configure":"(","write":"","read":""}]}`, "("},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, _, stderr := b.tool(t, tt.definitions, "import_definitions")
			if status != 65 || !strings.Contains(stderr, tt.text) {
				t.Errorf("exit status %d, want 65 and %q: %s", status, tt.text, stderr)
			}
			if after := b.ctl(t, "export_definitions", "-"); after != before {
				t.Errorf("something of it was applied:\n%s\nbefore:\n%s", after, before)
			}
		})
	}
}

// rabbitmqadmin exports and imports through the API, whole and per virtual host.
func TestRabbitmqadminTransfers(t *testing.T) {
	t.Parallel()
	a, b := curfew(t), curfew(t)
	populate(t, a)
	dir := t.TempDir()
	for _, tt := range []struct{ file, vhost string }{{"all.json", ""}, {"one.json", "exp.one"}} {
		args := []string{"export", filepath.Join(dir, tt.file)}
		if tt.vhost != "" {
			args = append([]string{"-V", tt.vhost}, args...)
		}
		if status, stdout, stderr := a.admin(t, "", args...); status != 0 {
			t.Fatalf("%s%s", stdout, stderr)
		}
	}
	if status, stdout, stderr := b.admin(t, "", "import", filepath.Join(dir, "all.json")); status != 0 {
		t.Fatalf("%s%s", stdout, stderr)
	}
	compare(t, parseDefinitions(t, b.ctl(t, "export_definitions", "-")), parseDefinitions(t, a.ctl(t, "export_definitions", "-")).about("exp"))

	b.newVHost(t, "copy")
	if status, stdout, stderr := b.admin(t, "", "-V", "copy", "import", filepath.Join(dir, "one.json")); status != 0 {
		t.Fatalf("%s%s", stdout, stderr)
	}
	b.wantListed(t, "copy", "name,policy", "exp.ttl\texp-ttl", "exp.dead\t", "exp.args\t")
}

// Everything that is set is there after a restart.
func TestSettingsSurviveRestart(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	p := process.Start(t, "limits: {handshake-timeout: 10m}", "--data", data)
	b := of(t, p)
	populate(t, b)
	b.ctl(t, "clear_topic_permissions", "-p", "exp.one", "exp-sha256")
	b.ctl(t, "delete_vhost", "exp.two")
	before := b.ctl(t, "export_definitions", "-")
	p.Kill()
	p = process.Start(t, "limits: {handshake-timeout: 10m}", "--data", data)
	b = of(t, p)
	if after := b.ctl(t, "export_definitions", "-"); after != before {
		t.Errorf("after a restart:\n%s\nbefore:\n%s", after, before)
	}
	b.dial(t, "exp-sha256", "exp-sha256-secret", "exp.one")
	b.wantListed(t, "exp.one", "name,policy,operator_policy", "exp.ttl\texp-ttl\texp-ceiling", "exp.dead\t\t", "exp.args\t\t")
}
