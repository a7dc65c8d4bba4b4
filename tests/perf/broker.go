package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// broker is a measured broker: one that perf starts, in a session of its own as services are, or one that is already
// running on this machine.
type broker struct {
	name        string
	uri, secure string // without and with TLS
	pid         int

	shared bool                  // in the session of this program and of the generator
	dir    string                // its files, removed before each start
	launch func(b *broker) error // nil: perf does not start it
	parts  []*exec.Cmd           // what launch has started
}

const (
	startup  = time.Minute
	shutdown = 20 * time.Second
)

// start starts the broker, empty. Brokers without launch are running already.
func (b *broker) start(ctx context.Context) error {
	if b.launch == nil {
		return nil
	}
	if err := os.RemoveAll(b.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return err
	}
	err := b.launch(b)
	if err == nil {
		err = b.await(ctx)
	}
	if err != nil {
		b.stop()
		return fmt.Errorf("%s: %w", b.name, err)
	}
	return nil
}

// running reports whether it has been started.
func (b *broker) running() bool { return b.launch == nil || len(b.parts) > 0 }

// await waits until its port is open.
func (b *broker) await(ctx context.Context) error {
	address := strings.TrimSuffix(b.uri[strings.IndexByte(b.uri, '@')+1:], "/")
	for end := time.Now().Add(startup); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if c, err := net.Dial("tcp", address); err == nil {
			return errors.Join(c.Close(), b.identify())
		}
	}
	return fmt.Errorf("does not listen on %s after %v; see %s", address, startup, b.dir)
}

// identify finds the broker's process if it is not the started one.
func (b *broker) identify() error {
	text, err := os.ReadFile(b.pidFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	b.pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
	return err
}

func (b *broker) pidFile() string { return filepath.Join(b.dir, "pid") }

// run starts one of its programs.
func (b *broker) run(env []string, program string, args ...string) error {
	out, err := os.Create(filepath.Join(b.dir, filepath.Base(program)+".out"))
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }() // the program has its own copy
	cmd := exec.Command(program, args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), b.dir, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: !b.shared, Setpgid: b.shared} // either way it leads a group
	if err := cmd.Start(); err != nil {
		return err
	}
	b.parts, b.pid = append(b.parts, cmd), cmd.Process.Pid
	return nil
}

// stop ends the started programs, the last one first.
func (b *broker) stop() {
	for _, part := range slices.Backward(b.parts) {
		group := -part.Process.Pid
		ended := make(chan struct{})
		go func() { _ = part.Wait(); close(ended) }()
		_ = syscall.Kill(group, syscall.SIGTERM) // it may have ended
		select {
		case <-ended:
		case <-time.After(shutdown):
		}
		_ = syscall.Kill(group, syscall.SIGKILL)
		<-ended
	}
	b.parts = nil
}

const curfewConf = `listen: {amqp: "%s", amqps: "%s", management: "%s"}
tls: {cert: "%s", key: "%s"}
data: {dir: "%s"}
limits: {message-size: 128MiB}
`

// certificate makes the certificate for all brokers with TLS.
type certificate struct{ cert, key string }

func newCurfew(name, binary, dir string, c certificate) (*broker, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	b := &broker{name: name, dir: filepath.Join(dir, name), uri: at("amqp", ports[0]), secure: at("amqps", ports[1])}
	b.launch = func(b *broker) error {
		conf := filepath.Join(b.dir, "curfew.yaml")
		text := fmt.Sprintf(curfewConf, local(ports[0]), local(ports[1]), local(ports[2]), c.cert, c.key, filepath.Join(b.dir, "data"))
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			return err
		}
		return b.run(nil, binary, "serve", "--config", conf)
	}
	return b, nil
}

const rabbitConf = `listeners.tcp.1 = %s
listeners.ssl.1 = %s
ssl_options.certfile = %s
ssl_options.keyfile = %s
ssl_options.verify = verify_none
`

// newRabbit returns Debian's RabbitMQ with its default configuration; nil if it is not installed.
func newRabbit(dir string, c certificate) (*broker, error) {
	found, err := filepath.Glob("/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin")
	if err != nil || len(found) == 0 {
		return nil, err
	}
	ports, err := freePorts(4)
	if err != nil {
		return nil, err
	}
	b := &broker{name: "rabbitmq", dir: filepath.Join(dir, "rabbitmq"), uri: at("amqp", ports[0]), secure: at("amqps", ports[1])}
	b.launch = func(b *broker) error {
		files := map[string]string{
			"rabbitmq.conf":   fmt.Sprintf(rabbitConf, local(ports[0]), local(ports[1]), c.cert, c.key),
			"enabled_plugins": "[].\n",
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o600); err != nil {
				return err
			}
		}
		env := rabbitEnvironment(b, ports)
		// First, because the name server that Erlang starts by itself would stay.
		if err := b.run(env, "epmd", "-port", ports[3], "-address", "127.0.0.1", "-relaxed_command_check"); err != nil {
			return err
		}
		return b.run(env, filepath.Join(found[0], "rabbitmq-server"))
	}
	return b, nil
}

func rabbitEnvironment(b *broker, ports []string) []string {
	return []string{
		"HOME=" + b.dir,
		"RABBITMQ_NODENAME=curfewperf" + ports[0] + "@localhost",
		"RABBITMQ_BASE=" + b.dir,
		"RABBITMQ_MNESIA_BASE=" + filepath.Join(b.dir, "mnesia"),
		"RABBITMQ_LOG_BASE=" + b.dir,
		"RABBITMQ_PID_FILE=" + b.pidFile(),
		"RABBITMQ_CONFIG_FILE=" + filepath.Join(b.dir, "rabbitmq"),
		"RABBITMQ_ENABLED_PLUGINS_FILE=" + filepath.Join(b.dir, "enabled_plugins"),
		"RABBITMQ_DIST_PORT=" + ports[2],
		"ERL_EPMD_PORT=" + ports[3], "ERL_EPMD_ADDRESS=127.0.0.1",
		"ERL_AFLAGS=-kernel inet_dist_use_interface {127,0,0,1}",
		"LC_ALL=C.UTF-8",
	}
}

// foreign reads NAME,URI,PID: a broker that perf does not start.
func foreign(s string) (*broker, error) {
	parts := strings.Split(s, ",")
	if len(parts) != 3 {
		return nil, errors.New("must be NAME,URI,PID")
	}
	pid, err := strconv.Atoi(parts[2])
	if err != nil {
		return nil, errors.New("must be NAME,URI,PID with the number of a process")
	}
	return &broker{name: parts[0], uri: parts[1], pid: pid}, nil
}

func at(scheme, port string) string { return scheme + "://guest:guest@" + local(port) + "/" }

func local(port string) string { return net.JoinHostPort("127.0.0.1", port) }

// freePorts returns ports that were free a moment ago.
func freePorts(n int) (ports []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }() // all at the end, or the next would be the same
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	return ports, nil
}
