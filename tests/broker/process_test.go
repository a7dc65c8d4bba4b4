package broker

import (
	"crypto/tls"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
)

// Everything that is wrong with a configuration is said at once, with what would be right, and nothing is started.
func TestConfigurationErrors(t *testing.T) {
	t.Parallel()
	b := process.Launch(t, `
listen:
  ampq: ":5672"
limits:
  frame-max: 100
  heartbeat: often
plugins:
  chain: [ttl, tll]
`)
	if got := b.Exit(); got != 2 {
		t.Errorf("exit status %d, want 2", got)
	}
	printed := strings.Join(b.Printed(), "\n")
	for _, want := range []string{"4 errors", "listen.ampq", "listen.amqp", "limits.frame-max", "4KiB to 16MiB", "limits.heartbeat", "often", "tll"} {
		if !strings.Contains(printed, want) {
			t.Errorf("%q is not in what was printed:\n%s", want, printed)
		}
	}
}

func TestAddressInUse(t *testing.T) {
	t.Parallel()
	first := process.Start(t, "")
	second := process.Launch(t, "", "--amqp", first.AMQP)
	second.Excuse("the broker cannot start")
	if got := second.Exit(); got != 1 {
		t.Errorf("exit status %d, want 1", got)
	}
}

// Who reads the log may go away: the broker stays, and ends properly when it is told to.
func TestNobodyReadsTheLog(t *testing.T) {
	t.Parallel()
	b := process.Start(t, "log: {level: debug}")
	b.LeaveLog()
	for range 2 { // each is worth lines in the log
		conn, err := process.Dial(b.URL())
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	b.Signal(syscall.SIGTERM)
	if got := b.Exit(); got != 0 {
		t.Errorf("exit status %d", got)
	}
}

// SIGHUP takes over what can be changed; connections stay.
func TestReload(t *testing.T) {
	t.Parallel()
	b := process.Start(t, "log: {level: info}")
	witness := newBystander(t, b.AMQP)
	b.Configure("log: {level: debug}\nlimits: {channels: 3}\n")
	b.Signal(syscall.SIGHUP)
	if r := b.Await("a changed key needs a restart"); r["key"] != "limits.channels" {
		t.Errorf("got %v", r)
	}
	witness.check()
}

// A client that knows the certificate connects with TLS; one that does not is none of the broker's business.
func TestTLS(t *testing.T) {
	t.Parallel()
	cert, key, pool := process.Certificate(t)
	b := process.Start(t, fmt.Sprintf("listen: {amqps: \"127.0.0.1:0\"}\ntls: {cert: %q, key: %q}\n", cert, key))
	url := "amqps://guest:guest@" + b.AMQPS + "/"
	conn, err := amqp091.DialTLS(url, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare("q", false, false, true, false, nil); err != nil {
		t.Error(err)
	}
	if _, err := amqp091.DialTLS(url, &tls.Config{MinVersion: tls.VersionTLS12}); err == nil {
		t.Error("a client trusted a certificate that it does not know")
	}
	if _, err := amqp091.Dial("amqp://guest:guest@" + b.AMQPS + "/"); err == nil {
		t.Error("a client without TLS was let in")
	}
}

// What the broker says it can do is what client libraries look for.
func TestServerProperties(t *testing.T) {
	t.Parallel()
	b := process.Start(t, "")
	conn, err := process.Dial(b.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := conn.Properties["product"]; got != "RabbitMQ" {
		t.Errorf("product %v", got)
	}
	if got := conn.Properties["version"]; got != "3.13.7" {
		t.Errorf("version %v", got)
	}
	if got, _ := conn.Properties["curfew_version"].(string); got == "" {
		t.Errorf("the broker does not announce a version of its own: %v", conn.Properties)
	}
	can, _ := conn.Properties["capabilities"].(amqp091.Table)
	for _, name := range []string{
		"publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify", "connection.blocked",
		"consumer_priorities", "authentication_failure_close", "per_consumer_qos", "direct_reply_to",
	} {
		if can[name] != true {
			t.Errorf("capability %s: %v", name, can[name])
		}
	}
	if status, body := b.Health(); status != 200 || body != `{"status":"ok"}` {
		t.Errorf("health: %d %s", status, body)
	}
}
