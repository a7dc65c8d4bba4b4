package mgmt

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/curfewmq/curfew/core/replicas"
	"github.com/curfewmq/curfew/core/vhost"
)

// inTerm is a node that knows a shard's term.
type inTerm struct {
	Replicas
	shard uint32
	term  uint64
}

// View implements [Replicas].
func (i inTerm) View() replicas.View {
	return replicas.View{Shards: []replicas.Shard{{Shard: i.shard, Role: replicas.Owner, Term: i.term}}}
}

// Before a node noticed that another one had taken a vhost over, totals counted the vhost's contents twice, and lists had the asked node's
// version of it. Only the contents at the node with the latest term count, whichever node is asked.
func TestClaimedTwiceIsCountedOnce(t *testing.T) {
	c := newCluster(t)
	c.want(2, 201, "PUT", "/api/queues/c/new", "")
	_, err := c.rigs[1].api.Store.AddVHost("c", vhost.Metadata{})
	must(t, err)
	former, _ := c.rigs[1].api.Store.VHost("c")
	for _, name := range []string{"old", "older"} {
		_, err := former.DeclareQueue(vhost.QueueDeclare{Name: name, Durable: true})
		must(t, err)
	}
	c.rigs[1].api.nodes.placements = deluded{c.nodes[1], "c", 2}
	for node, term := range []uint64{5, 5, 6} {
		c.rigs[node].api.nodes.replicas = inTerm{shard: 3, term: term}
	}
	exchanges := 0
	for _, name := range []string{"/", "a", "b", "c", "d"} {
		v, _ := c.rigs[clusterVHosts[name]].api.Store.VHost(name)
		exchanges += v.Stats().Exchanges
	}
	for node := range c.rigs {
		var o struct {
			Totals struct{ Queues, Exchanges int } `json:"object_totals"`
			Lacks  []string                        `json:"missing_vhosts"`
			Absent []string                        `json:"unreachable_nodes"`
		}
		must(t, json.Unmarshal(c.want(node, 200, "GET", "/api/overview", "").Body.Bytes(), &o))
		if o.Totals.Queues != 1 || o.Totals.Exchanges != exchanges || len(o.Lacks)+len(o.Absent) != 0 {
			t.Errorf("node %d: got %+v, want 1 queue and %d exchanges", node+1, o, exchanges)
		}
		if got := c.want(node, 200, "GET", "/api/queues?columns=name,vhost", "").Body.String(); got != `[{"name":"new","vhost":"c"}]` {
			t.Errorf("node %d: got %s", node+1, got)
		}
	}
	c.nodes[1].answer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { // a node that ends between two questions
		if q.Header.Get(withoutHeader) != "" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		c.rigs[1].api.Forwarded().ServeHTTP(w, q)
	}))
	if w := c.want(0, 200, "GET", "/api/overview", ""); w.Header().Get(unreachableHeader) != "curfew@n2" || w.Header().Get(missingHeader) != "b, d" {
		t.Errorf("a node that does not answer again: got %v", w.Header())
	}
}
