package cluster

import (
	"encoding/json"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/tests/process"
	"github.com/curfewmq/curfew/tests/tools"
)

// page is what the tests follow.
const page = "../../core/cluster/README.md"

// Nodes with the page's certificates and settings are a cluster. Its health check knows when the certificates of nodes end.
func TestThePageAboutClusters(t *testing.T) {
	t.Parallel()
	tools.Need(t, "sh", "openssl")
	dir := t.TempDir()
	var hosts, addresses []string
	for i := range size {
		addresses = append(addresses, Address(t, i))
		host, _, _ := net.SplitHostPort(addresses[i])
		hosts = append(hosts, host)
	}
	commands := strings.NewReplacer("for node in a b c", "for node in "+strings.Join(hosts, " "), "$node.example.com", "$node", "DNS:", "IP:").
		Replace(process.Block(t, page, "sh", "openssl x509"))
	cmd := exec.Command("sh", "-euc", commands)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var nodes []*process.Process
	for i := range size {
		yaml := strings.NewReplacer(
			"advertise: a.example.com:5680", "advertise: "+addresses[i], "a.example.com:5680", addresses[0], "b.example.com:5680", addresses[1],
			"c.example.com:5680", addresses[2], "nodes/a.", filepath.Join(dir, "nodes", hosts[i])+".", "nodes/ca.", filepath.Join(dir, "nodes", "ca")+".",
			`":5672"`, `"127.0.0.1:0"`, `":15672"`, `"127.0.0.1:0"`, `":15692"`, `"127.0.0.1:0"`,
		).Replace(process.Block(t, page, "yaml", "advertise"))
		nodes = append(nodes, process.Launch(t, yaml, "--data", filepath.Join(dir, "data"+hosts[i])))
	}
	for _, n := range nodes {
		n.AwaitReady()
		n.Ask(t, http.StatusOK, http.MethodGet, "health/checks/certificate-expiration/1/weeks", nil)
		var answer struct {
			Expired []struct {
				Protocol, Certfile string
				On                 []string `json:"certfile_expires_on"`
			}
		}
		ends := n.Ask(t, http.StatusServiceUnavailable, http.MethodGet, "health/checks/certificate-expiration/2/years", nil)
		if err := json.Unmarshal(ends, &answer); err != nil {
			t.Fatal(err)
		}
		if len(answer.Expired) != 1 || answer.Expired[0].Protocol != "clustering" || len(answer.Expired[0].On) != 1 {
			t.Errorf("certificates of nodes: got %s", ends)
		}
	}
}
