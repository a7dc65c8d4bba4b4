package cluster

import (
	"net/http"
	"testing"

	"github.com/curfewmq/curfew/tests/process"
)

// A load balancer sends nobody to a node that is alone, which serves nobody, and sends clients there again once another node is back.
func TestANodeAloneIsNotReady(t *testing.T) {
	t.Parallel()
	c := Start(t, "")
	alone := c.Nodes[2]
	alone.wantProbes(http.StatusOK)
	c.Nodes[0].Kill()
	c.Nodes[1].Kill()
	alone.wantProbes(http.StatusServiceUnavailable)
	c.Nodes[0].Launch()
	alone.wantProbes(http.StatusOK)
	c.Nodes[1].Launch()
	c.Nodes[0].AwaitReady()
	c.Nodes[1].AwaitReady()
}

// wantProbes waits until the node's /readyz has a status. /healthz is always 200: starting the node again would not help.
func (n *Node) wantProbes(ready int) {
	n.c.t.Helper()
	if !process.Poll(func() bool { return n.probe("/readyz") == ready }) {
		n.c.t.Errorf("/readyz is not %d", ready)
	}
	if got := n.probe("/healthz"); got != http.StatusOK {
		n.c.t.Errorf("/healthz: got %d", got)
	}
}

func (n *Node) probe(path string) (status int) {
	n.c.t.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://"+n.Management+path, http.NoBody)
	if err != nil {
		n.c.t.Fatal(err)
	}
	if status, _, err = process.Do(r); err != nil {
		n.c.t.Fatal(err)
	}
	return status
}
