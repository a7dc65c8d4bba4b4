package mgmt

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/mgmt/rows"
	"github.com/curfewmq/curfew/core/replicas"
)

const (
	// partTime is how long another node may take until its part of an answer begins, and partLength until it ends.
	partTime   = 5 * time.Second
	partLength = 20 * time.Second
	// maxPart limits one node's part of an answer, in bytes: the part is in memory as a
	// whole, because only its end shows that it is complete.
	maxPart = 256 << 20
)

// unreachableHeader names the nodes whose parts are missing in the answer.
const unreachableHeader = "Curfew-Unreachable"

// part is one node's part of an answer, or its answer to a request that all nodes get.
type part struct {
	node   replicas.Node
	status int
	header http.Header
	body   []byte
	rest   io.Reader // the answer behind body; nil = body is all of it
}

// copyTo answers with the part alone.
func (p *part) copyTo(w http.ResponseWriter) {
	copyHeader(w.Header(), p.header)
	w.WriteHeader(p.status)
	_, _ = w.Write(p.body) // if the client is gone, the server notices
}

// question has what a node needs to know, besides the request, to answer its part.
type question struct {
	merged bool // the nodes' answers are parts of one answer
	long   bool // parts may be longer than maxHeld: the rest is read while the answer is written
	keys   bool // of a list, only the sort keys of its rows are wanted

	// By node; a node without an entry has none.
	ranges  map[string]rows.Range // rows of a list that are wanted
	without map[string]string     // shards that are taken from other parts
}

// mark sets the headers of a request to a node.
func (q *question) mark(h http.Header, node string) {
	if q.merged {
		h.Set(partHeader, "1")
	}
	if q.keys {
		h.Set(keysHeader, "1")
	}
	if r, ok := q.ranges[node]; ok {
		h.Set(rangeHeader, fmt.Sprintf("%d-%d", r.From, r.To))
	}
	if shards := q.without[node]; shards != "" {
		h.Set(withoutHeader, shards)
	}
}

// hold returns the request's share in the memory for parts.
func (ns *nodes) hold(c *request) *holding {
	if c.holding == nil {
		c.holding = &holding{of: ns.parts, user: c.user.Name}
	}
	return c.holding
}

// askOthers returns the answers of all other nodes, or their parts of one, and the names of
// the nodes that gave none in time.
func (ns *nodes) askOthers(c *request, q *question) (parts []part, missing []string) {
	return ns.askNodes(c, ns.others(), q)
}

// askNodes is askOthers for some nodes.
func (ns *nodes) askNodes(c *request, nodes []replicas.Node, q *question) (parts []part, missing []string) {
	answers := make([]*part, len(nodes))
	c.takeTime(partTime + partLength + gatherWait + writeTimeout)
	ns.hold(c) // before several goroutines use it
	var asked sync.WaitGroup
	for i := range nodes {
		if nodes[i].Up {
			asked.Go(func() { answers[i] = ns.ask1(c, nodes[i], q) })
		}
	}
	asked.Wait()
	for i, p := range answers {
		if p == nil {
			missing = append(missing, nodes[i].Name)
			continue
		}
		parts = append(parts, *p)
	}
	return parts, missing
}

// ask1 asks one other node. It returns nil if there is no complete answer in time, or one of the node's failures.
func (ns *nodes) ask1(c *request, n replicas.Node, q *question) *part {
	p, err := ns.ask(c, n, q)
	if err == nil && !q.long {
		err = p.complete(c.r.Context(), c.holding)
	}
	if err != nil {
		ns.logMissing(c, n, err)
		return nil
	}
	return p
}

// ask asks one other node, and reads the beginning of its answer. No request that several nodes answer needs its body.
func (ns *nodes) ask(c *request, n replicas.Node, q *question) (*part, error) {
	ctx, cancel := context.WithCancel(c.r.Context())
	late := time.AfterFunc(partTime, cancel)
	r := ns.outgoing(ctx, c, c.r.Method, c.r.URL, http.NoBody)
	r.ContentLength = 0
	q.mark(r.Header, n.Name)
	if q.merged {
		r.Method = http.MethodGet // a HEAD would bring no part
	}
	answer, err := ns.peers.Do(ctx, n.ID, r)
	if err != nil {
		late.Stop()
		cancel()
		return nil, err
	}
	p := &part{node: n, status: answer.StatusCode, header: answer.Header}
	if err := p.take(&partBody{answer.Body, cancel, late, partLength}, c.holding); err != nil {
		return nil, err
	}
	if answer.StatusCode < http.StatusOK || answer.StatusCode >= http.StatusInternalServerError && answer.StatusCode != http.StatusServiceUnavailable {
		return nil, errStatus(answer.StatusCode)
	}
	return p, nil
}

// errStatus is the status of an answer that is none.
type errStatus int

func (e errStatus) Error() string { return "status " + http.StatusText(int(e)) }

// logMissing logs why the part of a node is not in an answer.
func (ns *nodes) logMissing(c *request, n replicas.Node, err error) {
	if c.r.Context().Err() == nil {
		ns.log.Debug("a node's part of an answer is missing", "node", n.Name, "path", c.r.URL.Path, "error", err)
	}
}

func joinNames(names []string) string { return strings.Join(names, ", ") }

// gathering is a request about all nodes, and their answers.
type gathering struct {
	*request
	question question
	parts    []part   // by the order of the nodes; this node's has no body: its handler makes it
	missing  []string // nodes without a usable part
	unserved []string // vhosts whose contents are in no part; see findUnserved

	// Functions that join this node's answer with the parts; nil for other kinds of answers.
	sum   func(parts []object) object
	whole func(g *gathering, parts [][]object) []object
}

// gather asks all other nodes for their parts. The handler then makes this node's, and answers with all.
func (ns *nodes) gather(c *request, q question) (*gathering, error) {
	if err := ns.hold(c).begin(c.r.Context()); err != nil {
		c.w.Header().Set("Retry-After", "1")
		return nil, err
	}
	q.merged = true
	others, missing := ns.askOthers(c, &q)
	if c.holding.isRefused() {
		c.w.Header().Set("Retry-After", "1")
		return nil, errGathers
	}
	g := &gathering{request: c, question: q, missing: missing}
	for _, p := range g.inOrder(append(others, ns.ownPart(nil))) {
		if p.status != http.StatusOK {
			g.drop(p.node, errStatus(p.status))
			continue
		}
		g.parts = append(g.parts, p)
	}
	c.gathering = g
	return g, nil
}

// drop leaves out a node with an unusable part.
func (g *gathering) drop(n replicas.Node, why error) {
	g.api.nodes.logMissing(g.request, n, why)
	g.missing = append(g.missing, n.Name)
}

// mark says in the header which parts are missing, and the vhosts that are in none.
func (g *gathering) mark() {
	slices.Sort(g.missing)
	if len(g.missing) > 0 {
		g.w.Header().Set(unreachableHeader, joinNames(g.missing))
	}
	g.markUnserved()
}

// incomplete appends the members that say which parts are missing, and which vhosts are in none, if any are.
func (g *gathering) incomplete(o object) object {
	if len(g.missing) > 0 {
		o = append(o, member{"unreachable_nodes", g.missing})
	}
	if len(g.unserved) > 0 {
		o = append(o, member{"missing_vhosts", g.unserved})
	}
	return o
}

func (g *gathering) inOrder(parts []part) []part {
	slices.SortStableFunc(parts, func(x, y part) int { return cmp.Compare(g.api.nodes.seat(x.node.Name), g.api.nodes.seat(y.node.Name)) })
	return parts
}

// partBody is the body of another node's answer while it is read. A read that takes too long ends it, because the node hangs.
type partBody struct {
	from   io.ReadCloser
	cancel context.CancelFunc // ends the request
	late   *time.Timer        // calls cancel; runs during reads
	most   time.Duration      // how long a read may take
}

func (b *partBody) Read(p []byte) (int, error) {
	b.late.Reset(b.most)
	defer b.late.Stop()
	return b.from.Read(p)
}

func (b *partBody) Close() error {
	b.late.Stop()
	b.cancel()
	return b.from.Close()
}

// take reads the beginning of a part. The rest of a longer one can be read until the request ends.
func (p *part) take(from io.ReadCloser, hold *holding) (err error) {
	hold.add(from)
	if p.body, err = io.ReadAll(io.LimitReader(from, maxHeld)); err == nil && len(p.body) == maxHeld {
		p.rest = from
	}
	return err
}

// complete reads all of a part.
func (p *part) complete(ctx context.Context, hold *holding) error {
	if p.rest == nil {
		return nil
	}
	if err := hold.readWhole(ctx); err != nil {
		return err
	}
	rest, err := io.ReadAll(http.MaxBytesReader(nil, io.NopCloser(p.rest), maxPart-maxHeld))
	if err != nil {
		return err
	}
	p.body, p.rest = append(p.body, rest...), nil
	return nil
}

// reader reads the part from its beginning.
func (p *part) reader() io.Reader {
	if p.rest == nil {
		return bytes.NewReader(p.body)
	}
	return io.MultiReader(bytes.NewReader(p.body), p.rest)
}

// capture returns this node's own answer, which is short.
func capture(c *request, e *endpoint) *part {
	own, w := *c, &recorder{header: http.Header{}, status: http.StatusOK}
	own.w = w
	if err := e.do(&own); err != nil {
		own.refuse(err)
	}
	return &part{status: w.status, header: w.header, body: w.body}
}

// recorder keeps an answer. It implements [http.ResponseWriter].
type recorder struct {
	header http.Header
	status int
	body   []byte
}

func (w *recorder) Header() http.Header { return w.header }

func (w *recorder) WriteHeader(status int) { w.status = status }

func (w *recorder) Write(b []byte) (int, error) {
	w.body = append(w.body, b...)
	return len(b), nil
}
