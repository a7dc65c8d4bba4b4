package app

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// elsewhere returns the port of address at an address of this machine that is not a loopback one.
func elsewhere(t *testing.T, address string) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(address)
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && n.IP.To4() != nil {
			return net.JoinHostPort(n.IP.String(), port)
		}
	}
	t.Skip("this machine has no address but loopback ones")
	return ""
}

// login returns the error of a connection as a user.
func login(address, user, password, vhost string) error {
	conn, err := amqp.DialConfig("amqp://"+address, amqp.Config{SASL: []amqp.Authentication{&amqp.PlainAuth{Username: user, Password: password}}, Vhost: vhost})
	if err != nil {
		return err
	}
	return conn.Close()
}

// The user named in a container's variables can log in from outside. There used to be only guest, for the container itself.
func TestConfiguredUser(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	writeFile(t, secret, "from a file\r\n")
	t.Setenv("CURFEW_AUTH__PASSWORD_HASHING", "sha512") // takes no time
	t.Setenv("CURFEW_AUTH__USERS__ANNA__PASSWORD", "s3cret")
	t.Setenv("CURFEW_AUTH__USERS__BOB__PASSWORD_FILE", secret)
	t.Setenv("CURFEW_AUTH__USERS__BOB__VHOSTS", "/,orders")
	broker := spawn(t, filepath.Join(dir, "data"), "--amqp", ":0")
	outside := elsewhere(t, broker.address)
	var logins sync.WaitGroup // at once, because an answer that refuses one comes late
	for _, tt := range []struct {
		user, password, vhost string
		ok                    bool
	}{
		{"anna", "s3cret", "/", true},
		{"anna", "wrong", "/", false},
		{"anna", "s3cret", "orders", false},
		{"bob", "from a file", "orders", true},
		{"bob", "from a file", "/", true},
		{"guest", "guest", "/", false},
	} {
		logins.Go(func() {
			if err := login(outside, tt.user, tt.password, tt.vhost); (err == nil) != tt.ok {
				t.Errorf("%s with %q in %s: %v", tt.user, tt.password, tt.vhost, err)
			}
		})
	}
	logins.Wait()
	if err := login("127.0.0.1:"+outside[strings.LastIndex(outside, ":")+1:], "guest", "guest", "/"); err != nil {
		t.Errorf("guest from this machine: %v", err)
	}
	broker.end(syscall.SIGTERM)
	for _, r := range broker.log {
		if strings.Contains(fmt.Sprint(r), "s3cret") || strings.Contains(fmt.Sprint(r), "from a file") {
			t.Errorf("a password is logged: %v", r)
		}
	}

	// The user exists: its password stays, although another one is configured, and the file with the other one is gone.
	t.Setenv("CURFEW_AUTH__USERS__ANNA__PASSWORD", "another")
	if err := os.Remove(secret); err != nil {
		t.Fatal(err)
	}
	broker = spawn(t, filepath.Join(dir, "data"), "--amqp", ":0")
	if err := login(broker.address, "anna", "s3cret", "/"); err != nil {
		t.Error(err)
	}
	if err := login(broker.address, "anna", "another", "/"); err == nil {
		t.Error("the password was replaced")
	}
}

// A user whose tags allow it is an administrator of the API from the first request on.
func TestConfiguredAdministrator(t *testing.T) {
	yaml := local + "auth: {password-hashing: sha512, users: {ops: {password: s3cret, tags: [administrator], vhosts: []}}}\n"
	p := launchWith(t, newFake(), func(a *app) { a.newBroker = newBroker }, yaml, "--data", filepath.Join(t.TempDir(), "data"))
	p.wait("ready")
	for _, tt := range []struct {
		password string
		status   int
	}{{"s3cret", 200}, {"wrong", 401}} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+p.addr["listen.management"]+"/api/users", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.SetBasicAuth("ops", tt.password)
		answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != tt.status {
			t.Errorf("with %q: got %s", tt.password, answer.Status)
		}
	}
	p.stop()
}

// If a user cannot be added, the broker does not start, and the error names the key.
func TestConfiguredUserFails(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct{ name, content, want string }{
		{"missing", "", "no such file or directory"},
		{"empty", "\n", " is empty"},
		{"lines", "a\nb\n", " has more than one line"},
		{"NUL", "a\x00b", " has a NUL, which no client can send"},
		{"long", strings.Repeat("x", 4096+1), " has more than 4096 bytes"},
	} {
		file := filepath.Join(dir, tt.name)
		if tt.name != "missing" {
			writeFile(t, file, tt.content)
		}
		p := &process{t: t, lines: make(chan record, 100), dir: t.TempDir(), addr: map[string]string{}}
		writeFile(t, p.file(), local+"auth: {users: {a.b: {password-file: "+file+"}}}\n")
		a := &app{plugins: allPlugins(nil), stdout: t.Output(), stderr: p, signals: make(chan os.Signal, 1), newBroker: newBroker}
		if code := a.run([]string{"serve", "--config", p.file(), "--data", filepath.Join(p.dir, "data")}); code != exitFailure {
			t.Errorf("%s: exit status %d", tt.name, code)
		}
		if got := fmt.Sprint(p.wait("the broker cannot start")["error"]); !strings.HasPrefix(got, "auth.users.a.b.password-file: ") || !strings.HasSuffix(got, tt.want) || !strings.Contains(got, file) {
			t.Errorf("%s: got %s", tt.name, got)
		}
	}
}
