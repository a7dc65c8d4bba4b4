package app

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// The number of entries depends on chance, because commits made while one is being written go into the next entry. The test once
// wanted four, and sometimes there were five. Now it compares with the dump.
func TestReadLogs(t *testing.T) {
	dir := t.TempDir()
	i := spawn(t, dir)
	if code, _, stderr := invoke("log", "verify", dir); code != exitFailure || !strings.Contains(stderr, "in use: ") || !strings.Contains(stderr, "by process ") {
		t.Errorf("verify beside a broker: exit status %d, %s", code, stderr)
	}
	c := i.dial()
	c.declare("tasks", true, amqp.Table{"x-message-ttl": int32(60000), "x-note": amqp.Table{"a": []any{true, nil, "b"}}})
	c.must(c.QueueBind("tasks", "key", "amq.topic", false, nil))
	c.publish("amq.topic", "key", persistent("find me"))
	c.must(c.fetch("tasks").Ack(false))
	c.publish("", "tasks", persistent("again"))
	i.end(syscall.SIGTERM)

	code, stdout, stderr := invoke("log", "verify", dir)
	if code != exitOK || stderr != "" {
		t.Errorf("verify: exit status %d\n%s%s", code, stdout, stderr)
	}
	verified := strings.Split(stdout, "\n")
	code, stdout, stderr = invoke("log", "dump", dir)
	for shard, dumped := range strings.Split(stdout, "shard ")[1:] {
		want := fmt.Sprintf("shard %d: 1 segments, %d entries, ", shard, strings.Count(dumped, ": data, "))
		if !strings.HasPrefix(verified[shard], want) || strings.HasSuffix(want, " 0 entries, ") {
			t.Errorf("verify says %q, and what is dumped %q", verified[shard], want)
		}
	}
	for _, want := range []string{
		`  vhost vhost="/" description="Default virtual host" tags=[]`, `  user.set name="guest" tags=["administrator"]`, ` password=(52 bytes) `,
		`  queue.declare vhost="/" name="tasks" id=257:long auto-delete=false arguments={`, `"x-message-ttl": 60000:signedint`, `"x-note": {"a": [true, void, "b"]}`,
		`  bind vhost="/" source="amq.topic" destination="tasks" to-exchange=false key="key" arguments={}`,
		"shard 1\n", `, exchange "amq.topic", key "key", entered 20`, "  queue 257: settle 0\n", `  queue 257: enqueue 1, `,
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("dump: exit status %d, %s; no %q in\n%s", code, stderr, want, stdout)
		}
	}

	damage(t, dir)
	if code, stdout, stderr = invoke("log", "verify", dir); code != exitFailure || !strings.Contains(stdout, "  DAMAGED: 00001-00000001.seg at byte ") || !strings.Contains(stderr, "there is damage") {
		t.Errorf("verify: exit status %d\n%s%s", code, stdout, stderr)
	}
	if code, stdout, _ = invoke("log", "dump", dir); code != exitFailure || !strings.Contains(stdout, "DAMAGED: ") {
		t.Errorf("dump: exit status %d\n%s", code, stdout)
	}
}

// damage inverts a bit of a message.
func damage(t *testing.T, dir string) {
	t.Helper()
	name := filepath.Join(dir, "00001-00000001.seg")
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(b), "find me")
	if at < 0 {
		t.Fatal("the message is not in the log")
	}
	b[at] ^= 1
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// The word help used to be taken for a directory: "open --help: no such file or directory".
func TestHelpBehindLogCommand(t *testing.T) {
	_, want, _ := invoke("help", "log")
	for _, help := range []string{"-h", "--help"} {
		if code, stdout, stderr := invoke("log", "verify", help); code != exitOK || stdout != want || stderr != "" {
			t.Errorf("%s: exit status %d\n%s%s\nwant\n%s", help, code, stdout, stderr, want)
		}
	}
}

func TestReadNoLogs(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		args   []string
		code   int
		stderr string
	}{
		{[]string{"verify", dir}, 1, "curfew log verify: there is no log in this directory\n"},
		{[]string{"dump", dir + "/none"}, 1, "curfew log dump: open " + dir + "/none: no such file or directory\n"},
		{nil, 2, "curfew log: COMMAND is missing\nRun \"curfew help log\" for help.\n"},
		{[]string{"dump"}, 2, "curfew log: DIR is missing\nRun \"curfew help log\" for help.\n"},
		{[]string{"verfy", dir}, 2, "curfew log: unknown command \"verfy\"; did you mean \"verify\"?\nRun \"curfew help log\" for help.\n"},
		{[]string{"dump", dir, dir}, 2, "curfew log: unexpected argument \"" + dir + "\"\nRun \"curfew help log\" for help.\n"},
	} {
		code, stdout, stderr := invoke(append([]string{"log"}, tt.args...)...)
		if code != tt.code || stdout != "" || stderr != tt.stderr {
			t.Errorf("%v: exit status %d\n%s%s\nwant %d\n%s", tt.args, code, stdout, stderr, tt.code, tt.stderr)
		}
	}
}
