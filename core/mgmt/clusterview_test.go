package mgmt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/backup"
	"github.com/curfewmq/curfew/core/replicas"
	"github.com/curfewmq/curfew/core/wlog"
)

// shards are the shards of a cluster in a test, and the operations on them.
type shards struct {
	cluster *cluster

	mu     sync.Mutex // guards the fields below
	owners []wlog.NodeID
	lag    map[wlog.NodeID]uint64 // of replicas
	state  string                 // of replicas on node 3
	mute   map[wlog.NodeID]bool   // have told the owner nothing yet
	silent map[wlog.NodeID]bool   // nodes that have not answered the owner
	refuse error                  // of transfers
	done   []string
	voters []wlog.NodeID
	stuck  error // of replacements
	admit  error // of nodes that are to be admitted
	behind error // of copies that are asked for
}

// nodeShards is a node's view of the shards.
type nodeShards struct {
	*shards
	self wlog.NodeID
}

// newShardedCluster returns a cluster whose nodes have shards: node n owns shard n-1.
func newShardedCluster(t *testing.T) (*cluster, *shards) {
	t.Helper()
	s := &shards{owners: []wlog.NodeID{1, 2, 3}, lag: map[wlog.NodeID]uint64{}, silent: map[wlog.NodeID]bool{}, voters: []wlog.NodeID{1, 2, 3}}
	next := wlog.NodeID(0)
	s.cluster = newCluster(t, func(o *Options) {
		next++
		o.Replicas = nodeShards{s, next}
	})
	return s.cluster, s
}

// View implements [Replicas].
func (n nodeShards) View() replicas.View {
	n.mu.Lock()
	defer n.mu.Unlock()
	v := replicas.View{Self: n.self, Nodes: n.cluster.Nodes(), Applicants: []replicas.Node{{ID: 9, Address: "n2:5680"}}}
	for i, owner := range n.owners {
		s := replicas.Shard{Shard: uint32(i), Role: replicas.Follower, Owner: owner, Term: 5, Commit: 100, Last: 100, Voters: n.voters}
		if owner == n.self {
			s.Role = replicas.Owner
			for _, p := range v.Nodes {
				if p.ID != n.self {
					r := replicas.Replica{Node: p.ID, Voter: true, Active: !n.silent[p.ID] && p.Up, Lag: n.lag[p.ID], Silent: n.mute[p.ID]}
					if p.ID == 3 {
						r.State = n.state
					}
					s.Peers = append(s.Peers, r)
				}
			}
		}
		v.Shards = append(v.Shards, s)
	}
	return v
}

func (n nodeShards) note(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.done = append(n.done, fmt.Sprintf("%d: ", n.self)+fmt.Sprintf(format, args...))
}

// Transfer implements [Replicas].
func (n nodeShards) Transfer(_ context.Context, shard uint32, to wlog.NodeID) error {
	n.note("transfer %d to %d", shard, to)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.refuse == nil {
		n.owners[shard] = to
	}
	return n.refuse
}

// Admit implements [Replicas].
func (n nodeShards) Admit(_ context.Context, address string, number wlog.NodeID) error {
	n.note("admit %d at %s", number, address)
	return n.admit
}

// Replace implements [Replicas].
func (n nodeShards) Replace(_ context.Context, shard uint32, by wlog.NodeID) error {
	n.note("replace by %d in %d", by, shard)
	return n.stuck
}

// Copies implements [Replicas].
func (n nodeShards) Copies(context.Context) (*replicas.Copy, error) {
	return &replicas.Copy{Node: n.self, Address: "n1:5680", Shards: 1, Format: 1}, n.behind
}

// take returns the operations since the last call.
func (s *shards) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := strings.Join(s.done, "; ")
	s.done = nil
	return all
}

// While a node has been away since before the owner became one, its lag is unknown. It was shown as the whole log.
func TestWhatAnAbsentNodeLacks(t *testing.T) {
	c, s := newShardedCluster(t)
	s.lag[2], s.lag[3], s.mute = 7, 100, map[wlog.NodeID]bool{3: true}
	var got struct {
		Shards []struct{ Replicas []struct{ Lag *uint64 } }
	}
	if err := json.Unmarshal(c.want(0, 200, "GET", "/api/cluster", "").Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	all := got.Shards[0].Replicas
	if all[1].Lag == nil || *all[1].Lag != 7 || all[2].Lag != nil {
		t.Errorf("got %v and %v", all[1].Lag, all[2].Lag)
	}
}

// Every node shows the same cluster.
func TestClusterAsItIs(t *testing.T) {
	c, s := newShardedCluster(t)
	s.lag[3] = 7
	var first string
	for node := range c.rigs {
		var got struct {
			Registrar string
			Nodes     []struct {
				Name    string
				Running bool
				Links   []struct{ To string }
			}
			Shards []struct {
				Owner    string
				Replicas []struct {
					Node     string
					Role     string
					CaughtUp bool `json:"caught_up"`
				}
			}
			Unreachable []string `json:"unreachable_nodes"`
		}
		must(t, json.Unmarshal(c.want(node, 200, "GET", "/api/cluster", "").Body.Bytes(), &got))
		text := fmt.Sprintf("%+v", got)
		if node == 0 {
			first = text
			if got.Registrar != "curfew@n1" || len(got.Shards) != 3 || got.Shards[1].Owner != "curfew@n2" || len(got.Nodes[2].Links) != 2 {
				t.Errorf("got %s", text)
			}
			if r := got.Shards[0].Replicas; r[0].Role != "owner" || !r[0].CaughtUp || r[1].Role != "follower" || !r[1].CaughtUp || r[2].CaughtUp {
				t.Errorf("got %+v", r)
			}
		}
		if text != first {
			t.Errorf("node %d shows\n%s\nnode 0\n%s", node, text, first)
		}
	}
	c.nodes[1].down = true
	w := c.want(0, 200, "GET", "/api/cluster", "")
	if !strings.Contains(w.Body.String(), `"unreachable_nodes":["curfew@n2"]`) || !strings.Contains(w.Body.String(), `{"shard":1,"registry":false,"owner":null,`) {
		t.Errorf("got %s", w.Body)
	}
}

// A request with wrong parameters asks no other node. Most were refused only after all nodes had made their parts.
func TestWrongRequestsAskNoOtherNode(t *testing.T) {
	c := newCluster(t)
	c.want(0, 201, "PUT", "/api/users/other", `{"password":"x","tags":"management"}`)
	for _, p := range c.nodes[1:] {
		p.answer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { t.Errorf("a node was asked for %s", q.URL) }))
	}
	for _, tc := range []struct {
		user, path string
		status     int
	}{
		{guest, "queues?page=0", 400},
		{guest, "queues?page=1&use_regex=true&name=(", 400},
		{guest, "queues?columns=" + strings.Repeat("x,", 300), 400},
		{guest, "deadlines?buckets=x", 400},
		{guest, "deadlines?page=1", 400},
		{guest, "policy-use?name=x", 400},
		{guest, "policy-use?vhost=c&name=x", 400},
		{guest, "dead-letters/flow?limit=0", 400},
		{guest, "dead-letters/flow?sort=x", 400},
		{guest, "dead-letters/flow?vhost=c&sort=x", 400},
		{guest, "definitions?modules=x", 400},
		{guest, "live?view=x", 400},
		{"other:x", "connections/username/guest", 401},
	} {
		if w := c.at(0, tc.user, "GET", "/api/"+tc.path, ""); w.Code != tc.status {
			t.Errorf("%s: got %d %s", tc.path, w.Code, w.Body)
		}
	}
}

// The backup of a cluster is that of a node's copies of the shards, which says so: earlier versions must not take it for a broker's data.
func TestBackupOfANode(t *testing.T) {
	c, _ := newShardedCluster(t)
	m, err := backup.Read(c.want(0, 200, "GET", "/api/backup", "").Body, backup.Check{})
	if err != nil {
		t.Fatal(err)
	}
	if want := (replicas.Copy{Node: 1, Address: "n1:5680", Shards: 1, Format: 1}); m.Format != 2 || m.Copy == nil || *m.Copy != want {
		t.Errorf("the manifest is %+v", m)
	}
}

// A node that lacks confirmed entries makes no backup.
func TestNoBackupOfANodeThatIsBehind(t *testing.T) {
	c, s := newShardedCluster(t)
	s.behind = errors.New("barrier of shard 1: the shard has no owner now")
	w := c.want(0, 503, "GET", "/api/backup", "")
	if got := w.Body.String(); !strings.Contains(got, `"error":"incomplete","reason":"this node cannot back the cluster up, another may: barrier of shard 1: the shard has no owner now"`) {
		t.Errorf("got %s", got)
	}
}

// A node is critical if a shard would have no majority without it, and not because the owner has not heard of another for a moment.
func TestCriticalNodes(t *testing.T) {
	c, s := newShardedCluster(t)
	check := func(name string, node, status int) {
		t.Helper()
		c.want(node, status, "GET", "/api/health/checks/"+name, "")
	}
	for node := range c.rigs {
		check("node-is-quorum-critical", node, 200)
		check("node-is-mirror-sync-critical", node, 200)
	}
	s.silent[2] = true // as far as the owners know
	check("node-is-quorum-critical", 0, 200)
	s.lag[2], s.lag[3] = 5, 6
	check("node-is-mirror-sync-critical", 0, 503)
	check("node-is-mirror-sync-critical", 1, 200) // node 1 could take over from it
	s.state = "replicate"                         // the missing entries are on their way
	check("node-is-quorum-critical", 0, 200)
	s.state = "probe" // it answers, and takes nothing: its disk is full
	check("node-is-quorum-critical", 0, 503)
	s.lag[3] = 0
	check("node-is-quorum-critical", 0, 200)
	s.state = ""
	c.nodes[2].down = true
	for node := range 2 {
		check("node-is-quorum-critical", node, 503)
	}
	single := newRig(t)
	single.do(200, "GET", "/api/health/checks/node-is-quorum-critical", "")
	single.do(200, "GET", "/api/cluster", "")
	single.do(404, "POST", "/api/cluster/transfer", `{"shard":1,"to":"x"}`)
	single.do(404, "POST", "/api/cluster/replace", `{"address":"x"}`)
}

// Whichever node is asked, the owner hands over its shard.
func TestTransfers(t *testing.T) {
	c, s := newShardedCluster(t)
	for _, tc := range []struct {
		node, status int
		body         string
		done, reason string
	}{
		{0, 204, `{"shard":1,"to":"curfew@n3"}`, "2: transfer 1 to 3", ""},
		{0, 204, `{"shard":1,"to":"n3:5680"}`, "", ""}, // it owns it already
		{2, 204, `{"shard":1,"to":"n2:5680"}`, "3: transfer 1 to 2", ""},
		{2, 204, `{"vhost":"/","to":"curfew@n3"}`, "2: transfer 1 to 3", ""},
		{0, 400, `{"shard":1,"to":"n9"}`, "", "\"'n9' is no node of the cluster: they are at n1:5680, n2:5680, n3:5680\""},
		{0, 400, `{"shard":1,"to":"` + strings.Repeat("n", 300) + `"}`, "", strings.Repeat("n", 200) + "' is no node of the cluster: they are at n1:5680"},
		{0, 400, `{"shard":1,"to":""}`, "", "'' is no node of the cluster: they are at n1:5680"},
		{0, 400, `{"to":"n1"}`, "", "one of shard, a number from 0 to 255, and vhost, a name, is needed"},
		{0, 400, `{"shard":1,"vhost":"/","to":"curfew@n1"}`, "", "one of shard"},
		{0, 400, `{"shard":256,"to":"curfew@n1"}`, "", "shard"},
		{0, 400, `{"shard":1}`, "", "key_missing"},
		{0, 400, `{"shard":1,"to":"curfew@n1","force":true}`, "", "force"},
		{0, 404, `{"shard":7,"to":"curfew@n1"}`, "", "there is no shard 7: the cluster has 3, from 0 on"},
		{0, 404, `{"vhost":"none","to":"curfew@n1"}`, "", "there is no virtual host 'none'"},
	} {
		w := c.want(tc.node, tc.status, "POST", "/api/cluster/transfer", tc.body)
		if got := s.take(); got != tc.done || !strings.Contains(w.Body.String(), tc.reason) {
			t.Errorf("%s: %s was done, want %s; answered %s", tc.body, got, tc.done, w.Body)
		}
	}
	s.refuse = errors.New("transfer shard 0: the node has not caught up: it lacks 4 entries")
	for node := range c.rigs {
		if w := c.want(node, 409, "POST", "/api/cluster/transfer", `{"shard":0,"to":"curfew@n3"}`); !strings.Contains(w.Body.String(), "\"n3:5680: transfer shard 0: the node has not caught up: it lacks 4 entries") {
			t.Errorf("got %s", w.Body)
		}
	}
	s.refuse = fmt.Errorf("transfer: %w", wlog.ErrNotOwner)
	c.want(0, 503, "POST", "/api/cluster/transfer", `{"shard":0,"to":"curfew@n3"}`)
	s.owners[0] = 0
	if w := c.want(0, 503, "POST", "/api/cluster/transfer", `{"shard":0,"to":"curfew@n3"}`); !strings.Contains(w.Body.String(), "shard 0 has no owner now") {
		t.Errorf("got %s", w.Body)
	}
}

// A node is admitted by all that live, and then taken in by the owner of each shard.
func TestReplacements(t *testing.T) {
	c, s := newShardedCluster(t)
	s.owners = []wlog.NodeID{1, 3, 1}
	c.nodes[1].down = true
	for _, body := range []string{`{"address":"n2:5680"}`, `{"address":"n2:5680","number":"9"}`, `{"address":"n2:5680","number":9}`} {
		w := c.want(0, 200, "POST", "/api/cluster/replace", body)
		if got, want := s.take(), "1: admit 9 at n2:5680; 3: admit 9 at n2:5680; 1: replace by 9 in 0; 3: replace by 9 in 1; 1: replace by 9 in 2"; got != want {
			t.Errorf("%s: got %s, want %s", body, got, want)
		}
		if got, want := w.Body.String(), `{"address":"n2:5680","number":"9","shards":[0,1,2]}`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	for body, reason := range map[string]string{
		`{"address":"n1:5680","number":"9"}`: "ask another one", `{"address":"x:1","number":"9"}`: "they are at n1:5680, n2:5680, n3:5680",
		`{"address":"x:1"}`:                  "at which no node of the cluster is: they are at n1:5680, n2:5680, n3:5680",
		`{"address":"n2:5680","number":"0"}`: "number is", `{"address":"n2:5680","number":"x"}`: "number is", `{"number":"9"}`: "key_missing", `{"address":"n2:5680","shard":1}`: "shard",
	} {
		if w := c.want(0, 400, "POST", "/api/cluster/replace", body); !strings.Contains(w.Body.String(), reason) {
			t.Errorf("%s: got %s", body, w.Body)
		}
	}
	// A node that was started with the address of another would take its seat, and have it shut out for good.
	c.nodes[1].down = false
	for _, body := range []string{`{"address":"n2:5680"}`, `{"address":"n2:5680","number":"9"}`} {
		w := c.want(0, 409, "POST", "/api/cluster/replace", body)
		if done := s.take(); done != "" || !strings.Contains(w.Body.String(), "the node at 'n2:5680' runs, with the number 2, and node 9 waits with the same cluster.advertise") {
			t.Errorf("%s: %s was done; answered %s", body, done, w.Body)
		}
	}
	c.nodes[1].down = true
	// A number that no node has would shut a healthy node out of the cluster.
	for body, reason := range map[string]string{
		`{"address":"n2:5680","number":"77"}`: "the nodes that wait there have 9",
		`{"address":"n3:5680","number":"77"}`: "no node waits at 'n3:5680', neither number 77 nor another",
		`{"address":"n3:5680","number":"9"}`:  "no node waits at 'n3:5680', neither number 9 nor another", // it waits elsewhere
	} {
		w := c.want(0, 409, "POST", "/api/cluster/replace", body)
		if done := s.take(); done != "" || !strings.Contains(w.Body.String(), reason) {
			t.Errorf("%s: %s was done; answered %s", body, done, w.Body)
		}
	}
	c.want(0, 200, "POST", "/api/cluster/replace", `{"address":"n2:5680","number":"2"}`) // again, after it has the seat
	s.take()
	c.nodes[2].answer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(409)
		_, _ = w.Write([]byte(`{"error":"conflict","reason":"the disk is full"}`))
	}))
	if w := c.want(0, 409, "POST", "/api/cluster/replace", `{"address":"n2:5680"}`); !strings.Contains(w.Body.String(), "curfew@n3: the disk is full") {
		t.Errorf("got %s", w.Body)
	}
	c.nodes[2].answer(nil)
	c.nodes[2].down = true
	c.want(0, 503, "POST", "/api/cluster/replace", `{"address":"n2:5680"}`)
	s.take()
	// Without a majority nothing may be begun: the former node was shut out, and made none when it came back with its data.
	c.stale = wlog.ErrNoOwner
	if w := c.want(0, 503, "POST", "/api/cluster/replace", `{"address":"n2:5680"}`); !strings.Contains(w.Body.String(), "a majority of the nodes is needed") || s.take() != "" {
		t.Errorf("got %s", w.Body)
	}
	c.stale, s.owners[2] = nil, 0
	if w := c.want(0, 503, "POST", "/api/cluster/replace", `{"address":"n2:5680"}`); !strings.Contains(w.Body.String(), "shard 2 has no owner now") || s.take() != "" {
		t.Errorf("got %s", w.Body)
	}
}

// A replacement that is repeated after the owners have finished it, because the asked node had ended, was refused for ever: no node waits
// any more.
func TestReplacementThatIsDone(t *testing.T) {
	c, s := newShardedCluster(t)
	s.owners = []wlog.NodeID{1, 1, 1}
	w := c.want(0, 200, "POST", "/api/cluster/replace", `{"address":"n3:5680"}`)
	if got, want := w.Body.String(), `{"address":"n3:5680","number":"3","shards":[0,1,2]}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	c.nodes[2].down = true
	w = c.want(0, 409, "POST", "/api/cluster/replace", `{"address":"n3:5680"}`) // its disk may be lost
	if want := "no node waits at 'n3:5680': start the node there with its data folder"; !strings.Contains(w.Body.String(), want) {
		t.Errorf("got %s, want %s", w.Body, want)
	}
}

// patientRecorder is a recorder that knows until when it may be written to.
type patientRecorder struct {
	*httptest.ResponseRecorder
	until time.Time
}

// SetWriteDeadline is that of the connection.
func (r *patientRecorder) SetWriteDeadline(t time.Time) error {
	r.until = t
	return nil
}

// Taking a node into a shard may last: the new node gets the log. The owner can still answer the node that was asked.
func TestReplacementTakesItsTime(t *testing.T) {
	c, _ := newShardedCluster(t)
	w := &patientRecorder{ResponseRecorder: httptest.NewRecorder()}
	q := httptest.NewRequest("POST", "/api/cluster/replace", strings.NewReader(`{"address":"n3:5680","number":"9","shard":1}`))
	q.Header.Set(userHeader, "guest")
	c.rigs[1].api.Forwarded().ServeHTTP(w, q)
	if w.Code != 204 || time.Until(w.until) < replaceTime {
		t.Errorf("got %d %s, which may be written until %v", w.Code, w.Body, w.until)
	}
}

// A replacement that takes too long says which node does not answer, or is behind. It said "context canceled".
func TestUnfinishedReplacementNamesTheNode(t *testing.T) {
	c, s := newShardedCluster(t)
	for _, why := range []error{context.DeadlineExceeded, context.Canceled} {
		s.stuck = fmt.Errorf("replace a node in shard 0: %w", why)
		s.lag, s.silent = map[wlog.NodeID]uint64{2: 7, 3: 9}, nil
		ask := func(want string) {
			t.Helper()
			if w := c.want(0, 409, "POST", "/api/cluster/replace", `{"address":"n2:5680","number":"2"}`); !strings.Contains(w.Body.String(), "shard 0 is not done yet: "+want) {
				t.Errorf("got %s, want %s", w.Body, want)
			}
		}
		ask("curfew@n2 lacks 7 entries; replacing may be repeated")
		s.silent = map[wlog.NodeID]bool{3: true}
		ask("curfew@n2 lacks 7 entries, curfew@n3 does not answer; ")
		s.silent = map[wlog.NodeID]bool{2: true}
		ask("curfew@n2 does not answer; ")
		s.silent, s.mute = nil, map[wlog.NodeID]bool{2: true} // it was said to lack all there is
		ask("what curfew@n2 lacks is not known yet; ")
		s.mute = nil
		s.lag, s.silent = nil, nil
		ask("the nodes have not agreed on it; ")
	}
}

// A replacement that is refused names the node by its address. It had two numbers of 64 bits.
func TestRefusedReplacementNamesTheAddress(t *testing.T) {
	c, s := newShardedCluster(t)
	c.nodes[1].down = true
	s.stuck = errors.New("replace a node in shard 0: the former one: the node has no vote in the shard")
	const want = `"n2:5680: replace a node in shard 0: the former one: the node has no vote in the shard"`
	if w := c.want(0, 409, "POST", "/api/cluster/replace", `{"address":"n2:5680"}`); !strings.Contains(w.Body.String(), want) {
		t.Errorf("got %s, want %s", w.Body, want)
	}
	s.stuck, s.admit = nil, errors.New("the disk is full")
	if w := c.want(0, 409, "POST", "/api/cluster/replace", `{"address":"n2:5680"}`); !strings.Contains(w.Body.String(), `"n2:5680: the disk is full"`) {
		t.Errorf("got %s", w.Body)
	}
}

// A node lists its connections to the others as RabbitMQ does; not to nodes that are away.
func TestClusterLinks(t *testing.T) {
	c, _ := newShardedCluster(t)
	c.nodes[1].Link = replicas.Link{
		Local: netip.MustParseAddrPort("192.0.2.1:40000"), Remote: netip.MustParseAddrPort("[2001:db8::2]:5680"), Sent: 7, Received: 8,
	}
	c.nodes[2].down = true
	w := c.want(0, 200, "GET", "/api/nodes/curfew@n1?columns=cluster_links", "")
	want := `{"cluster_links":[{"name":"curfew@n2","recv_bytes":8,"send_bytes":7,` +
		`"stats":{"send_bytes":7,"send_bytes_details":{"rate":0.0},"recv_bytes":8,"recv_bytes_details":{"rate":0.0}},` +
		`"peer_addr":"2001:db8::2","peer_port":5680,"sock_addr":"192.0.2.1","sock_port":40000}]}`
	if got := w.Body.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	c.nodes[1].down = true
	if got := c.want(0, 200, "GET", "/api/nodes/curfew@n1?columns=cluster_links", "").Body.String(); got != `{"cluster_links":[]}` {
		t.Errorf("alone: got %s", got)
	}
}

// The advice about a node that is down, and in whose place no other waits, is to start it; anything else is only for a lost disk.
func TestAdviceAboutANodeThatIsDown(t *testing.T) {
	v := replicas.View{Nodes: []replicas.Node{{Address: "a:1", Up: true}, {Address: "b:1"}}}
	if got := adviceAbout(&v, "a:1"); got != ", and the node there runs: there is nothing to replace" {
		t.Errorf("of one that runs: %s", got)
	}
	if got := adviceAbout(&v, "b:1"); !strings.HasPrefix(got, ": start the node there with its data folder; or, only if that is lost, ") {
		t.Errorf("of one that does not: %s", got)
	}
}
