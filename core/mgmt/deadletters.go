package mgmt

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/mgmt/flow"
	"github.com/curfewmq/curfew/core/mgmt/jsonobj"
	"github.com/curfewmq/curfew/core/mgmt/rows"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/telemetry"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/sdk/hook"
)

// maxFlowEdges is how many edges an answer has at most.
const maxFlowEdges = 100_000

// flowHandlers show where dead letters go.
type flowHandlers struct {
	flows  flows
	clock  clock.Clock
	meters *meters
	ring   *telemetry.Ring
}

// show shows where dead letters go, see the package's documentation.
func (a *flowHandlers) show(c *request) error {
	limit, _ := flowLimit(c) // which checkFlow has checked
	if err := c.enterParameter(); err != nil {
		return err
	}
	all, complete, at := a.flows.of(a, c.visible())
	chosen, leftComponents, leftEdges := flow.Busiest(all, c.query.raw.Get("name"), limit)
	nodes, edges, cycles := []object{}, []object{}, []object{}
	for _, part := range chosen {
		for _, n := range part.Nodes {
			nodes = append(nodes, describeNode(part.VHost, n))
		}
		for _, e := range part.Edges {
			edges = append(edges, describeEdge(part.VHost, e))
		}
		for _, cycle := range part.Cycles {
			cycles = append(cycles, describeCycle(part.VHost, cycle))
		}
	}
	return c.reply(object{
		{"at", jsonobj.Instant(at)},
		{"complete", complete},
		{"nodes", nodes},
		{"edges", edges},
		{"cycles", cycles},
		{"left_out", object{{"components", leftComponents}, {"edges", leftEdges}}},
	})
}

func checkFlow(c *request) error {
	_, err := flowLimit(c)
	return err
}

// flowLimit returns how many edges an answer may have, and refuses parameters that dead letters have not.
func flowLimit(c *request) (int, error) {
	if err := onlyParameters(c.query.raw, []string{"vhost", "name", "limit", "columns"}); err != nil {
		return 0, err
	}
	return queryNumber(c.query.raw, "limit", 1, maxFlowEdges, maxFlowEdges)
}

// flowKey is the key of the rates of a queue's dead letters.
type flowKey struct{ mailbox *queue.Mailbox }

// flows are the latest graphs. Many pages may show the same ones.
type flows struct {
	mu  sync.Mutex // guards all; held while a graph is made, so that other requests wait for it
	all map[*vhost.VHost]*flowOfVHost
}

// flowOfVHost is the graph of a vhost's dead letters. It does not change once it is in flows.
type flowOfVHost struct {
	at         hook.Instant  // when it was made
	took       time.Duration // including the time for reading events
	complete   bool
	components []*flow.Component
}

const (
	// flowShare limits the processor time for graphs: a graph that took 10 ms to make is
	// shown for 50 times as long, 500 ms.
	flowShare = 50
	// flowForgotten is how long a graph is kept without requests; the next request for any graph drops it.
	flowForgotten = time.Minute
)

// of returns the graphs of vhosts, and the time of the oldest.
func (fs *flows) of(a *flowHandlers, vhosts []*vhost.VHost) (all []*flow.Component, complete bool, at hook.Instant) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	now := a.clock()
	maps.DeleteFunc(fs.all, func(_ *vhost.VHost, f *flowOfVHost) bool { return now.Sub(f.at) > flowForgotten })
	complete, at = true, now
	var recent *flow.Recent
	var reading time.Duration
	for _, v := range vhosts {
		f := fs.all[v]
		if f == nil || now.Sub(f.at) >= f.took*flowShare {
			if recent == nil {
				recent = readRecent(a.ring, vhosts)
				reading = a.clock().Sub(now)
			}
			f = a.flowOf(v, recent, now.Add(scanTime))
			f.took += reading // which may be longer than all the rest: there may be a million events
			if fs.all == nil {
				fs.all = map[*vhost.VHost]*flowOfVHost{}
			}
			fs.all[v] = f
		}
		all, complete, at = append(all, f.components...), complete && f.complete, min(at, f.at)
	}
	return all, complete, at
}

// readRecent reads the remembered events of vhosts.
func readRecent(ring *telemetry.Ring, vhosts []*vhost.VHost) *flow.Recent {
	names := map[string]bool{}
	for _, v := range vhosts {
		names[v.Name()] = true
	}
	return flow.Read(ring, func(vhost string) bool { return names[vhost] })
}

func (a *flowHandlers) flowOf(v *vhost.VHost, recent *flow.Recent, end hook.Instant) *flowOfVHost {
	began := a.clock()
	g := flow.Of(flow.Options{
		VHost: v, Recent: recent,
		Rates: func(m *queue.Mailbox, counts []int64) ([]float64, bool) { return a.meters.measure(flowKey{m}, counts) },
		Late:  func() bool { return a.clock() >= end },
	})
	components := g.Components(v.Name())
	return &flowOfVHost{at: began, took: a.clock().Sub(began), complete: g.Complete, components: components}
}

func describeNode(vhost string, n *flow.Node) object {
	o := object{{"vhost", vhost}, {"queue", n.Queue}, {"exists", n.Exists}}
	if !n.Exists {
		return o
	}
	return append(
		o,
		member{"messages", n.Messages()}, member{"messages_ready", n.Ready}, member{"messages_unacknowledged", n.Unacked},
		member{"messages_held", n.Held}, member{"messages_leaving", n.Leaving}, member{"dead_letters", n.DeadLetters},
		member{"expiry_strategy", n.Strategy}, member{"next_deadline", jsonobj.Instant(n.Next)},
	)
}

func describeEdge(vhost string, e *flow.Edge) object {
	o := object{{"vhost", vhost}, {"from", e.From}, {"reason", jsonobj.OrNull(e.Reason.String())}}
	if t := e.Target; t != nil {
		var key any
		if t.HasKey {
			key = t.Key
		}
		o = append(o, member{"exchange", t.Exchange}, member{"key", key}, member{"at_least_once", t.AtLeastOnce})
		if e.Recent && !t.HasKey || e.Key != "" {
			o.Add("own_key", e.Key)
		}
	}
	if e.To != "" {
		o.Add("to", e.To)
	}
	if e.Problem != flow.NoProblem {
		o.Add("problem", string(e.Problem))
	}
	if e.Others > 0 {
		o.Add("others", e.Others)
	}
	if len(e.Via) > 0 {
		o.Add("via", e.Via)
	}
	if e.Holder != "" {
		o.Add("held_by", e.Holder)
	}
	o = append(o, member{"count", e.Count}, member{"rate", rateOrNull(e.Rate, e.Known)}, member{"certain", e.Certain}, member{"recent", e.Recent})
	outcomes := object{}
	for outcome := range telemetry.Outcomes {
		if n := e.Outcomes[outcome]; n > 0 {
			outcomes.Add(outcome.String(), n)
		}
	}
	return append(o, member{"outcomes", outcomes})
}

func describeCycle(vhost string, c *flow.Cycle) object {
	bound := "cycle_rule"
	if c.Rejected {
		bound = hook.ReasonRejected.String()
	}
	return object{{"vhost", vhost}, {"queues", c.Queues}, {"bound", bound}, {"slowed", c.Slowed}, {"certain", c.Certain}, {"rate", rateOrNull(c.Rate, c.Known)}}
}

func rateOrNull(rate float64, known bool) any {
	if !known {
		return nil
	}
	return rate
}

// flowed is the scope of the graph of dead letters.
var flowed = scope{name: "all nodes, merged", part: func(c *request) { c.query.columns, c.query.needs = nil, nil }, answer: func(c *request, e *endpoint) error {
	limit, _ := flowLimit(c) // which checkFlow has checked
	return objects(func(parts []object) object { return mergeFlow(parts, limit) }).answer(c, e)
}}

// mergeFlow joins graphs. No vhost is in two of them. If there are too many edges, the busiest stay.
func mergeFlow(parts []object, limit int) object {
	o := parts[0]
	left, _ := valueOf(o, "left_out").(object)
	var nodes, edges, cycles []object
	for i, other := range parts {
		nodes = append(nodes, joinObjects(maxFlowEdges, valueOf(other, "nodes"))...)
		edges = append(edges, joinObjects(maxFlowEdges, valueOf(other, "edges"))...)
		cycles = append(cycles, joinObjects(maxFlowEdges, valueOf(other, "cycles"))...)
		if i == 0 {
			continue
		}
		set(o, "at", earlierOf(valueOf(o, "at"), valueOf(other, "at")))
		set(o, "complete", valueOf(o, "complete") == true && valueOf(other, "complete") == true)
		if more, ok := valueOf(other, "left_out").(object); ok {
			left, _ = addValues(left, more).(object)
		}
	}
	if out := len(edges) - limit; out > 0 {
		edges = busiestEdges(edges, limit)
		nodes = slices.DeleteFunc(nodes, unlinked(edges))
		set(left, "edges", addValues(valueOf(left, "edges"), out))
	}
	set(o, "nodes", nonNil(nodes))
	set(o, "edges", nonNil(edges))
	set(o, "cycles", nonNil(cycles))
	set(o, "left_out", left)
	return o
}

// busiestEdges returns the edges with the highest rates.
func busiestEdges(edges []object, most int) []object {
	slices.SortStableFunc(edges, func(x, y object) int { return rows.Compare(valueOf(y, "rate"), valueOf(x, "rate")) })
	return edges[:most]
}

// unlinked returns a function that reports whether none of the edges leads from or to a node.
func unlinked(edges []object) func(object) bool {
	linked := map[[2]string]bool{}
	for _, e := range edges {
		linked[[2]string{textIn(e, "vhost"), textIn(e, "from")}] = true
		linked[[2]string{textIn(e, "vhost"), textIn(e, "to")}] = true
	}
	return func(n object) bool { return !linked[[2]string{textIn(n, "vhost"), textIn(n, "queue")}] }
}

func nonNil(all []object) []object {
	if all == nil {
		return []object{}
	}
	return all
}
