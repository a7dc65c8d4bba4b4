package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Cluster lists the nodes that store the broker's data together. Without nodes the broker is alone, and the other settings do not apply.
type Cluster struct {
	Nodes     []string      `koanf:"nodes" kind:"nodes" doc:"Addresses of the three nodes of a cluster, the same list on all of them. A node keeps its number with its data; curfew ctl cluster replace gives an address to another node. Empty = a single broker, no cluster."`
	Advertise string        `koanf:"advertise" kind:"node" doc:"This node's address, one of cluster.nodes."`
	Listen    string        `koanf:"listen" kind:"node-listen" doc:"Address to listen on for the other nodes; empty = the port of cluster.advertise on all interfaces, or exactly cluster.advertise if it is a loopback address."`
	Name      string        `koanf:"name" bytes:"1..255" doc:"The cluster's name, the same on all nodes; nodes with another name are refused."`
	Election  time.Duration `koanf:"election" range:"300ms..10s" doc:"How long a node may be silent before the others choose new owners for its shards. If networks or disks stall for longer, shards move needlessly."`
	DiskStall time.Duration `koanf:"disk-stall" range:"300ms..1m" doc:"How long a write to the disk may take before the node hands its shards to others, which ends connections. Until then the disks of the other nodes confirm. Set it above stalls that pass by themselves, such as those of snapshots."`
	Shards    int           `koanf:"shards" range:"1..255" doc:"Number of logs over which virtual hosts are spread, each owned by one node at a time. Fixed by the first start."`
	TLS       ClusterTLS    `koanf:"tls"`
	Insecure  bool          `koanf:"insecure" doc:"Talk to nodes on other machines without TLS. Anyone who reaches cluster.listen can then read and change everything."`
}

// ClusterTLS configures how nodes prove to one another that they belong to the cluster.
type ClusterTLS struct {
	Cert string `koanf:"cert" kind:"path" doc:"PEM file with this node's certificate and its chain, for use as client and as server; it must name the host of cluster.advertise."`
	Key  string `koanf:"key" kind:"path" doc:"PEM file with the certificate's private key."`
	CA   string `koanf:"ca" kind:"path" doc:"PEM file with the authorities that sign the certificates of nodes. Let them sign nothing else: any holder of such a certificate counts as a node."`
}

// On reports whether the broker is a node of a cluster.
func (c *Cluster) On() bool { return len(c.Nodes) > 0 }

const (
	clusterSize    = 3
	nodesAccepted  = "the addresses of three nodes such as a:5680,b:5680,c:5680, or none"
	maxClusterBody = 32 * miB // an entry must fit into the messages between nodes, with room for further entries
)

// checkNodes checks the addresses of a cluster's nodes, and converts their hosts to lower case.
func checkNodes(words []string) error {
	for i, word := range words {
		if err := checkNode(word); err != nil {
			return fmt.Errorf("has %q, which %w", word, err)
		}
		words[i] = nodeAddress(word)
		if slices.Contains(words[:i], words[i]) {
			return fmt.Errorf("names %s twice", words[i])
		}
	}
	if n := len(words); n != 0 && n != clusterSize {
		return fmt.Errorf("has %d %s", n, plural(n, "node"))
	}
	return nil
}

func plural(n int, what string) string {
	if n == 1 {
		return what
	}
	return what + "s"
}

// checkNodeName checks the name of a broker without a cluster; "" means a name derived from the machine's.
func checkNodeName(s string) error {
	name, host, at := strings.Cut(s, "@")
	odd := func(r rune) bool { return r == '@' || unicode.IsSpace(r) || !unicode.IsPrint(r) }
	switch {
	case s == "":
		return nil
	case name == "" || at && host == "":
		return errors.New("lacks a part")
	case len(s) > 255:
		return errors.New("is too long")
	case !utf8.ValidString(s) || strings.ContainsFunc(name+host, odd):
		return errors.New("has a character that no name has")
	}
	return nil
}

// checkNode checks the address at which other nodes reach a node; "" means none.
func checkNode(s string) error {
	if s == "" {
		return nil
	}
	if err := checkAddress(s); err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(s)
	ip, err := netip.ParseAddr(host)
	switch n, _ := strconv.Atoi(port); {
	case host == "":
		return errors.New("has no host")
	case n == 0:
		return errors.New("has the port 0, to which nothing can connect")
	case err == nil && ip.IsUnspecified():
		return errors.New("is every address of a machine, not one that other nodes reach")
	}
	return nil
}

// checkNodeListen checks the address on which a node listens for other nodes. Its port must be fixed.
func checkNodeListen(s string) error {
	if err := checkAddress(s); err != nil || s == "" {
		return err
	}
	if _, port, _ := net.SplitHostPort(s); port == "0" {
		return errors.New("has the port 0, to which nothing can connect")
	}
	return nil
}

// nodeAddress returns the canonical spelling of a valid address.
func nodeAddress(s string) string {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return s
	}
	n, _ := strconv.Atoi(port)
	return net.JoinHostPort(strings.ToLower(host), strconv.Itoa(n))
}

// onThisMachine reports whether an address can be reached only from this machine. It does not look up names.
func onThisMachine(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// checkCluster checks the cluster's settings together, and fills in values that they leave open.
func (l *loader) checkCluster() {
	c := &l.cfg.Cluster
	if l.refusedBelow("cluster.nodes") {
		return
	}
	if !c.On() {
		l.refuseClusterless()
		return
	}
	c.Advertise = nodeAddress(c.Advertise)
	switch {
	case c.Advertise == "":
		l.need("cluster.advertise", "cluster.nodes", "is missing: it says which one of cluster.nodes this node is; accepted: "+strings.Join(c.Nodes, ", "))
	case !slices.Contains(c.Nodes, c.Advertise):
		l.refuseSet("cluster.advertise", "is not one of cluster.nodes", strings.Join(c.Nodes, ", "))
	case c.Listen == "":
		c.Listen = listenFor(c.Advertise)
	}
	l.checkClusterTLS()
	l.refuseInCluster()
}

// listenFor returns the address on which a node listens if its configuration does not say.
func listenFor(advertise string) string {
	if onThisMachine(advertise) {
		return advertise
	}
	_, port, _ := net.SplitHostPort(advertise)
	return ":" + port
}

// refuseClusterless refuses cluster settings if there are no nodes: otherwise a broker
// alone would hold data that was meant for three nodes.
func (l *loader) refuseClusterless() {
	c := &l.cfg.Cluster
	for _, s := range []struct {
		key string
		set bool
	}{
		{"cluster.advertise", c.Advertise != ""},
		{"cluster.listen", c.Listen != ""},
		{"cluster.tls.cert", c.TLS.Cert != ""},
		{"cluster.tls.key", c.TLS.Key != ""},
		{"cluster.tls.ca", c.TLS.CA != ""},
		{"cluster.insecure", c.Insecure},
	} {
		if s.set {
			l.need(s.key, s.key, "is set, but cluster.nodes names no nodes: set it, too, or leave this out")
		}
	}
}

func (l *loader) checkClusterTLS() {
	c := &l.cfg.Cluster
	files := []struct{ key, value string }{{"cluster.tls.cert", c.TLS.Cert}, {"cluster.tls.key", c.TLS.Key}, {"cluster.tls.ca", c.TLS.CA}}
	set := slices.IndexFunc(files, func(f struct{ key, value string }) bool { return f.value != "" })
	if set < 0 {
		if beyond := c.beyond(); beyond != "" && !c.Insecure {
			l.need("cluster.tls.cert", "cluster.nodes", "is missing: "+beyond+" is beyond this machine; "+
				"set cluster.tls.cert, .key and .ca, or cluster.insecure: true in a network that only the nodes can reach")
		}
		return
	}
	for _, f := range files {
		if f.value == "" {
			l.need(f.key, files[set].key, "is missing: "+files[set].key+" is set, and nodes show one another certificates")
		}
	}
	if c.Insecure {
		l.need("cluster.insecure", "cluster.insecure", "is true, but "+files[set].key+" is set; accepted: one of them")
	}
}

// beyond returns an address that involves other machines; "" = there is none.
func (c *Cluster) beyond() string {
	for _, address := range append(slices.Clone(c.Nodes), c.Listen) {
		if address != "" && !onThisMachine(address) {
			return address
		}
	}
	return ""
}

// refuseInCluster refuses settings that are not available in a cluster.
func (l *loader) refuseInCluster() {
	c := l.cfg
	if c.Durability == Flush {
		l.refuseSet("durability", "is not offered in a cluster, whose confirms mean that the disks of two nodes have the message", string(Fsync))
	}
	if c.Limits.MessageSize > maxClusterBody {
		l.refuseSet("limits.message-size", "is too large for a cluster, where messages cross the network between nodes", "1 to 32MiB")
	}
	if c.Node.Name != "" {
		l.refuseSet("node.name", "is for a broker without a cluster, whose nodes are named after their addresses", "nothing")
	}
	if c.Data.Shards != 1 {
		l.refuseSet("data.shards", "is for a broker without a cluster, which has cluster.shards instead", "1")
	}
}

// refuseSet reports a problem with the value of a key in combination with other settings.
func (l *loader) refuseSet(key, problem, accepted string) {
	if l.refusedBelow(key) {
		return // has been reported
	}
	s := l.cfg.setting(key)
	l.refuse(&Error{Key: key, Value: s.value.String(), HasValue: true, Problem: problem, Accepted: accepted, Source: s.source})
}
