package mgmt

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/curfewmq/curfew/core/replicas"
)

const (
	// partTime is how long another node may take until its part of an answer begins, and partLength until it ends.
	partTime   = 5 * time.Second
	partLength = 20 * time.Second
	// maxPart limits one node's part of an answer, in bytes: it is in memory as a whole, because only then it is known to be complete.
	maxPart = 256 << 20
)

// unreachableHeader names the nodes whose part is not in the answer.
const unreachableHeader = "Curfew-Unreachable"

// part is one node's part of an answer, or its answer to a request that all nodes get.
type part struct {
	node   replicas.Node
	status int
	header http.Header
	body   []byte
}

// copyTo answers with the part alone.
func (p *part) copyTo(w http.ResponseWriter) {
	copyHeader(w.Header(), p.header)
	w.WriteHeader(p.status)
	_, _ = w.Write(p.body) // if the client is gone, the server notices
}

// recorder is an answer in memory.
type recorder struct {
	part
	b bytes.Buffer
}

// Header implements [http.ResponseWriter].
func (r *recorder) Header() http.Header { return r.header }

// WriteHeader implements [http.ResponseWriter].
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

// Write implements [http.ResponseWriter].
func (r *recorder) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.b.Write(b)
}

// askSelf returns this node's own answer or, with merged, its part of one.
func (c *request) askSelf(e *endpoint, merged bool) part {
	own, w := *c, &recorder{part: part{header: http.Header{}}}
	own.w, own.part = w, merged
	own.forwarded = true
	if err := own.dispatch(e); err != nil {
		own.refuse(err)
	}
	w.WriteHeader(http.StatusOK)
	w.body = w.b.Bytes()
	w.node, _ = c.api.member(c.api.Node)
	return w.part
}

// askOthers returns the answers of all other nodes, or their parts of one, and the names of the nodes that gave none in time.
func (c *request) askOthers(e *endpoint, merged bool) (parts []part, missing []string) {
	others := slices.DeleteFunc(slices.Clone(c.api.Peers.Nodes()), func(n replicas.Node) bool { return c.api.isSelf(&n) })
	answers := make([]*part, len(others))
	body := c.replayable()
	c.takeTime(partTime + partLength + writeTimeout)
	var asked sync.WaitGroup
	for i := range others {
		if others[i].Up {
			asked.Go(func() { answers[i] = c.ask1(others[i], body, merged) })
		}
	}
	asked.Wait()
	for i, p := range answers {
		if p == nil {
			missing = append(missing, others[i].Name)
			continue
		}
		parts = append(parts, *p)
	}
	return parts, missing
}

// replayable returns what makes copies of the body, which few requests to all nodes have.
func (c *request) replayable() func() io.ReadCloser {
	if c.r.Body == nil || c.r.Body == http.NoBody {
		return func() io.ReadCloser { return http.NoBody }
	}
	b, _ := c.read(min(maxSmallBody, c.api.BodyMax)) // one that is too large is refused by those who read it
	return func() io.ReadCloser { return io.NopCloser(bytes.NewReader(b)) }
}

// ask1 asks one other node. It returns nil if there is no complete answer in time, or one of the node's failures.
func (c *request) ask1(n replicas.Node, body func() io.ReadCloser, merged bool) *part {
	ctx, cancel := context.WithCancel(c.r.Context())
	defer cancel()
	late := time.AfterFunc(partTime, cancel)
	defer late.Stop()
	r := c.outgoing(ctx, c.r.Method, c.r.URL, body())
	if merged {
		r.Header.Set(partHeader, "1")
		r.Method = http.MethodGet // a HEAD would bring no part
	}
	answer, err := c.api.Peers.Do(ctx, n.ID, r)
	if err != nil {
		c.logMissing(n, err)
		return nil
	}
	defer func() { _ = answer.Body.Close() }() // all that counts was read
	late.Reset(partLength)
	b, err := io.ReadAll(http.MaxBytesReader(nil, answer.Body, maxPart))
	if err != nil {
		c.logMissing(n, err)
		return nil
	}
	if answer.StatusCode < http.StatusOK || answer.StatusCode >= http.StatusInternalServerError && answer.StatusCode != http.StatusServiceUnavailable {
		c.logMissing(n, errStatus(answer.StatusCode))
		return nil
	}
	return &part{node: n, status: answer.StatusCode, header: answer.Header, body: b}
}

// errStatus is the status of an answer that is none.
type errStatus int

func (e errStatus) Error() string { return "status " + http.StatusText(int(e)) }

// logMissing logs why the part of a node is not in an answer.
func (c *request) logMissing(n replicas.Node, err error) {
	if c.r.Context().Err() == nil {
		c.api.Log.Debug("a node's part of an answer is missing", "node", n.Name, "path", c.r.URL.Path, "error", err)
	}
}

func joinNames(names []string) string { return strings.Join(names, ", ") }

// gathering is what the nodes have answered to a request that is about all of them.
type gathering struct {
	*request
	endpoint *endpoint
	parts    []part   // by the order of the nodes; the first one is not always this node's
	missing  []string // nodes whose part is not there
}

// gather asks all nodes for their parts. It fails if this node refuses the request: then all do.
func (c *request) gather(e *endpoint) (*gathering, bool) {
	own := c.askSelf(e, true)
	if own.status != http.StatusOK {
		own.copyTo(c.w)
		return nil, false
	}
	others, missing := c.askOthers(e, true)
	g := &gathering{request: c, endpoint: e, missing: missing}
	for _, n := range c.api.Peers.Nodes() {
		if c.api.isSelf(&n) {
			g.parts = append(g.parts, own)
			continue
		}
		i := slices.IndexFunc(others, func(p part) bool { return p.node.ID == n.ID })
		if i < 0 {
			continue
		}
		if others[i].status != http.StatusOK {
			g.drop(others[i].node, errStatus(others[i].status))
			continue
		}
		g.parts = append(g.parts, others[i])
	}
	return g, true
}

// drop leaves out a node whose part is unusable.
func (g *gathering) drop(n replicas.Node, why error) {
	g.logMissing(n, why)
	g.missing = append(g.missing, n.Name)
}

// mark says in the header which parts are missing.
func (g *gathering) mark() {
	slices.Sort(g.missing)
	if len(g.missing) > 0 {
		g.w.Header().Set(unreachableHeader, joinNames(g.missing))
	}
}

// unreachable appends the member that says which parts are missing, if any are.
func (g *gathering) unreachable(o object) object {
	if len(g.missing) == 0 {
		return o
	}
	return append(o, member{"unreachable_nodes", g.missing})
}
