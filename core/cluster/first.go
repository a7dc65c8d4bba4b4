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

// A new cluster begins when all of its nodes agree on their numbers. Each node greets the others, again and again. Once it knows all
// numbers, it states the cluster that it wants to join: the one whose id follows from these numbers. When all others have answered that
// they want to join the same cluster, the node belongs to it, and writes that to its disk. A node that has answered so greets the others
// once more before it begins another cluster; if one of them has begun the first one meanwhile, it joins that. So two clusters never have a
// node in common, even after crashes, and a node that loses its disk during the first start does not split the others. An example:
//
//	A, B and C know numbers 1, 2 and 3, and want cluster X. A has received both answers, and begins X.
//	C loses its disk, and comes back as 4. B, which has not begun X, greets A and C.
//	A answers that it is in X: B joins X with 1, 2, 3. C is refused as a stranger, until an operator admits it.
//	B could only begin a cluster Y of 1, 2 and 4 if A answered that it wants Y, too; but A is in X.
//
// At most one node may bring data, made by import or restore. All nodes must know which one, so the cluster's id covers its number: that
// node has the only vote at first, and the others begin as nodes that join, see [Node.keepMembers]. If they did not know it, the two nodes
// without data could form a majority without the data.

// round is the result of greeting all other nodes once.
type round struct {
	joins   string        // the cluster that this node stated meanwhile
	answers []*peer.Hello // of the nodes that did not refuse
}

// founding are the nodes that this node knows before there is a cluster.
type founding struct {
	nodes []peer.Node // this one included, sorted by address
	seed  wlog.NodeID // the node that brings data; 0 = none
}

const (
	helloPause     = 100 * time.Millisecond
	longHelloPause = 2 * time.Second
	reportPause    = 30 * time.Second
)

// first waits until the node belongs to a cluster, and makes that durable.
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

// sayHello greets all other nodes at once.
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

// conclude returns the cluster to which the node belongs after a round; ok is false if there is none. known are the nodes that it knew
// before.
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

// learned returns the nodes that are known after a round. Two nodes that bring data refuse one another, so a round of all nodes has at most
// one.
func (n *Node) learned(r round) founding {
	f := founding{nodes: []peer.Node{n.self()}, seed: n.id.Seed}
	for _, h := range r.answers {
		f.nodes = append(f.nodes, peer.Node{ID: h.Node, Address: h.Address})
		f.seed = max(f.seed, h.Seed)
	}
	sortNodes(f.nodes)
	return f
}

// want makes the node state the cluster of the known nodes, if all of them are known.
func (n *Node) want(known founding) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.joins = ""; checkSet(known.nodes) == nil {
		n.joins = clusterID(numbersOf(known.nodes), known.seed)
	}
}

// become makes the node's cluster durable.
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

// waiting logs now and then which nodes the first start waits for. It belongs to one goroutine at a time.
type waiting struct {
	node   *Node
	errs   map[string]error  // by address
	warned map[string]string // text of the last warning, by address
	shut   map[string]bool   // addresses of members of a cluster that refuse this node
	last   time.Time
	said   string
}

// heard notes the result of greeting a node. h is the node's answer; nil = there was none. A node that answers and does not match stays so
// until an operator changes a configuration, so this node warns of it once. report has another text for members of a cluster that refuse
// this node.
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
	case h == nil || errors.Is(err, peer.ErrLater): // no node answers there yet
	case h.Cluster != "" && peer.IsRefusal(err):
		w.shut[address] = true
	case w.warned[address] != err.Error():
		w.warned[address] = err.Error()
		w.node.options.Log.Warn("a node does not match this one", "node", address, "error", err)
	}
}

// reason returns the reason for which the node does not belong to a cluster yet; nil = all others have answered.
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

// self returns the node as other nodes know it.
func (n *Node) self() peer.Node { return peer.Node{ID: n.number(), Address: n.options.Advertise} }

func (n *Node) number() wlog.NodeID {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.id.Number
}
