package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/curfewmq/curfew/tests/process"
)

// namespaces are the nodes' machines, as far as the network goes: a network namespace for each, with a virtual cable to a bridge, to which
// the test's own process is connected, too. It is made by iproute2 alone. What is lost here is packets.
type namespaces struct {
	t         *testing.T
	addresses []string // without ports
	broken    bool     // since Heal
}

var _ Network = (*namespaces)(nil)

// newNamespaces makes the network. Its error says why that is impossible.
func newNamespaces(t *testing.T) (n *namespaces, err error) {
	t.Helper()
	n = &namespaces{t: t}
	pid := os.Getpid()
	subnet := fmt.Sprintf("198.%d.%d", 18+pid>>8&1, pid&0xff) // reserved for tests of networks (RFC 2544)
	t.Cleanup(n.remove)
	commands := []string{
		"link add " + bridgeName() + " type bridge",
		"address add " + subnet + ".254/24 dev " + bridgeName(),
		"link set " + bridgeName() + " up",
	}
	for i := range size {
		space, plug := spaceName(i), plugName(i)
		n.addresses = append(n.addresses, fmt.Sprintf("%s.%d", subnet, 1+i))
		commands = append(commands,
			"netns add "+space,
			"link add "+plug+" type veth peer name eth0 netns "+space,
			"link set "+plug+" master "+bridgeName(),
			"link set "+plug+" up",
			fmt.Sprintf("-n %s address add %s/24 dev eth0", space, n.addresses[i]),
			"-n "+space+" link set lo up",
			"-n "+space+" link set eth0 up",
		)
	}
	for _, c := range commands {
		if err := ip(c); err != nil {
			return nil, fmt.Errorf("network namespaces cannot be made here, which needs root and iproute2: %w", err)
		}
	}
	return n, nil
}

// The names have at most 15 characters.
func bridgeName() string        { return fmt.Sprintf("cf%d", os.Getpid()) }
func spaceName(node int) string { return fmt.Sprintf("curfew-%d-%d", os.Getpid(), node) }
func plugName(node int) string  { return fmt.Sprintf("cf%d.%d", os.Getpid(), node) }

func ip(command string) error {
	ctx, cancel := context.WithTimeout(context.Background(), process.Patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ip", strings.Fields(command)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w %s", command, err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (n *namespaces) ip(format string, args ...any) {
	n.t.Helper()
	if err := ip(fmt.Sprintf(format, args...)); err != nil {
		n.t.Fatal(err)
	}
}

// remove removes whatever there is.
func (n *namespaces) remove() {
	for i := range size {
		_ = ip("link delete " + plugName(i)) // it may not be there
		_ = ip("netns delete " + spaceName(i))
	}
	_ = ip("link delete " + bridgeName())
}

// Cut implements [Network]: each of both has no route to the other any more.
func (n *namespaces) Cut(a, b int) {
	n.broken = true
	n.ip("-n %s route replace unreachable %s/32", spaceName(a), n.addresses[b])
	n.ip("-n %s route replace unreachable %s/32", spaceName(b), n.addresses[a])
}

// nowhere is the address of no network card.
const nowhere = "02:00:00:00:00:00"

// Hold implements [Network]: packets go where nobody takes them.
func (n *namespaces) Hold(from, to int) {
	n.broken = true
	n.ip("-n %s neighbour replace %s lladdr %s nud permanent dev eth0", spaceName(from), n.addresses[to], nowhere)
}

// Delay implements [Network]. The kernel's netem is not everywhere: nothing is delayed.
func (*namespaces) Delay(int, int, time.Duration) {}

// unplug pulls a node's cable.
func (n *namespaces) unplug(node int) {
	n.broken = true
	n.ip("link set %s down", plugName(node))
}

// Heal implements [Network].
func (n *namespaces) Heal() {
	if !n.broken {
		return
	}
	n.broken = false
	for i := range size {
		n.ip("link set %s up", plugName(i))
		for j := range size {
			if i != j {
				_ = ip(fmt.Sprintf("-n %s route delete unreachable %s/32", spaceName(i), n.addresses[j])) // it may not be there
				_ = ip(fmt.Sprintf("-n %s neighbour delete %s dev eth0", spaceName(i), n.addresses[j]))
			}
		}
	}
}

// NewInNamespaces is New with nodes in network namespaces of their own, where these can be made; otherwise its error says why not.
func NewInNamespaces(t *testing.T, yaml, dir string) (*Cluster, error) {
	t.Helper()
	spaces, err := newNamespaces(t)
	if err != nil {
		return nil, err
	}
	const port = 5680
	c := &Cluster{t: t, program: process.Binary(t), yaml: yaml + "\nauth: {guest-loopback-only: false}", Network: spaces, unplug: spaces.unplug}
	for i, host := range spaces.addresses {
		n := c.add(fmt.Sprintf("%s:%d", host, port), dir)
		n.section = "insecure: true"
		n.through = []string{"ip", "netns", "exec", spaceName(i)}
		n.arguments = []string{"--amqp", host + ":0", "--management", host + ":0"}
	}
	return c, nil
}
