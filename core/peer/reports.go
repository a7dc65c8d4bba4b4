package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/wlog"
)

// reports writes the log. Repeated messages are logged once a minute.
type reports struct {
	log *slog.Logger

	mu   sync.Mutex // guards the rest
	last map[string]said
}

type said struct {
	what string
	at   time.Time
}

const (
	repeatAfter = time.Minute
	maxTopics   = 256 // strangers may come from many addresses
)

// again reports whether the same message was logged about a topic a short time ago.
func (r *reports) again(topic, what string) bool {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if s, ok := r.last[topic]; ok && s.what == what && now.Sub(s.at) < repeatAfter {
		return true
	}
	if len(r.last) >= maxTopics {
		clear(r.last)
	}
	r.last[topic] = said{what, now}
	return false
}

func (r *reports) connected(n Node) {
	r.mu.Lock()
	delete(r.last, n.Address)
	delete(r.last, n.Address+" starting")
	delete(r.last, refusalOf(n.Address, n.ID))
	r.mu.Unlock()
	r.log.Info("node connected", "node", n.Address)
}

func (r *reports) disconnected(n Node, err error) {
	r.log.Warn("node lost", "node", n.Address, "error", err)
}

// startTime is how long a node that was never connected may take to start before it counts as missing: nodes start together.
const startTime = 10 * time.Second

// unreachable reports that a node cannot be dialled. expected means that the node is probably starting.
func (r *reports) unreachable(ctx context.Context, n Node, err error, expected bool) {
	level, topic := slog.LevelWarn, n.Address
	if expected {
		level, topic = slog.LevelInfo, topic+" starting"
	}
	if !r.again(topic, err.Error()) {
		r.log.Log(ctx, level, "node not reachable", "node", n.Address, "error", err)
	}
}

// refusalOf returns the topic for a node's refusal. Two nodes may come from one address.
func refusalOf(address string, id wlog.NodeID) string { return fmt.Sprint(address, " refused ", id) }

func (r *reports) refused(from net.Addr, h *Hello, err error) {
	if h == nil {
		r.stranger(from, err)
		return
	}
	if !r.again(refusalOf(h.Address, h.Node), err.Error()) {
		level := slog.LevelWarn
		if errors.Is(err, ErrLater) {
			level = slog.LevelDebug
		}
		r.log.Log(context.Background(), level, "stream of a node refused", "node", h.Address, "number", h.Node, "from", from.String(), "kind", h.Kind.String(), "error", err)
	}
}

// stranger reports a connection that ended before its Hello. A connection that sent nothing is a health check, and is not reported.
func (r *reports) stranger(from net.Addr, err error) {
	if !closedByPeer(err) && !r.again(hostOf(from), err.Error()) {
		r.log.Warn("connection to the port for nodes refused", "from", from.String(), "error", err)
	}
}

func (r *reports) tooMany(from net.Addr) {
	if !r.again("", "too many") {
		r.log.Warn("too many connections to the port for nodes are in their handshake: closing new ones", "from", from.String(),
			"limit", maxCallers, "limit_per_address", maxCallersOfOne)
	}
}

func (r *reports) cannotAccept(err error) {
	if !r.again("", err.Error()) {
		r.log.Error("cannot take connections of other nodes", "error", err)
	}
}

func (r *reports) broken(n Node, kind Kind, err error) {
	if !r.again(n.Address+" "+kind.String(), err.Error()) {
		r.log.Warn("stream of a node ended", "node", n.Address, "kind", kind.String(), "error", err)
	}
}

func (r *reports) skewed(s Skew) {
	switch s.Level {
	case Barred:
		r.log.Error("the clock differs too much from those of the other nodes, and this node owns nothing: set the machine's clock, and start the node again", "ahead", s.Ahead, "limit", BarSkew)
	case Warned:
		r.log.Warn("the clock differs from those of the other nodes", "ahead", s.Ahead, "limit", WarnSkew)
	default:
		r.log.Info("the clock agrees with those of the other nodes", "ahead", s.Ahead)
	}
}

func hostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}
