package management

import (
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/tests/process"
	"github.com/curfewmq/curfew/tests/tools"
)

// The checks of nagios-plugins-rabbitmq send a password to the realm of RabbitMQ's API only, and three of them ask for a node that
// is called rabbit.
func TestNagiosChecks(t *testing.T) {
	t.Parallel()
	tools.Need(t, "check_rabbitmq_overview")
	p := process.Start(t, patient+"node: {name: rabbit@here}\n")
	b := of(t, p)
	b.ctl(t, "add_vhost", "nagios")
	host, port, err := net.SplitHostPort(b.api)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := process.Dial(p.URL()) // the check of the server wants one socket at least
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare("nagios", false, true, false, false, nil); err != nil {
		t.Fatal(err)
	}
	for _, check := range [][]string{
		{"aliveness"},
		{"connections"},
		{"objects"},
		{"overview"},
		{"queue", "--queue", "nagios"},
		{"server", "-n", "here"},
		{"partition", "-n", "here"},
		{"watermark", "-n", "here"},
	} {
		for range 2 {
			args := append([]string{"-H", host, "--port", port, "-u", "guest", "-p", "guest"}, check[1:]...)
			out, err := exec.Command("check_rabbitmq_"+check[0], args...).CombinedOutput()
			if err != nil || !strings.Contains(string(out), " OK") {
				t.Errorf("check_rabbitmq_%s: %v\n%s", check[0], err, out)
			}
		}
	}
}
