package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/curfewmq/curfew/sdk/hook"
)

func cluster(t *testing.T, flags ...string) (*Config, error) {
	t.Helper()
	in := Input{Plugins: []hook.Factory{}}
	for _, f := range flags {
		key, v, _ := strings.Cut(f, "=")
		in.Flags = append(in.Flags, Flag{Name: "--" + key, Key: key, Value: v})
	}
	return Load(in)
}

// The address on which a node listens follows from its own address, and hosts have one spelling.
func TestClusterListen(t *testing.T) {
	for _, tt := range []struct{ nodes, advertise, listen, want string }{
		{nodes: "a:5680,B:5680,c:5680", advertise: "b:5680", want: ":5680"},
		{nodes: "a:5680,b:5680,c:5680", advertise: "B:05680", listen: "10.0.0.1:5680", want: "10.0.0.1:5680"},
		{nodes: "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", advertise: "127.0.0.1:2", want: "127.0.0.1:2"},
		{nodes: "localhost:1,localhost:2,[::1]:3", advertise: "[::1]:3", want: "[::1]:3"},
	} {
		flags := []string{"cluster.nodes=" + tt.nodes, "cluster.advertise=" + tt.advertise, "cluster.insecure=true"}
		if tt.listen != "" {
			flags = append(flags, "cluster.listen="+tt.listen)
		}
		c, err := cluster(t, flags...)
		if err != nil {
			t.Errorf("%v: %v", flags, err)
			continue
		}
		if !c.Cluster.On() || c.Cluster.Listen != tt.want || !slices.Contains(c.Cluster.Nodes, c.Cluster.Advertise) {
			t.Errorf("%v: got %+v, want it to listen on %s", flags, c.Cluster, tt.want)
		}
	}
}

func TestOneBrokerHasNoCluster(t *testing.T) {
	c, err := cluster(t)
	if err != nil {
		t.Fatal(err)
	}
	if c.Cluster.On() || c.Cluster.Listen != "" {
		t.Errorf("got %+v", c.Cluster)
	}
}

func TestClusterErrors(t *testing.T) {
	const nodes = "cluster.nodes=127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"
	const accepted = "; accepted: the addresses of three nodes such as a:5680,b:5680,c:5680, or none (flag --cluster.nodes)"
	for _, tt := range []struct {
		name  string
		flags []string
		want  []string
	}{
		{"two nodes", []string{"cluster.nodes=a:1,b:1"}, []string{`cluster.nodes: "a:1,b:1" has 2 nodes` + accepted}},
		{"one node", []string{"cluster.nodes=a:1"}, []string{`cluster.nodes: "a:1" has 1 node` + accepted}},
		{"twice", []string{"cluster.nodes=a:1,b:1,A:01"}, []string{`cluster.nodes: "a:1,b:1,A:01" names a:1 twice` + accepted}},
		{"no host", []string{"cluster.nodes=a:1,b:1,:1"}, []string{`cluster.nodes: "a:1,b:1,:1" has ":1", which has no host` + accepted}},
		{"no port", []string{"cluster.nodes=a,b:1,c:1"}, []string{`cluster.nodes: "a,b:1,c:1" has "a", which is not an address such as :5672 or 127.0.0.1:5672` + accepted}},
		{"port 0", []string{"cluster.nodes=a:1,b:0,c:1"}, []string{`cluster.nodes: "a:1,b:0,c:1" has "b:0", which has the port 0, to which nothing can connect` + accepted}},
		{"every address", []string{"cluster.nodes=a:1,b:1,0.0.0.0:1"}, []string{`cluster.nodes: "a:1,b:1,0.0.0.0:1" has "0.0.0.0:1", which is every address of a machine, not one that other nodes reach` + accepted}},
		{"who am I", []string{nodes}, []string{`cluster.advertise: is missing: it says which one of cluster.nodes this node is; accepted: 127.0.0.1:1, 127.0.0.1:2, 127.0.0.1:3 (flag --cluster.nodes)`}},
		{"somebody else", []string{nodes, "cluster.advertise=127.0.0.1:4"}, []string{`cluster.advertise: "127.0.0.1:4" is not one of cluster.nodes; accepted: 127.0.0.1:1, 127.0.0.1:2, 127.0.0.1:3 (flag --cluster.advertise)`}},
		{"half a cluster", []string{"cluster.advertise=a:1", "cluster.insecure=true"}, []string{
			`cluster.advertise: is set, but cluster.nodes names no nodes: set it, too, or leave this out (flag --cluster.advertise)`,
			`cluster.insecure: is set, but cluster.nodes names no nodes: set it, too, or leave this out (flag --cluster.insecure)`,
		}},
		{"plain TCP", []string{"cluster.nodes=127.0.0.1:1,b:1,c:1", "cluster.advertise=127.0.0.1:1"}, []string{
			`cluster.tls.cert: is missing: b:1 is beyond this machine; set cluster.tls.cert, .key and .ca, or cluster.insecure: true in a network that only the nodes can reach (flag --cluster.nodes)`,
		}},
		{"plain TCP for everybody", []string{nodes, "cluster.advertise=127.0.0.1:1", "cluster.listen=:1"}, []string{
			`cluster.tls.cert: is missing: :1 is beyond this machine; set cluster.tls.cert, .key and .ca, or cluster.insecure: true in a network that only the nodes can reach (flag --cluster.nodes)`,
		}},
		{"half of TLS", []string{nodes, "cluster.advertise=127.0.0.1:1", "cluster.tls.key=k", "cluster.insecure=true"}, []string{
			`cluster.tls.cert: is missing: cluster.tls.key is set, and nodes show one another certificates (flag --cluster.tls.key)`,
			`cluster.tls.ca: is missing: cluster.tls.key is set, and nodes show one another certificates (flag --cluster.tls.key)`,
			`cluster.insecure: is true, but cluster.tls.key is set; accepted: one of them (flag --cluster.insecure)`,
		}},
		{"what a cluster does not have", []string{nodes, "cluster.advertise=127.0.0.1:1", "durability=flush", "limits.message-size=33MiB", "data.shards=2", "node.name=rabbit"}, []string{
			`durability: "flush" is not offered in a cluster, whose confirms mean that the disks of two nodes have the message; accepted: fsync (flag --durability)`,
			`limits.message-size: "33MiB" is too large for a cluster, where messages cross the network between nodes; accepted: 1 to 32MiB (flag --limits.message-size)`,
			`node.name: "rabbit" is for a broker without a cluster, whose nodes are named after their addresses; accepted: nothing (flag --node.name)`,
			`data.shards: "2" is for a broker without a cluster, which has cluster.shards instead; accepted: 1 (flag --data.shards)`,
		}},
		{"ranges", []string{nodes, "cluster.advertise=127.0.0.1:1", "cluster.election=299ms", "cluster.shards=256", "cluster.listen=:0", "cluster.name="}, []string{
			`cluster.election: "299ms" is out of range; accepted: 300ms to 10s (flag --cluster.election)`,
			`cluster.shards: "256" is out of range; accepted: 1 to 255 (flag --cluster.shards)`,
			`cluster.listen: ":0" has the port 0, to which nothing can connect; accepted: host:port, or :port for all interfaces (flag --cluster.listen)`,
			`cluster.name: "" is empty; accepted: 1 to 255 bytes (flag --cluster.name)`,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := cluster(t, tt.flags...)
			if err == nil {
				t.Fatal("accepted")
			}
			got := strings.Split(err.Error(), "\n")
			slices.Sort(got)
			slices.Sort(tt.want)
			if !slices.Equal(got, tt.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}
