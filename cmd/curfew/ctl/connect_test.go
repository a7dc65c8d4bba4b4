package ctl

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestConnect(t *testing.T) {
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name                 string
		args, environ        string
		base, user, password string
	}{
		{"nothing said", "", "", "http://localhost:15672", "guest", "guest"},
		{"host and port", "--host broker --port 80", "", "http://broker:80", "guest", "guest"},
		{"host", "--host ::1", "CURFEW_CTL_URL=http://other", "http://[::1]:15672", "guest", "guest"},
		{"port", "--port 81", "CURFEW_CTL_URL=http://other", "http://localhost:81", "guest", "guest"},
		{"URL", "--url=https://broker/mq/ --host x", "CURFEW_CTL_URL=http://other", "https://broker/mq", "guest", "guest"},
		{"environment", "", "CURFEW_CTL_URL=http://broker:1 CURFEW_CTL_USERNAME=a CURFEW_CTL_PASSWORD=b", "http://broker:1", "a", "b"},
		{"environment before node", "-n rabbit@n", "CURFEW_CTL_URL=http://broker:1", "http://broker:1", "guest", "guest"},
		{"user in the URL", "--url http://a:b%2F@broker", "CURFEW_CTL_USERNAME=x CURFEW_CTL_PASSWORD=y", "http://broker", "a", "b/"},
		{"user without password in the URL", "--url http://a@broker", "CURFEW_CTL_PASSWORD=y", "http://broker", "a", "y"},
		{"user", "-u c --password=-d", "CURFEW_CTL_URL=http://a:b@broker", "http://broker", "c", "-d"},
		{"empty password", "--password=", "CURFEW_CTL_PASSWORD=y", "http://localhost:15672", "guest", ""},
		{"node elsewhere", "--node rabbit@other", "", "http://other:15672", "guest", "guest"},
		{"node here", "--node rabbit@" + own, "", "http://localhost:15672", "guest", "guest"},
		{"node without a host", "--node rabbit", "", "http://localhost:15672", "guest", "guest"},
		{"host before node", "--node rabbit@other --host h", "", "http://h:15672", "guest", "guest"},
		{"TLS", "--host h --insecure", "", "https://h:15671", "guest", "guest"},
		{"TLS by environment", "", "CURFEW_CTL_INSECURE=true", "https://localhost:15671", "guest", "guest"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			line, err := parse(strings.Fields(tt.args))
			if err != nil {
				t.Fatal(err)
			}
			c, err := connect(line, strings.Fields(tt.environ))
			if err != nil {
				t.Fatal(err)
			}
			if c.base != tt.base || c.user != tt.user || c.password != tt.password {
				t.Errorf("got %s %s/%s, want %s %s/%s", c.base, c.user, c.password, tt.base, tt.user, tt.password)
			}
		})
	}
}

// run calls the tool and returns its results.
func run(environ []string, args ...string) (status int, stdout, stderr string) {
	var out, errs strings.Builder
	p := &Program{Name: "curfew ctl", Environ: environ, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs}
	status = p.Run(args)
	return status, out.String(), errs.String()
}

func TestTLS(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }))
	t.Cleanup(server.Close)
	server.Config.ErrorLog = nil
	dir := t.TempDir()
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	good, bad := filepath.Join(dir, "good.pem"), filepath.Join(dir, "bad.pem")
	for name, text := range map[string]string{good: string(cert), bad: "nothing"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name, args, environ string
		status              int
		stderr              string
	}{
		{"certificate", "--cacert " + good, "", 0, ""},
		{"certificate by environment", "", cacertVariable + "=" + good, 0, ""},
		{"any", "--insecure", "", 0, ""},
		{"none", "", "", unavailable, "--cacert, or CURFEW_CTL_CACERT, names a file"},
		{"no certificate", "--cacert " + bad, "", dataError, "there is no certificate in " + bad},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := append([]string{"ping", "-q", "--url", server.URL}, strings.Fields(tt.args)...)
			status, _, stderr := run([]string{tt.environ}, args...)
			if status != tt.status || !strings.Contains(stderr, tt.stderr) || tt.stderr == "" && stderr != "" {
				t.Errorf("exit status %d, %s", status, stderr)
			}
		})
	}
}

// A certificate identifies the caller unless a user is named. A request with a certificate has a header that no other site's page can send.
func TestOwnCertificate(t *testing.T) {
	var user, shown, proof string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, _, _ = r.BasicAuth()
		shown, proof = "", r.Header.Get("X-Requested-With")
		if len(r.TLS.PeerCertificates) > 0 {
			shown = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		_, _ = w.Write([]byte("{}"))
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	dir := t.TempDir()
	both, cert, key := writePair(t, dir, "app")
	for _, tt := range []struct {
		name, args, environ string
		user, shown         string
	}{
		{"flags", "--cert " + cert + " --key " + key, "", "", "app"},
		{"one file", "--cert " + both, "", "", "app"},
		{"variables", "", certVariable + "=" + both, "", "app"},
		{"a user is named, too", "-u anna --password x --cert " + both, "", "anna", "app"},
		{"none", "", "", "guest", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := append([]string{"ping", "-q", "--insecure", "--url", server.URL}, strings.Fields(tt.args)...)
			if status, _, stderr := run([]string{tt.environ}, args...); status != 0 {
				t.Fatalf("exit status %d, %s", status, stderr)
			}
			if user != tt.user || shown != tt.shown || (proof != "") != (tt.user == "") {
				t.Errorf("user %q, certificate of %q, X-Requested-With %q", user, shown, proof)
			}
		})
	}
	for args, want := range map[string]string{
		"--key " + key: "--key needs --cert", "--cert " + cert: "--cert " + cert, "--cert /nonexistent": "/nonexistent",
	} {
		if status, _, stderr := run(nil, append([]string{"ping", "--insecure", "--url", server.URL}, strings.Fields(args)...)...); status == 0 || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit status %d, %s", args, status, stderr)
		}
	}
}

// writePair writes a certificate of a common name and its key, into one file and into two.
func writePair(t *testing.T, dir, name string) (both, cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	both, cert, key = filepath.Join(dir, "both.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, content := range map[string][]byte{both: slices.Concat(certPEM, keyPEM), cert: certPEM, key: keyPEM} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return both, cert, key
}

// The password is sent to the broker only: a redirect to another host is not followed.
func TestRedirectIsNotFollowed(t *testing.T) {
	elsewhere := 0
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere++ }))
	t.Cleanup(other.Close)
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	t.Cleanup(server.Close)
	if status, _, stderr := run(nil, "ping", "--url", server.URL); status != unavailable || !strings.Contains(stderr, "302 Found") {
		t.Errorf("exit status %d, %s", status, stderr)
	}
	if elsewhere != 0 {
		t.Error("the redirect was followed")
	}
}

func TestUnreachable(t *testing.T) {
	server := httptest.NewServer(nil)
	server.Close() // nobody listens at its address now
	status, stdout, stderr := run(nil, "list_queues", "--url", server.URL)
	if status != unavailable || !strings.HasPrefix(stderr, "Error: unable to reach the management API at "+server.URL+": ") {
		t.Errorf("exit status %d, %s", status, stderr)
	}
	if want := "Timeout: 60.0 seconds ...\nListing queues for vhost / ...\n"; stdout != want {
		t.Errorf("printed %q, want %q", stdout, want)
	}
}

// This panicked: an unknown option without a command.
func TestOptionWithoutCommand(t *testing.T) {
	var stderr bytes.Buffer
	p := &Program{Name: "curfew ctl", Stderr: &stderr}
	if status := p.Run([]string{"--frobnicate"}); status != usageError {
		t.Errorf("exit status %d, want %d", status, usageError)
	}
	if got := stderr.String(); !strings.Contains(got, "--frobnicate : ") || !strings.Contains(got, "Available commands:") {
		t.Errorf("got %s", got)
	}
}

// Each action of cluster has its own help page; all three once printed the page of cluster.
func TestPagesOfActions(t *testing.T) {
	for action, want := range map[string]string{
		"status": "curfew ctl cluster status\n", "transfer": "curfew ctl cluster transfer [--vhost <vhost>] [<shard>] <node>\n", "replace": "curfew ctl cluster replace <address> [<number>]\n",
		"rebalance": "curfew ctl cluster rebalance\n",
	} {
		for _, args := range [][]string{{"cluster", action, "--help"}, {"help", "cluster", action}} {
			status, page, _ := run(nil, args...)
			if status != 0 || !strings.HasPrefix(page, "\nUsage\n\n"+want) {
				t.Errorf("%v: %d %s", args, status, page)
			}
		}
	}
	if _, page, _ := run(nil, "cluster", "--help"); !strings.Contains(page, "cluster transfer <shard> <node>") || !strings.Contains(page, "cluster replace <address>") {
		t.Errorf("the page of all: %s", page)
	}
}

// Options may stand before "cluster import", too, as before other actions: import was once found only as the first word.
func TestOptionsBeforeFolderCommands(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{"cluster import --from a --data b", "import [--from a --data b]"},
		{"--from a cluster import --data b", "import [--from a --data b]"},
		{"--from=a cluster --shards 2 restore --data b", "restore [--from=a --shards 2 --data b]"},
		{"--help cluster import", "import [--help]"},
		{"--quiet cluster import --data b", "import [--quiet --data b]"}, // which it refuses by name
		{"cluster import -- z", "import [-- z]"},
		{"cluster status", ""},
		{"help cluster import", ""},
		{"--from cluster import", ""}, // a value
		{"-- cluster import", ""},
		{"--vhost import cluster status", ""},
		{"cluster", ""},
	} {
		var called string
		folder := func(name string) func([]string) int {
			return func(words []string) int { called = fmt.Sprint(name, " ", words); return 7 }
		}
		p := &Program{Folders: map[string]func([]string) int{"import": folder("import"), "restore": folder("restore")}, Name: "curfew ctl", Stdout: io.Discard, Stderr: io.Discard}
		p.transport = refusing{}
		status := p.Run(strings.Fields(tt.line))
		if called != tt.want || (status == 7) != (tt.want != "") {
			t.Errorf("%s: exit status %d, called %q, want %q", tt.line, status, called, tt.want)
		}
	}
}

// refusing is a network that refuses all connections.
type refusing struct{}

func (refusing) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("refused") }

// An alarm of the disk that is caused by file descriptors says so.
func TestStatusOfLackingFiles(t *testing.T) {
	node := object{"alarms": []byte(`[{"resource":"disk","path":"/data","free_bytes":1000,"needed_bytes":10,"out_of_files":true}]`)}
	if got := shortage(nil, node); !strings.Contains(got, "no more files can be opened") {
		t.Errorf("got %s", got)
	}
}
