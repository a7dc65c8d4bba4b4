package management

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/curfewmq/curfew/tests/process"
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
	for i := len(rabbit.stopped) - 1; i >= 0; i-- {
		rabbit.stopped[i]()
	}
}

// rabbitmq returns Debian's broker, or skips the test.
func rabbitmq(t *testing.T) broker {
	t.Helper()
	if testing.Short() {
		t.Skip("RabbitMQ takes ten seconds to start, and -short was asked for")
	}
	rabbit.once.Do(startRabbit)
	if rabbit.why != "" {
		t.Skip(rabbit.why)
	}
	return broker{amqp: rabbit.amqp, api: rabbit.api, late: true, tool: rabbitTool}
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
		"rabbitmq.conf":   "listeners.tcp.1 = " + rabbit.amqp + "\nmanagement.tcp.ip = 127.0.0.1\nmanagement.tcp.port = " + ports[1] + "\ncollect_statistics_interval = 500\n",
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
	rabbit.stopped = append(rabbit.stopped, func() { _, _ = rabbitCommand("shutdown").CombinedOutput() })
	if err := awaitAPI(rabbit.api); err != nil {
		return err
	}
	if out, err := rabbitCommand("enable_feature_flag", "all").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// background starts a program that lasts until the tests are through.
func background(program string, args ...string) error {
	cmd := exec.Command(program, args...)
	cmd.Env, cmd.Dir = rabbit.env, rabbit.dir
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
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		_ = out.Close()
	})
	return nil
}

func awaitAPI(address string) error {
	for deadline := time.Now().Add(2 * process.Patience); ; {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(deadline) {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
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
