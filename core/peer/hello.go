package peer

import (
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Hello introduces a node at the beginning of a stream.
type Hello struct {
	Kind     Kind         `json:"kind"`     // what the stream is for
	Protocol Range        `json:"protocol"` // versions of this package's protocol that the node speaks
	Format   Range        `json:"format"`   // formats of logs that the node reads
	Node     wlog.NodeID  `json:"node"`     // its number
	Address  string       `json:"address"`  // where others reach it, at most 260 bytes
	Name     string       `json:"name"`     // of its cluster, at most 255 bytes
	Version  string       `json:"version"`  // of the broker, at most 64 bytes
	Clock    hook.Instant `json:"clock"`    // of the node, when it said hello

	Cluster  string        `json:"cluster,omitempty"`  // the id of the cluster that the node is of; "" = it is of none yet
	Joins    string        `json:"joins,omitempty"`    // the id of the cluster that it wants to begin
	Shards   uint32        `json:"shards"`             // number of shards that the cluster has, or will have
	Nodes    []Node        `json:"nodes,omitempty"`    // of its cluster; before there is one, as configured, without numbers
	Founders []wlog.NodeID `json:"founders,omitempty"` // the numbers of the cluster's first nodes, in order
	Seed     wlog.NodeID   `json:"seed,omitempty"`     // the node whose data the cluster begins with; 0 = none
}

// Range is a range of versions, both ends included.
type Range struct {
	From uint32 `json:"from"`
	To   uint32 `json:"to"`
}

// String returns the range in the form used in errors.
func (r Range) String() string {
	if r.From == r.To {
		return strconv.FormatUint(uint64(r.From), 10)
	}
	return fmt.Sprintf("%d to %d", r.From, r.To)
}

// meets reports whether two ranges have a version in common.
func (r Range) meets(o Range) bool { return r.From <= o.To && o.From <= r.To }

// protocol is the range of protocols that this package speaks.
var protocol = Range{1, 1}

// greeting is a message of a handshake, which has three. The dialling node sends the first,
// with its Hello. The other node answers with its own Hello, and repeats the nonce. The
// third, without a Hello, accepts or refuses the answer and repeats the answer's nonce. A
// recorded handshake is worthless: its third message repeats an old nonce.
type greeting struct {
	Hello   *Hello `json:"hello,omitempty"`
	Nonce   []byte `json:"nonce,omitempty"`
	Repeats []byte `json:"repeats,omitempty"`
	Refused string `json:"refused,omitempty"` // why the sender closes the stream; "" = it does not
	Later   bool   `json:"later,omitempty"`   // the sender refuses the stream because a node is starting
}

// A greeting is preceded by magic and its size as u32, big-endian.
const (
	magic        = "curfew\r\n"
	greetingHead = len(magic) + 4
	maxGreeting  = 16 << 10
	nonceSize    = 16
	maxNodes     = 64
	maxAddress   = 260
	maxName      = 255
	maxVersion   = 64
	maxReason    = 2 << 10 // bytes of Refused
)

// errNoNode means that the other end is not a node.
var errNoNode = errors.New("it does not speak as a node of a cluster does")

// refuse stores in a greeting why its sender closes the stream.
func (g *greeting) refuse(why error) { g.Refused, g.Later = why.Error(), errors.Is(why, ErrLater) }

func writeGreeting(w io.Writer, g *greeting) error {
	if len(g.Refused) > maxReason {
		g.Refused = g.Refused[:maxReason]
	}
	body, err := json.Marshal(g)
	if err != nil {
		return err
	}
	if len(body) > maxGreeting {
		return fmt.Errorf("a hello of %d bytes: at most %d are allowed", len(body), maxGreeting)
	}
	b := make([]byte, 0, greetingHead+len(body))
	b = binary.BigEndian.AppendUint32(append(b, magic...), uint32(len(body)))
	_, err = w.Write(append(b, body...))
	return err
}

// readGreeting reads a greeting, and not a byte more.
func readGreeting(r io.Reader) (*greeting, error) {
	var head [greetingHead]byte
	n, err := io.ReadAtLeast(r, head[:], 1) // refusalTLS is shorter than head
	if _, secure := r.(*tls.Conn); !secure && beginsTLS(head[:n]) {
		return nil, errSpeaksTLS
	}
	if err == nil {
		_, err = io.ReadFull(r, head[n:])
	}
	if err != nil {
		return nil, err
	}
	if string(head[:len(magic)]) != magic {
		return nil, errNoNode
	}
	size := binary.BigEndian.Uint32(head[len(magic):])
	if size > maxGreeting {
		return nil, fmt.Errorf("a hello of %d bytes: at most %d are allowed", size, maxGreeting)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, err
	}
	return decodeGreeting(body)
}

func decodeGreeting(body []byte) (*greeting, error) {
	var g greeting
	if err := json.Unmarshal(body, &g); err != nil {
		return nil, fmt.Errorf("its hello is not readable: %w", err)
	}
	if len(g.Refused) > maxReason {
		g.Refused = g.Refused[:maxReason]
	}
	if n := max(len(g.Nonce), len(g.Repeats)); n > nonceSize {
		return nil, fmt.Errorf("its hello has a nonce of %d bytes: %d are allowed", n, nonceSize)
	}
	if g.Hello == nil {
		return &g, nil
	}
	return &g, g.Hello.bounded()
}

// bounded returns an error if a field of the Hello is too large.
func (h *Hello) bounded() error {
	for _, s := range []struct {
		what, value string
		most        int
	}{
		{"address", h.Address, maxAddress},
		{"name", h.Name, maxName},
		{"version", h.Version, maxVersion},
		{"cluster", h.Cluster, maxVersion},
		{"joins", h.Joins, maxVersion},
	} {
		if len(s.value) > s.most {
			return fmt.Errorf("%s in its hello has %d bytes: at most %d are allowed", s.what, len(s.value), s.most)
		}
	}
	if n := max(len(h.Nodes), len(h.Founders)); n > maxNodes {
		return fmt.Errorf("its hello has %d nodes: at most %d are allowed", n, maxNodes)
	}
	for _, n := range h.Nodes {
		if len(n.Address) > maxAddress {
			return fmt.Errorf("an address in its hello has %d bytes: at most %d are allowed", len(n.Address), maxAddress)
		}
	}
	return nil
}

// check returns why two nodes cannot communicate. Options.Check decides about everything else.
func (h *Hello) check(self *Hello) error {
	switch {
	case !h.Protocol.meets(self.Protocol):
		return fmt.Errorf("it speaks version %v of the protocol between nodes, and this node %v: upgrade the one with the lower one", h.Protocol, self.Protocol)
	case !h.Format.meets(self.Format):
		return fmt.Errorf("it reads logs of format %v, and this node %v: upgrade the one with the lower one", h.Format, self.Format)
	case h.Node == 0:
		return errors.New("it has no number")
	case h.Node == self.Node:
		return fmt.Errorf("it has this node's number, %d: it is this node itself, whose cluster.advertise is %s, or one with a copy of its data folder", h.Node, self.Address)
	case h.Kind >= kinds:
		return fmt.Errorf("it wants a stream of %v, which this version does not know", h.Kind)
	}
	return nil
}
