package mgmt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/curfewmq/curfew/core/mgmt/definitions"
	"github.com/curfewmq/curfew/core/peer/memnet"
	"github.com/curfewmq/curfew/core/replicas"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
)

// cluster is three APIs in one process. Each vhost is at one of them.
type cluster struct {
	t     *testing.T
	rigs  []*rig
	nodes []*peer

	awaited func(vhost string) // runs during AwaitVHost; nil = nothing does
	located func(vhost string) // runs before OwnerOf; nil = nothing does

	mu        sync.Mutex // guards the fields below
	owners    map[string]wlog.NodeID
	registrar wlog.NodeID
	freshened int    // calls of Fresh
	stale     error  // of Fresh
	news      func() // that Fresh brings; nil = none
}

// peer is one node as the others see it.
type peer struct {
	*cluster
	replicas.Node
	server *httptest.Server
	client *http.Client
	stead  atomic.Pointer[http.Handler] // answers instead of the API; nil = nothing does
	down   bool
}

// unsharded are the replicas of a cluster whose nodes know of no shards.
type unsharded struct {
	Replicas
	cluster *cluster
}

// View implements [Replicas].
func (u unsharded) View() replicas.View { return replicas.View{Nodes: u.cluster.Nodes()} }

// answer has something else answer for the node; nil = its API.
func (p *peer) answer(h http.Handler) {
	if h == nil {
		p.stead.Store(nil)
		return
	}
	p.stead.Store(&h)
}

// clusterVHosts are where vhosts live.
var clusterVHosts = map[string]int{"/": 0, "a": 0, "b": 1, "c": 2, "d": 1}

func newCluster(t *testing.T, change ...func(*Options)) *cluster {
	t.Helper()
	c := &cluster{t: t, owners: map[string]wlog.NodeID{}, registrar: 1}
	network := new(memnet.Network)
	for i := range 3 {
		p := &peer{cluster: c, Node: replicas.Node{ID: wlog.NodeID(i + 1), Name: fmt.Sprintf("curfew@n%d", i+1), Address: fmt.Sprintf("n%d:5680", i+1), Up: true}}
		r := newRig(t, append([]func(*Options){func(o *Options) {
			o.Node, o.Peers, o.Placements, o.Replicas = p.Name, p, p, unsharded{cluster: c}
		}}, change...)...)
		p.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if h := p.stead.Load(); h != nil {
				(*h).ServeHTTP(w, q)
				return
			}
			r.api.Forwarded().ServeHTTP(w, q)
		}))
		p.server.Listener.Close()
		p.server.Listener = network.Listen(p.Address)
		p.server.Start()
		p.client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return network.Dial(ctx, p.Address)
		}}}
		t.Cleanup(func() {
			p.client.CloseIdleConnections()
			p.server.Close()
		})
		c.rigs, c.nodes = append(c.rigs, r), append(c.nodes, p)
	}
	for _, name := range slices.Sorted(maps.Keys(clusterVHosts)) {
		c.place(name, clusterVHosts[name])
	}
	return c
}

// place makes a vhost at a node, and takes it away from the others.
func (c *cluster) place(name string, node int) {
	c.t.Helper()
	for i, r := range c.rigs {
		if _, there := r.api.Store.VHost(name); there && i != node {
			_, err := r.api.Store.DeleteVHost(name)
			must(c.t, err)
		} else if !there && i == node {
			c.arrive(name, node)
		}
	}
	c.assign(name, node)
}

// arrive makes a vhost at a node, which is its owner from now on.
func (c *cluster) arrive(name string, node int) {
	c.t.Helper()
	r := c.rigs[node]
	_, err := r.api.Store.AddVHost(name, vhost.Metadata{})
	must(c.t, err)
	_, err = r.api.users().SetPermissions(definitions.AllPermissions("guest", name))
	must(c.t, err)
	c.assign(name, node)
}

// assign makes a node the owner of a vhost for all nodes.
func (c *cluster) assign(name string, node int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owners[name] = c.nodes[node].ID
}

// OwnerOf implements [Placements].
func (c *cluster) OwnerOf(vhost string) (owner wlog.NodeID, known bool) {
	if c.located != nil {
		c.located(vhost)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if owner, known = c.owners[vhost]; known {
		return owner, true
	}
	for i, r := range c.rigs { // one that was made by a request
		if _, there := r.api.Store.VHost(vhost); there {
			return c.nodes[i].ID, true
		}
	}
	return 0, false
}

// AwaitVHost implements [Placements].
func (c *cluster) AwaitVHost(_ context.Context, vhost string) {
	if fn := c.awaited; fn != nil {
		fn(vhost)
	}
}

// ShardOf implements [Placements]. Each node owns a shard of vhosts.
func (c *cluster) ShardOf(vhost string) (shard uint32, known bool) {
	owner, known := c.OwnerOf(vhost)
	return uint32(owner), known
}

// VHosts implements [Placements].
func (c *cluster) VHosts() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.owners))
}

// Registrar implements [Placements].
func (c *cluster) Registrar() wlog.NodeID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.registrar
}

// Fresh implements [Placements].
func (c *cluster) Fresh(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.freshened++
	if c.news != nil {
		c.news()
	}
	return c.stale
}

// Nodes implements [Peers].
func (c *cluster) Nodes() []replicas.Node {
	all := make([]replicas.Node, len(c.nodes))
	for i, p := range c.nodes {
		all[i] = p.Node
		all[i].Up = !p.down
	}
	return all
}

// Do implements [Peers].
func (c *cluster) Do(ctx context.Context, node wlog.NodeID, r *http.Request) (*http.Response, error) {
	p := c.nodes[node-1]
	if p.down {
		return nil, errors.New("the node is away")
	}
	return p.client.Do(r.WithContext(ctx)) //nolint:gosec // its address is the test's
}

// at asks a node as a user.
func (c *cluster) at(node int, user, method, path, body string) *httptest.ResponseRecorder {
	return c.rigs[node].serve(c.rigs[node].request(user, method, path, body))
}

// want asks a node as guest and wants a status.
func (c *cluster) want(node, status int, method, path, body string) *httptest.ResponseRecorder {
	c.t.Helper()
	w := c.at(node, guest, method, path, body)
	if w.Code != status {
		c.t.Fatalf("%s %s at node %d: got %d %s, want %d", method, path, node, w.Code, w.Body, status)
	}
	return w
}

// Objects that live at one node can be read and changed at each.
func TestOwnerAnswers(t *testing.T) {
	c := newCluster(t)
	for vhost, owner := range clusterVHosts {
		path := "/api/queues/" + strings.ReplaceAll(vhost, "/", "%2F") + "/q"
		for node := range c.rigs {
			c.want(node, 201, "PUT", path, `{"durable":true,"arguments":{"x-message-ttl":60000}}`)
			for other := range c.rigs {
				got := c.want(other, 200, "GET", path+"?columns=name,vhost,node,arguments", "").Body.String()
				want := fmt.Sprintf(`{"name":"q","vhost":"%s","arguments":{"x-message-ttl":60000},"node":"curfew@n%d"}`, vhost, owner+1)
				if got != want {
					t.Fatalf("%s at node %d: got %s, want %s", path, other, got, want)
				}
			}
			c.want((node+1)%3, 204, "DELETE", path, "")
			c.want((node+2)%3, 404, "GET", path, "")
		}
	}
	for node := range c.rigs {
		c.want(node, 404, "GET", "/api/queues/none/q", "")
		c.want(node, 404, "GET", "/api/queues/none", "")
	}
}

// A request from outside cannot assert a user, and is not taken for a forwarded one.
func TestOutsideAssertsNothing(t *testing.T) {
	c := newCluster(t)
	q := c.rigs[1].request("-", "GET", "/api/queues/b", "")
	q.Header.Set(userHeader, "guest")
	q.Header.Set(partHeader, "1")
	if w := c.rigs[1].serve(q); w.Code != 401 {
		t.Errorf("got %d %s, want 401", w.Code, w.Body)
	}
	q = c.rigs[1].request(guest, "GET", "/api/queues?page=1&page_size=5", "")
	q.Header.Set(partHeader, "1")
	if w := c.rigs[1].serve(q); !strings.HasPrefix(w.Body.String(), `{"filtered_count":`) || w.Header().Get(totalHeader) != "" {
		t.Errorf("got the part of a list: %s", w.Body)
	}
}

// Logins stay where they are: neither passwords nor cookies reach another node, and the user's rights are looked at there again.
func TestForwardedRequestsHaveNoPassword(t *testing.T) {
	c := newCluster(t)
	var got atomic.Pointer[http.Header]
	c.nodes[1].answer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		header := q.Header.Clone()
		got.Store(&header)
		c.rigs[1].api.Forwarded().ServeHTTP(w, q)
	}))
	q := c.rigs[0].request(guest, "GET", "/api/queues/b", "")
	q.Header.Set("Cookie", "curfew-session-15672=x")
	q.Header.Set("X-Forwarded-For", "10.0.0.1")
	q.Header.Set(userHeader, "somebody")
	if w := c.rigs[0].serve(q); w.Code != 200 {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	seen := *got.Load()
	for _, name := range []string{"Authorization", "Cookie", "X-Forwarded-For"} {
		if seen.Get(name) != "" {
			t.Errorf("the other node got %s", name)
		}
	}
	if got := seen.Get(userHeader); got != "guest" {
		t.Errorf("the other node got the user %q", got)
	}
	for _, r := range c.rigs { // a user that is an administrator at the asking node only
		u, err := r.api.users().Hash("x")
		must(t, err)
		tags := []string{"administrator"}
		if r == c.rigs[1] {
			tags = nil
		}
		_, err = r.api.users().Set(definitionsUser("x", tags, u))
		must(t, err)
	}
	if w := c.at(0, "x:x", "GET", "/api/queues/b", ""); w.Code != 401 {
		t.Errorf("got %d %s, want 401 of the owner", w.Code, w.Body)
	}
}

// A client that adds a vhost may use it at once, also before its owner has created it.
func TestRequestsWaitForTheirVHost(t *testing.T) {
	c := newCluster(t)
	for node := range c.rigs {
		for _, ask := range []func(){
			func() { c.want(node, 201, "PUT", "/api/queues/b/q", `{"durable":true}`) },
			func() { c.want(node, 200, "GET", "/api/vhosts/b", "") },
		} {
			c.awaited = nil
			must(t, func() error { _, err := c.rigs[1].api.Store.DeleteVHost("b"); return err }())
			c.assign("b", 1)
			c.awaited = func(string) { c.place("b", 1) }
			ask()
		}
	}
}

// A client that adds a vhost at one node may use it at once at another, which does not know it yet.
func TestANodeAsksForAVHostThatItHasNotHeardOf(t *testing.T) {
	for node := range 3 {
		c := newCluster(t)
		c.news = func() { c.mu.Unlock(); defer c.mu.Lock(); c.news = nil; c.place("new", 1) }
		c.want(node, 201, "PUT", "/api/queues/new/q", `{"durable":true}`)
		c.want(node, 404, "PUT", "/api/queues/none/q", `{"durable":true}`)
	}
}

// A request that reaches a vhost, or the registry, while it moves to another node is carried out there, once. It was refused with 503, for
// instance when a script set up users just after the start of a cluster, which then hands over the registry to the node with the least work.
func TestRequestsFollowWhatMoves(t *testing.T) {
	const queue = `{"durable":true,"arguments":{"x-message-ttl":60000}}`
	for node := range 3 {
		t.Run(fmt.Sprintf("vhost, asked at node %d", node), func(t *testing.T) {
			c := newCluster(t)
			v, _ := c.rigs[1].api.Store.VHost("b")
			v.Move("it moves")
			var asked atomic.Int32
			var arrive sync.Once
			c.located = func(vhost string) {
				if vhost != "b" || asked.Add(1) < 10 {
					return
				}
				arrive.Do(func() { c.arrive("b", 2) })
			}
			c.want(node, 201, "PUT", "/api/queues/b/q", queue)
			c.located = nil
			c.want(2, 204, "PUT", "/api/queues/b/q", queue) // with all arguments
		})
	}
	for _, node := range []int{0, 2} {
		t.Run(fmt.Sprintf("registry, asked at node %d", node), func(t *testing.T) {
			c := newCluster(t)
			c.mu.Lock()
			c.registrar = c.nodes[1].ID
			c.mu.Unlock()
			refused := 0
			c.nodes[1].answer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if refused++; refused > 1 {
					c.mu.Lock()
					c.registrar = c.nodes[2].ID
					c.mu.Unlock()
				}
				(&request{caller: caller{api: c.rigs[1].api, w: w, r: r}, forwarded: true}).refuse(errElsewhere)
			}))
			c.want(node, 201, "PUT", "/api/users/u", `{"password":"secret","tags":"monitoring"}`)
			if refused != 2 {
				t.Errorf("node 1 was asked %d times", refused)
			}
			w := c.want(2, 200, "GET", "/api/users/u", "")
			if !strings.Contains(w.Body.String(), `"monitoring"`) {
				t.Errorf("the user is %s", w.Body)
			}
		})
	}
}

// The owner of a vhost shows it to an administrator without rights there, and does not ask the registry each time: pages ask again and again.
func TestLooksDoNotAskTheRegistry(t *testing.T) {
	c := newCluster(t)
	users := c.rigs[1].api.users()
	hash, err := users.Hash("p")
	must(t, err)
	_, err = users.Set(definitionsUser("a", []string{"administrator"}, hash))
	must(t, err)
	if w := c.at(1, "a:p", "GET", "/api/queues/b", ""); w.Code != 200 || c.freshened > 0 {
		t.Errorf("got %d %s, and the registry was asked %d times", w.Code, w.Body, c.freshened)
	}
}

// While a vhost has no owner, requests for it are refused by its name, and other requests are answered.
func TestNobodyOwns(t *testing.T) {
	c := newCluster(t)
	for _, r := range c.rigs {
		r.api.EndStreams() // so that no request waits for an owner
	}
	must(t, func() error { _, err := c.rigs[1].api.Store.DeleteVHost("b"); return err }())
	for node := range c.rigs {
		c.mu.Lock()
		c.owners["b"], c.registrar = 0, 0
		c.mu.Unlock()
		if node == 1 {
			c.mu.Lock()
			c.owners["b"] = 2 // it owns a vhost that it does not have
			c.mu.Unlock()
		}
		w := c.want(node, 503, "GET", "/api/queues/b/q", "")
		if !strings.Contains(w.Body.String(), `{"error":"no_owner","reason":"vhost 'b' has no owner now`) || w.Header().Get("Retry-After") != "1" {
			t.Errorf("got %s", w.Body)
		}
		w = c.want(node, 503, "PUT", "/api/users/u", `{"password":"p","tags":""}`)
		if !strings.Contains(w.Body.String(), "the registry has no owner now") {
			t.Errorf("got %s", w.Body)
		}
		w = c.want(node, 200, "GET", "/api/users", "")
		if w.Header().Get(staleHeader) != "registry" {
			t.Error("the list of users is not marked as stale")
		}
		c.want(node, 200, "GET", "/api/queues/c", "")
		w = c.want(node, 200, "GET", "/api/vhosts?columns=name,cluster_state", "")
		if !strings.Contains(w.Body.String(), `{"name":"b","cluster_state":{"curfew@n`) || !strings.Contains(w.Body.String(), `"stopped"}`) {
			t.Errorf("got %s", w.Body)
		}
	}
}

// Users are changed at the registry's owner. The node that was asked waits until it knows of the change.
func TestRegistryIsWrittenByItsOwner(t *testing.T) {
	c := newCluster(t)
	c.registrar = 3
	for node := range c.rigs {
		c.want(node, 201, "PUT", fmt.Sprintf("/api/users/u%d", node), `{"password":"p","tags":"monitoring"}`)
		c.want(2, 200, "GET", fmt.Sprintf("/api/users/u%d", node), "")
		c.want(node, 201, "PUT", fmt.Sprintf("/api/global-parameters/p%d", node), `{"value":1}`)
		c.want(2, 200, "GET", fmt.Sprintf("/api/global-parameters/p%d", node), "")
		c.want(node, 400, "PUT", "/api/users/bad", `{"password":5}`)
	}
	if c.freshened != 6 {
		t.Errorf("two nodes that forwarded three requests each have freshened their copies %d times", c.freshened)
	}
	c.stale = errors.New("no majority")
	if w := c.want(0, 204, "PUT", "/api/users/u0", `{"password":"p","tags":"monitoring"}`); w.Header().Get(staleHeader) != "registry" {
		t.Error("an answer before this node knows of the change is not marked")
	}
}

// A right that was given a moment ago at the node that is asked holds at the vhost's owner, too, which does not know of it yet.
func TestRightIsNewToTheOwner(t *testing.T) {
	c := newCluster(t)
	owner := c.rigs[1].api.users()
	_, err := owner.ClearPermissions("guest", "b")
	must(t, err)
	c.want(0, 401, "PUT", "/api/queues/b/none", `{"durable":true}`)
	c.news = func() {
		_, err := owner.SetPermissions(definitions.AllPermissions("guest", "b"))
		must(t, err)
	}
	c.want(0, 201, "PUT", "/api/queues/b/new", `{"durable":true}`)
}

// A right that was given a moment ago at another node holds at the node that is asked, which owns the vhost and does not know of it yet.
func TestRightIsNewToTheAskedNode(t *testing.T) {
	for _, tag := range []string{"administrator", "management"} {
		t.Run(tag, func(t *testing.T) {
			c := newCluster(t)
			users := c.rigs[1].api.users()
			hash, err := users.Hash("p")
			must(t, err)
			_, err = users.Set(definitionsUser("u", []string{tag}, hash))
			must(t, err)
			put := func(queue string) int { return c.at(1, "u:p", "PUT", "/api/queues/b/"+queue, `{"durable":true}`).Code }
			if code := put("none"); code != 401 {
				t.Errorf("without the right: got %d", code)
			}
			c.news = func() {
				_, err := users.SetPermissions(definitions.AllPermissions("u", "b"))
				must(t, err)
			}
			if code := put("new"); code != 201 {
				t.Errorf("with a new right: got %d", code)
			}
		})
	}
}

// A login that fails asks the registry once if the password was checked, because such checks are limited. Other failed logins, which are
// not limited, do not ask.
func TestFailedLoginsAsk(t *testing.T) {
	c := newCluster(t)
	for _, tc := range []struct {
		user string
		asks int
	}{{"guest:wrong", 1}, {"nobody:x", 1}, {"guest:", 0}, {"nobody:", 0}, {"-", 0}} {
		c.freshened = 0
		if w := c.at(0, tc.user, "GET", "/api/whoami", ""); w.Code != 401 || c.freshened != tc.asks {
			t.Errorf("%s: got %d, and the registry was asked %d times, want %d", tc.user, w.Code, c.freshened, tc.asks)
		}
	}
}

// shifting are placements that change between two looks at a vhost.
type shifting struct {
	Placements
	looks  int
	change func()
}

// OwnerOf implements [Placements].
func (s *shifting) OwnerOf(vhost string) (wlog.NodeID, bool) {
	if s.looks++; s.looks == 2 {
		s.change()
	}
	return s.Placements.OwnerOf(vhost)
}

// A vhost may come to this node, or be deleted, while a request for it is looked at.
func TestVHostShiftsUnderRequest(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(c *cluster)
		status int
	}{
		{"comes", func(c *cluster) { c.place("b", 0) }, 200},
		{"goes", func(c *cluster) {
			_, err := c.rigs[1].api.Store.DeleteVHost("b")
			must(c.t, err)
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.owners, "b")
		}, 404},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCluster(t)
			c.rigs[0].api.nodes.placements = &shifting{Placements: c.rigs[0].api.nodes.placements, change: func() { tc.change(c) }}
			c.want(0, tc.status, "GET", "/api/exchanges/b/amq.direct", "")
		})
	}
}

// Each endpoint says which nodes answer in a cluster.
func TestEveryEndpointHasAScope(t *testing.T) {
	for _, rt := range (&API{}).routes() {
		for _, e := range rt.endpoints {
			switch {
			case e.at.answer == nil:
				t.Errorf("%s %s has no scope", e.method, rt.path)
			case strings.Contains(rt.path, "{vhost}") && e.at.name == here.name && rt.path != "vhosts/{vhost}/start/{node}":
				t.Errorf("%s %s names a vhost, and whoever is asked answers", e.method, rt.path)
			case e.method != "GET" && e.at.name == copied.name:
				t.Errorf("%s %s changes a copy of the registry", e.method, rt.path)
			}
		}
	}
}
