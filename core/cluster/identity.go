package cluster

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/curfewmq/curfew/core/peer"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// identity is a node's knowledge of itself and its cluster, in the file [identityFile]. The number belongs to the logs beside the file: a
// node without its logs would forget its votes, and must count as another node.
type identity struct {
	Format  int         `json:"format"`
	Number  wlog.NodeID `json:"number"`
	Address string      `json:"address"` // cluster.advertise
	Started bool        `json:"started"` // all shards have had a log: a missing log was lost
	// Seed is the founder that has brought the data with which the cluster begins, and has
	// the only vote at first; 0 = there was none, and all founders have votes. Before there
	// is a cluster, Seed is this node or 0; if it is this node, Shards is set.
	Seed   wlog.NodeID `json:"seed,omitempty"`
	Shards uint32      `json:"shards"`

	// The rest is empty until the node belongs to a cluster.
	Cluster  string        `json:"cluster"`
	Name     string        `json:"name"`
	Founders []wlog.NodeID `json:"founders"`         // numbers of the first nodes, in order
	Nodes    []peer.Node   `json:"nodes"`            // sorted by address, this one included
	Writes   uint32        `json:"writes,omitempty"` // format of logs that the cluster writes; 0 = the first
	Former   []wlog.NodeID `json:"former,omitempty"` // numbers of nodes that an operator has replaced at this node
}

const (
	identityFile   = "node.json"
	identityNew    = "node.new"
	identityFormat = 1
	maxIdentity    = 1 << 20
)

// member reports whether the node belongs to a cluster.
func (i *identity) member() bool { return i.Cluster != "" }

// writes returns the format of logs that the cluster writes.
func (i *identity) writes() uint32 { return max(i.Writes, FirstFormat) }

// founder reports whether the node is one of the cluster's first nodes.
func (i *identity) founder() bool { return slices.Contains(i.Founders, i.Number) }

// at returns the number of the node at an address; 0 = there is none.
func (i *identity) at(address string) wlog.NodeID { return numberAt(i.Nodes, address) }

func numberAt(nodes []peer.Node, address string) wlog.NodeID {
	for _, n := range nodes {
		if n.Address == address {
			return n.ID
		}
	}
	return 0
}

// clusterID returns the id of the cluster that the founders begin, with the data of seed; 0 = without data.
func clusterID(founders []wlog.NodeID, seed wlog.NodeID) string {
	h := sha256.New()
	for _, n := range slices.Sorted(slices.Values(founders)) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(n)))
	}
	if seed != 0 {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(seed)))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func numbersOf(nodes []peer.Node) []wlog.NodeID {
	var all []wlog.NodeID
	for _, n := range nodes {
		all = append(all, n.ID)
	}
	return slices.Sorted(slices.Values(all))
}

func addressesOf(nodes []peer.Node) []string {
	var all []string
	for _, n := range nodes {
		all = append(all, n.Address)
	}
	return slices.Sorted(slices.Values(all))
}

func addressOf(nodes []peer.Node, number wlog.NodeID) string {
	for _, n := range nodes {
		if n.ID == number {
			return n.Address
		}
	}
	return ""
}

func sortNodes(nodes []peer.Node) {
	slices.SortFunc(nodes, func(a, b peer.Node) int { return cmp.Compare(a.Address, b.Address) })
}

// newNumber returns a number for a new node: 64 random bits, so that no other node has it.
func newNumber() wlog.NodeID {
	for {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		if n := binary.BigEndian.Uint64(b[:]); n != 0 {
			return wlog.NodeID(n)
		}
	}
}

// loadIdentity reads the file; ok is false if there is none.
func loadIdentity(dir vfs.FS) (i identity, ok bool, err error) {
	files, err := dir.List()
	if err != nil {
		return identity{}, false, err
	}
	at := slices.IndexFunc(files, func(s vfs.Stat) bool { return s.Name == identityFile })
	if at < 0 {
		return identity{}, false, nil
	}
	content, err := readFile(dir, identityFile, files[at].Size)
	if err == nil {
		i, err = parseIdentity(content)
	}
	if err != nil {
		return identity{}, false, fmt.Errorf("%s: %w", identityFile, err)
	}
	return i, true, nil
}

func readFile(dir vfs.FS, name string, size int64) ([]byte, error) {
	if size > maxIdentity {
		return nil, fmt.Errorf("%d bytes: at most %d are allowed", size, maxIdentity)
	}
	f, err := dir.Open(name, vfs.Read)
	if err != nil {
		return nil, err
	}
	content := make([]byte, size)
	if _, err = f.ReadAt(content, 0); errors.Is(err, io.EOF) {
		err = nil
	}
	return content, errors.Join(err, f.Close())
}

func parseIdentity(content []byte) (i identity, err error) {
	if err := json.Unmarshal(content, &i); err != nil {
		return identity{}, fmt.Errorf("%w: %w", wlog.ErrDamaged, err)
	}
	if i.Format > identityFormat {
		return identity{}, fmt.Errorf("%w: format %d, this version knows %d", wlog.ErrNewer, i.Format, identityFormat)
	}
	if err := i.check(); err != nil {
		return identity{}, fmt.Errorf("%w: %w", wlog.ErrDamaged, err)
	}
	return i, nil
}

// check returns an error if an identity contradicts itself.
func (i *identity) check() error {
	switch {
	case i.Number == 0:
		return errors.New("the node has no number")
	case !i.member() && i.Seed != 0 && (i.Seed != i.Number || !i.Started || i.Shards == 0):
		return fmt.Errorf("node %d belongs to no cluster, and has the data of node %d in %d shards", i.Number, i.Seed, i.Shards)
	case !i.member():
		return nil
	case i.Seed != 0 && !slices.Contains(i.Founders, i.Seed):
		return fmt.Errorf("node %d cannot have brought the data of a cluster that the nodes %d began", i.Seed, i.Founders)
	case clusterID(i.Founders, i.Seed) != i.Cluster:
		return fmt.Errorf("cluster %s was not begun by the nodes %d", i.Cluster, i.Founders)
	case i.at(i.Address) != i.Number:
		return fmt.Errorf("node %d is not at %s", i.Number, i.Address)
	case i.Shards == 0:
		return errors.New("the cluster has no shards")
	}
	return nil
}

// save makes the identity durable. After a crash the file has the old or the new one.
func (i *identity) save(dir vfs.FS) error {
	content, err := json.MarshalIndent(i, "", "  ")
	if err != nil {
		return err
	}
	return vfs.Replace(dir, identityFile, identityNew, append(content, '\n'))
}
