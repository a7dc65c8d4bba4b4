// Package security follows the page about users, TLS, certificates and proxies, with clients and proxies of others.
package security

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/curfewmq/curfew/tests/process"
	"github.com/curfewmq/curfew/tests/tools"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, process.Cleanup()) }

// page is what the tests follow.
const page = "../../core/auth/README.md"

// follower is who follows the page, in a folder of its own.
type follower struct {
	t   *testing.T
	dir string
	// as is what the page's addresses are here.
	as *strings.Replacer
}

// shell runs commands of the page.
func (f *follower) shell(commands string) string {
	f.t.Helper()
	return f.run("sh", "-euc", commands)
}

func (f *follower) run(program string, args ...string) string {
	f.t.Helper()
	for i, arg := range args {
		args[i] = f.as.Replace(arg)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = f.dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(f.dir, "bin")+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		f.t.Fatalf("%s: %v\n%s", args, err, out)
	}
	return string(out)
}

// follow makes the page's certificates, and starts a broker with its settings and more.
func follow(t *testing.T, more string) (*follower, *process.Process) {
	t.Helper()
	tools.Need(t, "sh", "openssl")
	f := &follower{t: t, dir: t.TempDir(), as: strings.NewReplacer()}
	f.shell(process.Block(t, page, "sh", "openssl x509"))
	yaml := strings.NewReplacer("tls/", f.dir+"/tls/", `":5671"`, `"127.0.0.1:0"`, `":15671"`, `"127.0.0.1:0"`+more).Replace(process.Block(t, page, "yaml", "certificate-login"))
	b := process.Start(t, yaml)
	if err := os.Mkdir(filepath.Join(f.dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(process.Binary(t), filepath.Join(f.dir, "bin", "curfew")); err != nil {
		t.Fatal(err)
	}
	port := func(address string) string { _, p, _ := net.SplitHostPort(address); return p }
	f.as = strings.NewReplacer("localhost:15671", "localhost:"+port(b.ManagementTLS), "localhost:5671", "localhost:"+port(b.AMQPS), `"localhost", 5671`, `"localhost", `+port(b.AMQPS),
		"curfew ctl add", "curfew ctl --url http://"+b.Management+" add", "curfew ctl clear", "curfew ctl --url http://"+b.Management+" clear", "curfew ctl set", "curfew ctl --url http://"+b.Management+" set")
	f.shell(process.Block(t, page, "sh", "clear_password"))
	return f, b
}

// Clients of others log in by certificate, as the page says, and so do our own tools.
func TestLoginsByCertificate(t *testing.T) {
	t.Parallel()
	tools.Need(t, "curl")
	python := tools.Pika(t)
	f, _ := follow(t, "")
	f.run(python, "-c", process.Block(t, page, "python", "ExternalCredentials"))
	program := filepath.Join(f.dir, "main.go")
	if err := os.WriteFile(program, []byte(f.as.Replace(process.Block(t, page, "go", "ExternalAuth"))), 0o600); err != nil {
		t.Fatal(err)
	}
	f.build("client", program)
	f.build("bin/curfew-bench", "./cmd/curfew-bench")
	if got := f.run(filepath.Join(f.dir, "client")); got != "from pika\n" {
		t.Errorf("amqp091-go got %q", got)
	}
	got := f.shell(process.Block(t, page, "sh", "--cert tls/app.pem"))
	for _, want := range []string{`"name":"app"`, "by-certificate\t0", "consumed                                            1,000 messages"} {
		if !strings.Contains(got, want) {
			t.Errorf("the tools print %s, want %s", got, want)
		}
	}
	got = f.shell("curl -s -X PUT --cacert tls/ca.pem --cert tls/app.pem --key tls/app.key https://localhost:15671/api/queues/%2F/q -d {}; " +
		"curl -s -X PUT -H 'X-Requested-With: curl' -w '%{http_code}' --cacert tls/ca.pem --cert tls/app.pem --key tls/app.key https://localhost:15671/api/queues/%2F/q -d {}")
	if !strings.Contains(got, "needs the header Origin") || !strings.HasSuffix(got, "201") {
		t.Errorf("a queue is declared by certificate: %s", got)
	}
}

// build compiles a program in the repository, which knows the client, to a file in the follower's folder.
func (f *follower) build(file, program string) {
	f.t.Helper()
	cmd := exec.Command("go", "build", "-o", filepath.Join(f.dir, file), program)
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		f.t.Fatalf("%v\n%s", err, out)
	}
}

// Through HAProxy and nginx, as the page sets them up, clients have their own addresses, and local tools go on to connect directly.
func TestProxies(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ program, language, listen, file string }{
		{"haproxy", "haproxy", "127.0.0.1:5670", "haproxy.cfg"},
		{"nginx", "nginx", "127.0.0.1:5669", "nginx.conf"},
	} {
		t.Run(tt.program, func(t *testing.T) {
			program := tools.Path(t, tt.program)
			if tt.program == "nginx" && exec.Command("test", "-e", streamModule).Run() != nil {
				tools.Missing(t, "nginx's stream module", "%s is not there", streamModule)
			}
			f, b := follow(t, "\n  proxy-protocol: [127.0.0.2]")
			address := free(t)
			config := strings.NewReplacer("127.0.0.1:5672", b.AMQP, tt.listen, address).Replace(process.Block(t, page, tt.language, tt.listen))
			args := []string{"-db", "-f", filepath.Join(f.dir, tt.file)}
			if tt.program == "nginx" {
				config = "load_module " + streamModule + ";\ndaemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr;\nevents {}\n" + config
				args = []string{"-p", f.dir, "-e", "stderr", "-c", filepath.Join(f.dir, tt.file)}
			}
			if err := os.WriteFile(filepath.Join(f.dir, tt.file), []byte(config), 0o600); err != nil {
				t.Fatal(err)
			}
			f.background(program, args...)
			through := f.dial(address)
			if via := through.LocalAddr().String(); !f.listed(b, via) {
				t.Errorf("no connection is listed as that of %s:\n%s", via, f.shell("curfew ctl --url http://"+b.Management+" list_connections name"))
			}
			direct, err := amqp091.Dial("amqp://anna:secret@" + b.AMQP + "/")
			if err != nil {
				t.Fatalf("directly: %v", err)
			}
			direct.Close()
			if conn, err := amqp091.Dial("amqp://guest:guest@" + address + "/"); err == nil {
				conn.Close()
				t.Error("guest, whose password everybody knows, gets in through a proxy on this machine")
			}
		})
	}
}

// streamModule is where Debian has nginx's module for TCP.
const streamModule = "/usr/lib/nginx/modules/ngx_stream_module.so"

// background runs a program until the test ends.
func (f *follower) background(program string, args ...string) {
	f.t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = f.dir
	log, err := os.Create(filepath.Join(f.dir, "proxy.log"))
	if err != nil {
		f.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		log.Close()
		if said, err := os.ReadFile(log.Name()); err == nil && f.t.Failed() {
			f.t.Logf("%s said:\n%s", program, said)
		}
	})
}

// dial connects through a proxy, which may still be starting.
func (f *follower) dial(address string) *amqp091.Connection {
	f.t.Helper()
	f.shell("curfew ctl add_user anna secret; curfew ctl set_permissions anna '.*' '.*' '.*'")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		conn, err := amqp091.Dial("amqp://anna:secret@" + address + "/")
		if err == nil {
			f.t.Cleanup(func() { conn.Close() })
			return conn
		}
		if time.Now().After(deadline) {
			f.t.Fatal(err)
		}
	}
}

// listed reports whether the broker has a connection of a client's address.
func (f *follower) listed(b *process.Process, address string) bool {
	f.t.Helper()
	names := f.shell("curfew ctl --url http://" + b.Management + " list_connections -q name")
	return strings.Contains(names, address+" -> ")
}

// free returns an address that nobody listens on.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// The authorities of clients are read again with the certificate, for all listeners; a file that cannot be used changes nothing.
func TestReloadedAuthorities(t *testing.T) {
	t.Parallel()
	tools.Need(t, "curl")
	f, b := follow(t, "")
	b.Excuse("the files for TLS were not reloaded")
	ask := func() string {
		return f.shell("curl -s -o /dev/null -w '%{http_code}' --cacert tls/broker-ca.pem --cert tls/app.pem --key tls/app.key https://localhost:15671/api/whoami || echo refused")
	}
	f.shell("cp tls/ca.pem tls/broker-ca.pem")
	if got := ask(); got != "200" {
		t.Fatalf("with its authority: %s", got)
	}
	f.shell(`openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3 -subj "/CN=Another" -keyout tls/other.key -out tls/other.pem; echo garbage > tls/ca.pem`)
	b.Signal(syscall.SIGHUP)
	if r := b.Await("the files for TLS were not reloaded"); !strings.Contains(fmt.Sprint(r["error"]), "tls.ca: no certificate in "+f.dir) {
		t.Errorf("logged %v", r)
	}
	if got := ask(); got != "200" {
		t.Errorf("with a file that is no certificate: %s", got)
	}
	f.shell("cp tls/other.pem tls/ca.pem")
	b.Signal(syscall.SIGHUP)
	if r := b.Await("a certificate expires soon"); r["subject"] != "CN=Another" || r["key"] != "tls.ca" {
		t.Errorf("logged %v", r)
	}
	if got := ask(); !strings.Contains(got, "refused") {
		t.Errorf("with another authority: %s", got)
	}
}
