package cluster

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/peer"
	"github.com/curfewmq/curfew/core/wlog"
)

// A new cluster begins when all of its nodes agree on their numbers. Each says hello to the others, again and again, and once it knows
// all numbers, says of which cluster it wants to be: that of these numbers. When all others have answered that they want to be of the
// same, it is, and writes that down. A node that answers so does not begin another one before it has asked again; then it finds that
// the first has begun one, and joins that, if it is in it. So two clusters never have a node in common, whatever crashes in between,
// and if a node loses its disk meanwhile, the others do not begin with the new one what a third has begun with the old one.

// At most one of them may bring data, which import or restore has made. All have to know which, so it is a part of what they agree on: that
// one has the only vote at first, and the others begin as nodes that join, see [Node.keepMembers]. If they did not know it, the two without
// data could go on without that which has it.

// round is what a node learned by saying hello to all others once.
type round struct {
	joins   string        // what this node said meanwhile that it wants to be of
	answers []*peer.Hello // of those that did not refuse
}

// founding is the nodes that a node knows of before there is a cluster.
type founding struct {
	nodes []peer.Node // this one included, sorted by address
	seed  wlog.NodeID // which of them brings data; 0 = none
}

const (
	helloPause     = 100 * time.Millisecond
	longHelloPause = 2 * time.Second
	reportPause    = 30 * time.Second
)

// first waits until the node is of a cluster, and makes that durable.
func (n *Node) first(ctx context.Context) error {
	w := waiting{node: n}
	known := n.learned(round{})
	pause := helloPause
	for {
		r := n.sayHello(ctx, &w)
		if id, ok := n.conclude(r, known); ok {
			return n.become(id)
		}
		known = n.learned(r)
		n.want(known)
		if w.report(known.nodes); len(r.answers) < Size-1 {
			pause = min(2*pause, longHelloPause)
		} else {
			pause = helloPause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), w.reason())
		}
	}
}

// sayHello says hello to all other nodes at once.
func (n *Node) sayHello(ctx context.Context, w *waiting) round {
	n.mu.Lock()
	r := round{joins: n.joins}
	n.mu.Unlock()
	var mu sync.Mutex // guards r.answers and w
	var all sync.WaitGroup
	for _, address := range n.options.Nodes {
		if address == n.options.Advertise {
			continue
		}
		all.Go(func() {
			h, err := n.links.Greet(ctx, address)
			mu.Lock()
			defer mu.Unlock()
			w.heard(address, h, err)
			if err == nil {
				r.answers = append(r.answers, h)
			}
		})
	}
	all.Wait()
	slices.SortFunc(r.answers, func(a, b *peer.Hello) int { return cmp.Compare(a.Address, b.Address) })
	return r
}

// conclude returns the cluster that the node is of after a round; ok is false if it is of none. known are the nodes that it knew before.
func (n *Node) conclude(r round, known founding) (id identity, ok bool) {
	agreed := r.joins != "" && len(r.answers) == Size-1
	for _, h := range r.answers {
		if h.Cluster != "" {
			id, err := n.adoptable(h)
			if err != nil {
				n.options.Log.Warn("cannot join the cluster", "error", err)
			}
			return id, err == nil
		}
		agreed = agreed && h.Joins == r.joins && numberAt(known.nodes, h.Address) == h.Node
	}
	if !agreed {
		return identity{}, false
	}
	id = n.id
	id.Cluster, id.Name, id.Shards = r.joins, n.options.Name, n.options.Shards
	id.Founders, id.Nodes, id.Seed = numbersOf(known.nodes), known.nodes, known.seed
	return id, true
}

// learned returns the nodes that a round knows of. Two that bring data refuse one another, so that no round of all has more than one.
func (n *Node) learned(r round) founding {
	f := founding{nodes: []peer.Node{n.self()}, seed: n.id.Seed}
	for _, h := range r.answers {
		f.nodes = append(f.nodes, peer.Node{ID: h.Node, Address: h.Address})
		f.seed = max(f.seed, h.Seed)
	}
	sortNodes(f.nodes)
	return f
}

// want has the node say that it wants to be of the cluster of some nodes, if they are all.
func (n *Node) want(known founding) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.joins = ""; checkSet(known.nodes) == nil {
		n.joins = clusterID(numbersOf(known.nodes), known.seed)
	}
}

// become makes durable of which cluster the node is.
func (n *Node) become(id identity) error {
	if err := id.save(n.options.Dir); err != nil {
		return err
	}
	n.mu.Lock()
	n.id, n.joins = id, ""
	n.mu.Unlock()
	n.options.Log.Info("node of a cluster", "cluster", id.Cluster, "number", id.Number, "nodes", addressesOf(id.Nodes))
	if id.Seed != 0 && id.Seed != id.Number {
		n.options.Log.Info("the cluster begins with the data of another node, which this one gets", "node", addressOf(id.Nodes, id.Seed))
	}
	return nil
}

// waiting says now and then for whom the first start waits. It belongs to one goroutine at a time.
type waiting struct {
	node   *Node
	errs   map[string]error  // by address
	warned map[string]string // what was last warned of, by address
	shut   map[string]bool   // addresses of members of a cluster that refuse this node
	last   time.Time
	said   string
}

// heard notes what came of a hello. h is what the node at the address says of itself; nil means that none answered. A node that answers, and
// does not fit, stays so until somebody changes its configuration or this node's: this node warns of it once. A member of a cluster that
// refuses this node has something else to say, which report does.
func (w *waiting) heard(address string, h *peer.Hello, err error) {
	if w.errs == nil {
		w.errs, w.warned, w.shut = map[string]error{}, map[string]string{}, map[string]bool{}
	}
	delete(w.shut, address)
	if err == nil {
		delete(w.errs, address)
		delete(w.warned, address)
		return
	}
	w.errs[address] = err
	switch {
	case h == nil || errors.Is(err, peer.ErrLater): // nobody is there yet
	case h.Cluster != "" && peer.IsRefusal(err):
		w.shut[address] = true
	case w.warned[address] != err.Error():
		w.warned[address] = err.Error()
		w.node.options.Log.Warn("a node does not fit", "node", address, "error", err)
	}
}

// reason returns why the node is of no cluster yet; nil if all have answered.
func (w *waiting) reason() error {
	var all error
	for _, address := range w.node.options.Nodes {
		all = errors.Join(all, w.errs[address])
	}
	return all
}

func (w *waiting) report(known []peer.Node) {
	reason := w.reason()
	if reason == nil {
		return
	}
	now := time.Now()
	if text := reason.Error(); text != w.said || now.Sub(w.last) >= reportPause {
		w.said, w.last = text, now
		if len(w.shut) > 0 {
			w.node.options.Log.Info("waiting to be let into the cluster, which has begun without this node", "error", reason)
			return
		}
		w.node.options.Log.Info("waiting for the other nodes of a new cluster", "known", addressesOf(known), "error", reason)
	}
}

// self returns the node as others know it.
func (n *Node) self() peer.Node { return peer.Node{ID: n.number(), Address: n.options.Advertise} }

func (n *Node) number() wlog.NodeID {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.id.Number
}
