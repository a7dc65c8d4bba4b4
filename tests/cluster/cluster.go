// Package cluster starts three brokers as the nodes of a cluster, each a process of its own, behind a [Network] that tests can break.
package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/curfewmq/curfew/tests/process"
)

// Cluster is three nodes. One goroutine uses it at a time.
type Cluster struct {
	Nodes   []*Node
	Network Network

	unplug  func(node int) // nil where nodes have no cables of their own
	t       *testing.T
	program string
	yaml    string
}

// Node is a node, whose process may have ended.
type Node struct {
	*process.Process
	Number  int    // 0, 1, 2
	Address string // by which the others reach it
	Data    string // its folder
	Clients string // --amqp whenever it is started; "" = any port, another one each time
	Program string // that is started

	c         *Cluster
	section   string   // of its configuration, cluster
	through   []string // the command that runs its process, if any
	clock     []string // the command that sets its machine's clock, if any
	arguments []string
	running   bool
	stopped   bool // by SIGSTOP
	unplugged bool
}

const size = 3

// New makes a cluster whose nodes are not started. The configuration has no section cluster; dir gets the nodes' folders.
func New(t *testing.T, yaml, dir string) *Cluster {
	t.Helper()
	c := &Cluster{t: t, program: process.Binary(t), yaml: yaml}
	listen := make([]string, size)
	for i := range listen {
		listen[i] = Address(t, i)
	}
	network := newProxies(t, listen)
	c.Network = network
	for i, address := range network.addresses {
		c.add(address, dir).section = fmt.Sprintf("listen: %q", listen[i])
	}
	return c
}

func (c *Cluster) add(address, dir string) *Node {
	i := len(c.Nodes)
	n := &Node{Number: i, Address: address, Data: filepath.Join(dir, fmt.Sprintf("node%d", i)), Program: c.program, c: c}
	c.Nodes = append(c.Nodes, n)
	return n
}

// Start makes a cluster and waits until it serves.
func Start(t *testing.T, yaml string) *Cluster {
	t.Helper()
	c := New(t, yaml, t.TempDir())
	c.StartAll()
	return c
}

// clusters counts those of this process.
var clusters atomic.Uint32

// Address returns where a node, by its number, may listen. Linux has sixteen million loopback addresses, of which nobody else takes that of a
// process and a number while the node is not started.
func Address(t *testing.T, node int) string {
	t.Helper()
	if runtime.GOOS == "linux" {
		pid := os.Getpid()
		return fmt.Sprintf("127.%d.%d.%d:%d", 1+pid>>8&0x7f, pid&0xff, 1+node, 20_000+clusters.Add(1)%10_000)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// SetClock has the node's machine have a clock that is so far ahead, from the next start on. It may be less than 0.
func (n *Node) SetClock(ahead time.Duration) {
	n.c.t.Helper()
	n.Program = process.WrongClock(n.c.t)
	n.clock = []string{"env", "WRONG_CLOCK=" + ahead.String()}
}

// StartAll starts the nodes that do not run, and waits until all are ready.
func (c *Cluster) StartAll() {
	c.t.Helper()
	for _, n := range c.Nodes {
		if !n.running {
			n.Launch()
		}
	}
	for _, n := range c.Nodes {
		n.AwaitReady()
	}
}

// Launch starts the node with what it has on its disk, and does not wait.
func (n *Node) Launch(args ...string) {
	n.c.t.Helper()
	addresses := make([]string, size)
	for i, other := range n.c.Nodes {
		addresses[i] = other.Address
	}
	yaml := fmt.Sprintf("%s\ncluster: {%s}\n", n.c.yaml, n.section)
	all := append([]string{"--data", n.Data, "--cluster", strings.Join(addresses, ","), "--cluster-advertise", n.Address}, n.arguments...)
	if n.Clients != "" {
		all = append(all, "--amqp", n.Clients)
	}
	n.Process = process.LaunchThrough(n.c.t, slices.Concat(n.through, n.clock), n.Program, yaml, append(all, args...)...)
	n.running, n.stopped = true, false
}

// Running reports whether the node's process was started and not ended by the test.
func (n *Node) Running() bool { return n.running }

// Kill kills the node's process, as kill -9 does.
func (n *Node) Kill() {
	n.running, n.stopped = false, false
	n.Process.Kill()
}

// Stop ends the node as an operator does.
func (n *Node) Stop() {
	n.c.t.Helper()
	n.Continue()
	n.running = false
	n.Process.Stop()
}

// Freeze stops the node's process in its tracks.
func (n *Node) Freeze() {
	n.c.t.Helper()
	n.stopped = true
	n.Signal(syscall.SIGSTOP)
}

// Continue undoes Freeze.
func (n *Node) Continue() {
	n.c.t.Helper()
	if n.stopped {
		n.stopped = false
		n.Signal(syscall.SIGCONT)
	}
}

// Pluggable reports whether nodes have cables that can be pulled.
func (c *Cluster) Pluggable() bool { return c.unplug != nil }

// Unplug pulls the node's cable, until [Cluster.Heal]: neither other nodes nor clients reach it.
func (n *Node) Unplug() {
	n.unplugged = true
	n.c.unplug(n.Number)
}

// Heal has the network as it was in the beginning.
func (c *Cluster) Heal() {
	c.Network.Heal()
	for _, n := range c.Nodes {
		n.unplugged = false
	}
}

// answers reports whether a request to the node has an answer soon.
func (n *Node) answers() bool { return n.running && !n.stopped && !n.unplugged }

// Empty removes what the node has on its disk.
func (n *Node) Empty() {
	n.c.t.Helper()
	if err := os.RemoveAll(n.Data); err != nil {
		n.c.t.Fatal(err)
	}
}

// Ctl runs "curfew ctl" at a node.
func (c *Cluster) Ctl(n *Node, args ...string) error {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), process.Patience)
	defer cancel()
	said, err := exec.CommandContext(ctx, c.program, append([]string{"ctl", "--url", "http://" + n.Management}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("curfew ctl %s: %w: %s", strings.Join(args, " "), err, said)
	}
	return nil
}

// FixURLs has each node listen for clients at one address, however often it is started, and returns their URLs.
func (c *Cluster) FixURLs() (urls []string) {
	c.t.Helper()
	for _, n := range c.Nodes {
		n.Clients = Address(c.t, n.Number)
		urls = append(urls, "amqp://guest:guest@"+n.Clients)
	}
	return urls
}

// AwaitSpare waits until any node may fail: the others have everything.
func (c *Cluster) AwaitSpare() {
	c.t.Helper()
	if !process.Poll(func() bool {
		for _, n := range c.Nodes {
			if n.Get("health/checks/node-is-quorum-critical") == nil {
				return false
			}
		}
		return true
	}) {
		c.t.Fatal("the cluster cannot do without one of its nodes")
	}
}

// Owner waits until a running node says who owns a vhost, and returns it.
func (c *Cluster) Owner(vhost string) *Node {
	c.t.Helper()
	var owner *Node
	if !process.Poll(func() bool { owner = c.owner(vhost); return owner != nil }) {
		c.t.Fatalf("nobody owns the vhost %s", vhost)
	}
	return owner
}

// owner returns the owner of a vhost, nil if it is not known. The answer of a node may be out of date.
func (c *Cluster) owner(vhost string) *Node {
	for _, n := range c.Nodes {
		if !n.answers() {
			continue
		}
		var all []struct {
			Name  string
			State map[string]string `json:"cluster_state"` // by the node that serves it
		}
		if json.Unmarshal(n.Get("vhosts"), &all) != nil {
			continue
		}
		for _, v := range all {
			for _, o := range c.Nodes {
				if v.Name == vhost && v.State["curfew@"+o.Address] == "running" && o.answers() {
					return o
				}
			}
		}
	}
	return nil
}

// Get returns the answer of the node's management API, or nothing if there is none.
func (n *Node) Get(path string) []byte {
	r, err := http.NewRequest(http.MethodGet, "http://"+n.Management+"/api/"+path, http.NoBody)
	if err != nil {
		return nil
	}
	r.SetBasicAuth("guest", "guest")
	status, body, err := process.Do(r)
	if err != nil || status != http.StatusOK {
		return nil
	}
	return []byte(body)
}
