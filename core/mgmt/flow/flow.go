// Package flow finds the ways of dead letters: from which queue, for which reason, through which exchange, to which queues. It follows the
// present exchanges and bindings, and counts with the queues' counters and the remembered events.
package flow

import (
	"slices"
	"strings"

	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// Node is a queue that dead letters leave or enter.
type Node struct {
	Queue       string
	Exists      bool // false if the queue was deleted meanwhile; it has no counts then
	Ready       int
	Unacked     int
	Held        int
	Leaving     int    // messages that wait to leave, or for the confirms of all their targets
	DeadLetters uint64 // dead letters that entered since the broker was started
	Strategy    string
	Next        hook.Instant // deadline; 0 = none
}

// Messages returns how many messages the queue has.
func (n *Node) Messages() int { return n.Ready + n.Unacked + n.Held + n.Leaving }

// Problem is the reason for which dead letters reach no queue.
type Problem string

// The problems.
const (
	NoProblem  Problem = ""
	NoExchange Problem = "no_exchange" // the exchange does not exist
	Unroutable Problem = "unroutable"  // the exchange leads to no queue
	Dropped    Problem = "dropped"     // the queue, or its strategy, does not dead-letter
	Unknown    Problem = "unknown"     // the target is unknown: neither the queue's settings nor events name it
)

// Edge is a way of messages out of a queue.
type Edge struct {
	From   string
	Reason hook.Reason  // ReasonNone: no message has left yet
	Target *hook.Target // nil = the messages reach no queue
	// To is the queue that the messages reach; "" = none, or Others.
	To      string
	Problem Problem
	Certain bool // each of the messages reaches To, according to settings and bindings
	// Count is how many messages left for the reason since the queue was declared or the broker started. Without Certain, only some of them
	// took this way.
	Count uint64
	// Rate is how many messages per second left for the reason; with several targets or
	// keys it is divided by their shares of the remembered events.
	Rate float64
	// Known means that the rate is a present one: see [Options].
	Known bool
	// Recent means that the queue's strategy chose the target for each message, or that messages kept their key. Count then counts the
	// remembered events.
	Recent bool
	Key    string   // the messages' own key, with Recent and a target without a key
	Via    []string // exchanges on the way, after the target's
	Holder string   // exchange on the way that can hold messages; "" = none
	Others int      // number of further queues, which get no edges because there are too many
	// Outcomes counts the remembered events with this reason and target, by the outcome of the message.
	Outcomes [telemetry.Outcomes]int
}

// Graph shows the ways of a vhost's dead letters.
type Graph struct {
	Nodes    []Node // by name
	Edges    []Edge // by the name of From
	Cycles   []Cycle
	Complete bool // false if time or limits did not allow all of it
}

// Options are the inputs of a graph.
type Options struct {
	VHost  *vhost.VHost
	Recent *Recent
	// Rates returns the rates of a queue's counts, whose number is always the same, and whether they are present ones.
	Rates func(*queue.Mailbox, []int64) (rates []float64, known bool)
	// Late reports that no time is left.
	Late func() bool
}

// Limits of a graph.
const (
	maxTargets = 50     // edges of one target
	maxEdges   = 20_000 // of a vhost
	maxReached = 10_000 // targets whose queues are remembered
)

// Of returns the graph of a vhost. It asks each queue for its counters, and follows each target once.
func Of(o Options) Graph {
	b := builder{Options: o, nodes: map[string]*Node{}, reached: map[hook.Target]vhost.Reach{}, graph: Graph{Complete: true}}
	all := o.VHost.Mailboxes()
	slices.SortFunc(all, func(x, y *queue.Mailbox) int { return strings.Compare(x.Config().Name, y.Config().Name) })
	for _, m := range all {
		if len(b.graph.Edges) >= maxEdges || o.Late() { // checked each time, because following one target through many bindings may take long
			b.graph.Complete = false
			break
		}
		b.add(m)
	}
	b.addNodes()
	b.graph.Cycles = cycles(b.graph.Edges, b.nodes)
	return b.graph
}

// builder makes a graph.
type builder struct {
	Options
	graph   Graph
	nodes   map[string]*Node
	reached map[hook.Target]vhost.Reach // queues of the targets followed so far
	known   bool                        // the rates of the queue at hand are present ones
}

// snapshot is the state of a queue.
type snapshot struct {
	queue.Stats
	target *hook.Target
}

// add adds the edges from a queue.
func (b *builder) add(m *queue.Mailbox) {
	var s snapshot
	if m.Look(func(q *queue.Queue) { s.Stats, s.target = q.Stats(), q.DeadLetters() }) != nil {
		return // it was deleted
	}
	c := m.Config()
	from, before := c.Name, len(b.graph.Edges)
	seen := b.Recent.of(c.VHost, from)
	if s.target == nil && len(seen) == 0 && !s.lost() {
		return
	}
	rates := b.rates(m, &s)
	for r := hook.ReasonNone + 1; r < hook.Reasons; r++ {
		if telemetry.Moved(r) {
			continue
		}
		b.addReason(from, r, &s, rates, seen)
	}
	if s.target != nil && !slices.ContainsFunc(b.graph.Edges[before:], func(e Edge) bool { return e.Target != nil }) {
		b.follow(Edge{From: from, Target: s.target, Certain: true})
	}
	b.nodes[from] = nodeOf(m, &s.Stats)
}

// lost reports whether messages left for any reason.
func (s *snapshot) lost() bool {
	for r := range hook.Reasons {
		if !telemetry.Moved(r) && s.Dropped[r]+s.DeadLettered[r] > 0 {
			return true
		}
	}
	return false
}

// rates returns the rates of dead letters by reason, followed by the rates of dropped messages by reason.
func (b *builder) rates(m *queue.Mailbox, s *snapshot) (rates []float64) {
	counts := make([]int64, 2*hook.Reasons)
	for r := range hook.Reasons {
		counts[r], counts[hook.Reasons+r] = int64(s.DeadLettered[r]), int64(s.Dropped[r])
	}
	rates, b.known = b.Rates(m, counts)
	return rates
}

// addReason adds the edges of messages that left for a reason.
func (b *builder) addReason(from string, r hook.Reason, s *snapshot, rates []float64, seen []*observation) {
	routed, chosen, total := s.DeadLettered[r], false, 0
	for _, o := range seen {
		if o.reason == r {
			total += o.count
		}
	}
	for _, o := range seen {
		if o.reason == r && (s.target == nil || o.target != *s.target) {
			chosen = true
			b.addRecent(from, o, rates[r]*float64(o.count)/float64(total))
		}
	}
	switch {
	case routed == 0:
	case s.target != nil:
		e := Edge{From: from, Reason: r, Target: s.target, Certain: !chosen, Count: routed, Rate: rates[r]}
		if o := find(seen, r, s.target); o != nil {
			e.Outcomes = o.outcomes
			e.Rate *= float64(o.count) / float64(total)
		}
		b.follow(e)
	case !chosen:
		b.push(Edge{From: from, Reason: r, Problem: Unknown, Count: routed, Rate: rates[r]})
	}
	if n := s.Dropped[r]; n > 0 {
		b.push(Edge{From: from, Reason: r, Problem: Dropped, Certain: true, Count: n, Rate: rates[hook.Reasons+r]})
	}
}

// addRecent adds the edges of messages whose target was chosen by the queue's strategy.
func (b *builder) addRecent(from string, o *observation, rate float64) {
	b.follow(Edge{
		From: from, Reason: o.reason, Target: &o.target, Certain: true, Count: uint64(o.count), Rate: rate, Recent: true, Outcomes: o.outcomes,
	})
}

// follow adds an edge for each queue to which the target leads.
func (b *builder) follow(e Edge) {
	r := b.reach(e.Target)
	switch {
	case r.NoExchange:
		e.Problem = NoExchange
		b.push(e)
		return
	case r.ByName:
		b.followKeys(e)
	case len(r.Queues) == 0:
		e.Problem = Unroutable
		b.push(e)
		return
	}
	for _, to := range r.Queues {
		one := e
		one.To, one.Certain, one.Via, one.Holder = to.Queue, e.Certain && to.Certain, to.Via, to.Holder
		b.push(one)
	}
	if r.Others > 0 {
		e.Certain, e.Others = false, r.Others
		b.push(e)
	}
}

// followKeys adds edges for messages that go to the queue named by their own key. The keys are those in remembered events or, without any,
// the name of the queue itself, for messages that were published to it by its name.
func (b *builder) followKeys(e Edge) {
	e.Certain = false
	var keys []string
	counts, total := map[string]int{}, 0
	if o := find(b.Recent.of(b.VHost.Name(), e.From), e.Reason, e.Target); o != nil {
		counts = o.keys
		for key, n := range counts {
			keys, total = append(keys, key), total+n
		}
	}
	if _, ok := counts[e.From]; !ok && len(keys) == 0 {
		keys = append(keys, e.From)
	}
	slices.Sort(keys)
	for _, key := range keys {
		one := e
		one.Key, one.To = key, key
		if n, ok := counts[key]; ok {
			one.Count, one.Rate, one.Recent = uint64(n), e.Rate*float64(n)/float64(total), true
		}
		if b.VHost.Mailbox(key) == nil {
			one.To, one.Problem = "", Unroutable
		}
		b.push(one)
	}
}

// reach follows a target, once.
func (b *builder) reach(t *hook.Target) vhost.Reach {
	key, anyKey := *t, hook.Target{Exchange: t.Exchange}
	key.AtLeastOnce = false
	if r, ok := b.reached[key]; ok {
		return r
	}
	if r, ok := b.reached[anyKey]; ok && !r.Keyed { // each queue may have a key of its own
		return r
	}
	r := b.VHost.Reach(t, maxTargets)
	if !r.Keyed {
		key = anyKey
	}
	if len(b.reached) < maxReached {
		b.reached[key] = r
	}
	return r
}

// push adds an edge.
func (b *builder) push(e Edge) {
	e.Known = b.known
	b.graph.Edges = append(b.graph.Edges, e)
	if _, known := b.nodes[e.To]; e.To != "" && !known {
		b.nodes[e.To] = nil
	}
}

// addNodes adds the queues that edges name.
func (b *builder) addNodes() {
	b.graph.Nodes = make([]Node, 0, len(b.nodes))
	for name, n := range b.nodes {
		if n == nil {
			n = b.lookAt(name)
			b.nodes[name] = n
		}
		b.graph.Nodes = append(b.graph.Nodes, *n)
	}
	slices.SortFunc(b.graph.Nodes, func(x, y Node) int { return strings.Compare(x.Queue, y.Queue) })
}

func (b *builder) lookAt(name string) *Node {
	m := b.VHost.Mailbox(name)
	if m == nil {
		return &Node{Queue: name}
	}
	var s queue.Stats
	if m.Look(func(q *queue.Queue) { s = q.Stats() }) != nil {
		return &Node{Queue: name}
	}
	return nodeOf(m, &s)
}

func nodeOf(m *queue.Mailbox, s *queue.Stats) *Node {
	c := m.Config()
	return &Node{
		Queue: c.Name, Exists: true, Ready: s.Ready, Unacked: s.Unacked, Held: s.Held, Leaving: s.Discarded,
		DeadLetters: s.DeadLetters, Strategy: c.Strategy, Next: s.NextDeadline,
	}
}
