// Package management manages brokers from outside, with the tools that their users have: rabbitmqctl, rabbitmqadmin, definitions
// files. Where RabbitMQ is installed, what is expected of our broker is expected of RabbitMQ, too.
package management

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/cmd/curfew/ctl"
	"github.com/curfewmq/curfew/tests/process"
	"github.com/curfewmq/curfew/tests/tools"
)

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "4"); err != nil { // they mostly wait, for what RabbitMQ knows a second later and for refused logins
		panic(err)
	}
	goleak.VerifyTestMain(through{m}, process.Cleanup())
}

// through stops RabbitMQ before leaked goroutines are looked for.
type through struct{ *testing.M }

func (m through) Run() int {
	defer stopRabbit()
	return m.M.Run()
}

// broker is one that runs, ours or RabbitMQ.
type broker struct {
	amqp, api string // addresses
	late      bool   // what the API tells about messages, connections and so on is up to a second old
	// tool calls rabbitmqctl.
	tool func(t *testing.T, stdin string, args ...string) (status int, stdout, stderr string)
}

// patient is the configuration of a broker whose clients may have to wait for a processor. Its passwords are hashed as RabbitMQ
// hashes them, which takes no time.
const patient = "limits: {heartbeat: 0s, handshake-timeout: 10m}\nauth: {password-hashing: sha512}\n"

// curfew starts our broker.
func curfew(t *testing.T) broker {
	t.Helper()
	return of(t, process.Start(t, patient))
}

// of is the broker that runs as p.
func of(t *testing.T, p *process.Process) broker {
	t.Helper()
	return broker{amqp: p.AMQP, api: p.Management, tool: ourTool(p.Management)}
}

// ourTool is our tool under the name of RabbitMQ's, for the broker with the given API. It runs in the tests' process, because a start of the
// program takes longer than what it does; TestTheToolIsTheProgram compares both.
func ourTool(api string) func(*testing.T, string, ...string) (int, string, string) {
	return func(_ *testing.T, stdin string, args ...string) (int, string, string) {
		var out, errs strings.Builder
		p := ctl.Program{
			Name: "rabbitmqctl", Environ: append(os.Environ(), "CURFEW_CTL_URL=http://"+api), Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs,
		}
		return p.Run(args), out.String(), errs.String()
	}
}

// outcome runs a program.
func outcome(cmd *exec.Cmd, stdin string) (status int, stdout, stderr string) {
	var out, errs strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err := cmd.Run()
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		return -1, "", err.Error()
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// ctl calls rabbitmqctl, which must succeed, and returns what it prints.
func (b broker) ctl(t *testing.T, args ...string) string {
	t.Helper()
	status, stdout, stderr := b.tool(t, "", args...)
	if status != 0 {
		t.Fatalf("rabbitmqctl %s: exit status %d\n%s%s", strings.Join(args, " "), status, stdout, stderr)
	}
	return stdout
}

// run runs one of the tools.
func (b broker) run(t *testing.T, words []string) (status int, stdout, stderr string) {
	t.Helper()
	switch words[0] {
	case "rabbitmqctl":
		return b.tool(t, "", words[1:]...)
	case "rabbitmqadmin":
		return b.admin(t, "", words[1:]...)
	}
	t.Fatalf("there is no tool %s", words[0])
	return 0, "", ""
}

// admin calls rabbitmqadmin, the script that comes with RabbitMQ.
func (b broker) admin(t *testing.T, stdin string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	script := tools.Path(t, "rabbitmqadmin")
	host, port, _ := strings.Cut(b.api, ":")
	return outcome(exec.Command(script, append([]string{"--host", host, "--port", port}, args...)...), stdin)
}

// brokers start what a test is for: our broker, and RabbitMQ.
var brokers = map[string]func(t *testing.T) broker{
	"curfew": func(t *testing.T) broker {
		t.Helper()
		t.Parallel()
		return curfew(t)
	},
	"rabbitmq": func(t *testing.T) broker {
		t.Helper()
		t.Parallel()
		return rabbitmq(t)
	},
}

// dial opens a channel as user in vhost. It ends with the test.
func (b broker) dial(t *testing.T, user, password, vhost string) *amqp091.Channel {
	t.Helper()
	conn, err := b.connect(user, password, vhost)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the test may have closed it, or the broker
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func (b broker) connect(user, password, vhost string) (*amqp091.Connection, error) {
	return amqp091.DialConfig("amqp://"+b.amqp, amqp091.Config{
		SASL:      []amqp091.Authentication{&amqp091.PlainAuth{Username: user, Password: password}},
		Vhost:     vhost,
		Heartbeat: process.Patience,
		Dial:      amqp091.DefaultDial(process.Patience),
	})
}
