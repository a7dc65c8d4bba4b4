package cluster

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/curfewmq/curfew/tests/process"
	"github.com/curfewmq/curfew/tests/tools"
)

// Clients that know nothing but the page's HAProxy go on when nodes are killed, and when one hangs: it sends nobody there any longer.
func TestTheLoadBalancerOfThePage(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("nodes need loopback addresses of their own, with the same port for metrics")
	}
	haproxy := tools.Path(t, "haproxy")
	c := New(t, "", t.TempDir())
	c.FixURLs()
	bind := Address(t, 0)
	_, metrics, _ := net.SplitHostPort(Address(t, 0))
	replaced := []string{":5672\n    option", bind + "\n    option", "port 15692", "port " + metrics}
	for i, n := range c.Nodes {
		host, _, _ := net.SplitHostPort(n.Clients)
		n.through = []string{"env", "CURFEW_LISTEN__METRICS=" + net.JoinHostPort(host, metrics)}
		replaced = append(replaced, string(rune('a'+i))+".example.com:5672", n.Clients)
	}
	c.StartAll()
	startHAProxy(t, haproxy, strings.NewReplacer(replaced...).Replace(process.Block(t, page, "haproxy", "httpchk")))
	url := "amqp://guest:guest@" + bind
	if !process.Poll(func() bool { return reaches(url) }) {
		t.Fatal("HAProxy lets nobody through")
	}
	client := StartSurvivor(t, "survivor", nil, []string{url})
	AwaitProgress(t, client)
	for range 2 {
		c.AwaitSpare()
		owner := c.Owner("/")
		owner.Kill()
		AwaitProgress(t, client)
		owner.Launch()
		owner.AwaitReady()
	}
	c.AwaitSpare()
	hangs := c.Owner("/")
	hangs.Freeze()
	AwaitProgress(t, client)
	const some = 3 * size // in turn to each node
	if !process.Poll(func() bool {
		for range some {
			if !reaches(url) {
				return false
			}
		}
		return true
	}) {
		t.Error("HAProxy goes on sending clients to a node that does not answer")
	}
	hangs.Continue()
	client.Stop()
	client.Finish()
}

// reaches reports whether a client gets through at once, or nearly.
func reaches(url string) bool {
	conn, err := amqp091.DialConfig(url, amqp091.Config{Dial: amqp091.DefaultDial(process.Patience / 20)})
	if err != nil {
		return false
	}
	_ = conn.Close() // it may be gone
	return true
}

// startHAProxy has HAProxy run with a configuration until the test ends.
func startHAProxy(t *testing.T, program, configuration string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(file, []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd := exec.Command(program, "-db", "-f", file)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // it was killed
		if t.Failed() {
			t.Logf("HAProxy, with\n%s, said:\n%s", configuration, &said)
		}
	})
}
