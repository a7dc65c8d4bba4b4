package management

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/curfewmq/curfew/tests/process"
	"github.com/curfewmq/curfew/tests/tools"
)

// rabbit is Debian's RabbitMQ with its management API, started by the first test that wants it. What tests do to it stays: each
// uses virtual hosts and users of its own.
var rabbit struct {
	once    sync.Once
	why     string // it is not there
	dir     string
	env     []string
	bin     string // folder of rabbitmqctl and the others
	amqp    string
	api     string
	stopped []func()
}

// stopRabbit ends it when all tests have run.
func stopRabbit() {
	for _, stop := range slices.Backward(rabbit.stopped) {
		stop()
	}
}

// rabbitmq returns Debian's broker, or skips the test. Our rabbitmqctl manages it: RabbitMQ's takes a second for each call.
func rabbitmq(t *testing.T) broker {
	t.Helper()
	if testing.Short() {
		t.Skip("RabbitMQ takes ten seconds to start, and -short was asked for")
	}
	if underRace {
		t.Skip("RabbitMQ takes minutes, and is compared with by tests without the race detector")
	}
	tools.Want(t, "RabbitMQ")
	rabbit.once.Do(startRabbit)
	if rabbit.why != "" {
		tools.Missing(t, "RabbitMQ", "%s", rabbit.why)
	}
	return broker{amqp: rabbit.amqp, api: rabbit.api, late: true, tool: ourTool(rabbit.api)}
}

func startRabbit() {
	found, err := filepath.Glob("/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin")
	if err != nil || len(found) == 0 {
		rabbit.why = "Debian's rabbitmq-server is not installed"
		return
	}
	rabbit.bin = found[0]
	if err := launchRabbit(); err != nil {
		rabbit.why = fmt.Sprintf("RabbitMQ does not start: %v", err)
	}
}

// rabbitConf makes the management API tell what happened within a second, instead of five, which is the default.
const rabbitConf = `listeners.tcp.1 = %s
management.tcp.ip = 127.0.0.1
management.tcp.port = %s
collect_statistics_interval = 300
management.sample_retention_policies.global.minute = 1
management.sample_retention_policies.basic.minute = 1
management.sample_retention_policies.detailed.10 = 1
`

func launchRabbit() error {
	var err error
	if rabbit.dir, err = os.MkdirTemp("", "rabbitmq-test-"); err != nil {
		return err
	}
	rabbit.stopped = append(rabbit.stopped, func() { _ = os.RemoveAll(rabbit.dir) }) // a folder below the system's temporary one
	ports, err := freePorts(4)
	if err != nil {
		return err
	}
	rabbit.amqp, rabbit.api = "127.0.0.1:"+ports[0], "127.0.0.1:"+ports[1]
	rabbit.env = rabbitEnvironment(ports)
	settings := map[string]string{
		"rabbitmq.conf":   fmt.Sprintf(rabbitConf, rabbit.amqp, ports[1]),
		"enabled_plugins": "[rabbitmq_management].\n",
	}
	for name, text := range settings {
		if err := os.WriteFile(filepath.Join(rabbit.dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return bootRabbit(ports[3])
}

func rabbitEnvironment(ports []string) []string {
	return append(os.Environ(),
		"HOME="+rabbit.dir,
		"RABBITMQ_NODENAME=curfewtest"+ports[0]+"@localhost",
		"RABBITMQ_BASE="+rabbit.dir,
		"RABBITMQ_MNESIA_BASE="+filepath.Join(rabbit.dir, "mnesia"),
		"RABBITMQ_LOG_BASE="+rabbit.dir,
		"RABBITMQ_CONFIG_FILE="+filepath.Join(rabbit.dir, "rabbitmq"),
		"RABBITMQ_ENABLED_PLUGINS_FILE="+filepath.Join(rabbit.dir, "enabled_plugins"),
		"RABBITMQ_DIST_PORT="+ports[2],
		"ERL_EPMD_PORT="+ports[3], "ERL_EPMD_ADDRESS=127.0.0.1",
		"ERL_AFLAGS=-kernel inet_dist_use_interface {127,0,0,1}",
		"LC_ALL=C.UTF-8",
	)
}

// bootRabbit starts the name server first, because the one that Erlang starts by itself would stay.
func bootRabbit(namePort string) error {
	if err := background("epmd", "-port", namePort, "-address", "127.0.0.1", "-relaxed_command_check"); err != nil {
		return err
	}
	if err := background(filepath.Join(rabbit.bin, "rabbitmq-server")); err != nil {
		return err
	}
	if !process.Poll(listening) {
		return errors.New("it does not listen")
	}
	return nil
}

// listening asks the API whether AMQP is served, which comes last.
func listening() bool {
	_, port, _ := strings.Cut(rabbit.amqp, ":")
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://"+rabbit.api+"/api/health/checks/port-listener/"+port, http.NoBody)
	if err != nil {
		return false
	}
	request.SetBasicAuth("guest", "guest")
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	return err == nil && answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
}

// guard runs a program, and kills it and all that it has started when nobody is left who wants it, even if the tests were killed.
const guard = `"$0" "$@" </dev/null & cat; kill -KILL 0`

// background starts a program that lasts until the tests are through. It is then killed, with the programs that it has started:
// nothing of what it knows is needed any more.
func background(program string, args ...string) error {
	cmd := exec.Command("sh", append([]string{"-c", guard, program}, args...)...)
	if _, err := cmd.StdinPipe(); err != nil { // which closes when the tests end
		return err
	}
	cmd.Env, cmd.Dir = rabbit.env, rabbit.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := os.Create(filepath.Join(rabbit.dir, filepath.Base(program)+".out"))
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		_ = out.Close() // nothing is in it
		return err
	}
	rabbit.stopped = append(rabbit.stopped, func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
		_ = cmd.Wait()
		_ = out.Close()
	})
	return nil
}

func rabbitCommand(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(rabbit.bin, "rabbitmqctl"), args...)
	cmd.Env, cmd.Dir = rabbit.env, rabbit.dir
	return cmd
}

// rabbitTool is RabbitMQ's own rabbitmqctl, for its own broker.
func rabbitTool(_ *testing.T, stdin string, args ...string) (status int, stdout, stderr string) {
	cmd := rabbitCommand(args...)
	return outcome(cmd, stdin)
}

// freePorts returns ports that nobody listened on a moment ago.
func freePorts(n int) ([]string, error) {
	var ports []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		_, port, _ := strings.Cut(l.Addr().String(), ":")
		if _, err := strconv.Atoi(port); err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	return ports, nil
}
