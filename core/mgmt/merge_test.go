package mgmt

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// population is requests that fill vhosts, the same for a cluster and for a broker that has all.
func population(rng *rand.Rand) (all [][3]string) {
	add := func(method, path, body string) { all = append(all, [3]string{method, path, body}) }
	for vhost := range clusterVHosts {
		in := url.PathEscape(vhost)
		for i := range 3 + rng.IntN(6) {
			name := fmt.Sprintf("%s-%d", []string{"orders", "Mails", "x"}[rng.IntN(3)], i)
			add("PUT", "/api/queues/"+in+"/"+name, fmt.Sprintf(`{"durable":%v,"arguments":{"x-max-length":%d}}`, rng.IntN(2) == 0, rng.IntN(3)+10))
			for range rng.IntN(4) {
				add("POST", "/api/exchanges/"+in+"/amq.default/publish", fmt.Sprintf(`{"properties":{},"routing_key":"%s","payload":"p","payload_encoding":"string"}`, name))
			}
			if rng.IntN(2) == 0 {
				add("POST", "/api/bindings/"+in+"/e/amq.topic/q/"+name, fmt.Sprintf(`{"routing_key":"k%d"}`, rng.IntN(3)))
			}
		}
		add("PUT", "/api/exchanges/"+in+"/own", `{"type":"fanout"}`)
		add("PUT", "/api/policies/"+in+"/p", fmt.Sprintf(`{"pattern":"^o","definition":{"max-length":%d}}`, rng.IntN(100)))
		add("PUT", "/api/operator-policies/"+in+"/o", `{"pattern":"^m","definition":{"max-length":7}}`)
		add("PUT", "/api/vhost-limits/"+in+"/max-queues", `{"value":50}`)
	}
	return all
}

var nodeNames = regexp.MustCompile(`curfew@(n[123]|test)|"(oldest_message_age|port)":\d+`)

// sameFor returns an answer without the parts that differ at another node.
func sameFor(code int, body string) string {
	return fmt.Sprint(code, " ", nodeNames.ReplaceAllString(body, "N"))
}

// comparison is a cluster, and a broker that has all that the cluster has.
type comparison struct {
	*cluster
	single *rig
}

// newComparison returns both, filled with the same.
func newComparison(t *testing.T, seed uint64, change ...func(*Options)) *comparison {
	t.Helper()
	c := &comparison{newCluster(t, change...), newRig(t, change...)}
	for vhost := range clusterVHosts {
		if vhost != "/" {
			c.single.do(201, "PUT", "/api/vhosts/"+url.PathEscape(vhost), "")
		}
	}
	rng := rand.New(rand.NewPCG(seed, 18))
	for _, q := range population(rng) {
		w, own := c.at(rng.IntN(3), guest, q[0], q[1], q[2]), c.single.serve(c.single.request(guest, q[0], q[1], q[2]))
		if w.Code != own.Code || w.Code >= 300 {
			t.Fatalf("%v: got %d %s of the cluster, %d %s of the broker", q, w.Code, w.Body, own.Code, own.Body)
		}
	}
	return c
}

// same asks every node and the single broker, and wants the same answer of all.
func (c *comparison) same(path string) {
	c.t.Helper()
	own := c.single.serve(c.single.request(guest, "GET", path, ""))
	want := sameFor(own.Code, own.Body.String())
	for node := range c.rigs {
		w := c.at(node, guest, "GET", path, "")
		if got := sameFor(w.Code, w.Body.String()); got != want {
			c.t.Errorf("%s at node %d: got\n%s\nwant\n%s", path, node, got, want)
		}
	}
}

// Every list, asked for at any node, is as in a broker that has all vhosts, in its order, with its pages and totals.
func TestMergedLists(t *testing.T) {
	c := newComparison(t, 1)
	for i, r := range c.rigs {
		r.api.nodes.deep = []int{1, 7, deepPage}[i] // pages behind these are put together in two steps
	}
	rng := rand.New(rand.NewPCG(2, 18))
	lists := []string{"queues", "exchanges", "bindings", "policies", "operator-policies", "parameters", "parameters/vhost-limits", "vhost-limits", "vhosts", "consumers", "redrives", "connections", "channels"}
	sorts := []string{"name", "vhost", "messages", "node", "durable", "arguments.x-max-length", "source", "value.max-queues", "next_deadline", "nothing", "type", "message_stats.publish"}
	for i := range 400 {
		path := "/api/" + lists[i%len(lists)]
		if i >= len(lists) {
			q := url.Values{}
			if rng.IntN(2) == 0 {
				q.Set("sort", sorts[rng.IntN(len(sorts))])
			}
			if rng.IntN(2) == 0 {
				q.Set("sort_reverse", "true")
			}
			if rng.IntN(3) == 0 {
				q.Set("columns", []string{"name", "name,messages", "vhost", "arguments", "destination,routing_key"}[rng.IntN(5)])
			}
			if rng.IntN(3) > 0 {
				q.Set("page", strconv.Itoa(1+rng.IntN(4)))
				q.Set("page_size", strconv.Itoa(1+rng.IntN(12)))
				if rng.IntN(2) == 0 {
					q.Set("name", []string{"m", "O", "zz", "s-1"}[rng.IntN(4)])
				}
			}
			path += "?" + q.Encode()
		}
		c.same(path)
	}
}

// Each path gives the same at every node as in a broker that has all.
func TestEachNodeAnswersTheSame(t *testing.T) {
	c := newComparison(t, 3)
	for _, path := range []string{
		"/api/overview?columns=object_totals,queue_totals.messages,message_stats.publish,churn_rates.queue_created,exchange_types",
		"/api/overview?disable_stats=true&columns=rabbitmq_version,object_totals", "/api/vhosts?columns=name,messages,message_stats.publish", "/api/vhosts/b?columns=name,messages",
		"/api/users?columns=name,tags", "/api/whoami", "/api/definitions/b", "/api/queues/b", "/api/queues/none", "/api/vhosts/none", "/api/queues/b/none", "/api/connections/none", "/api/redrives/none",
		"/api/aliveness-test/c", "/api/deadlines/c?columns=never,overdue", "/api/deadlines?columns=complete,never,overdue,held,earliest,buckets",
		"/api/policy-use", "/api/policy-use?vhost=b", "/api/policy-use?vhost=none", "/api/events/remembered", "/api/expiry-strategies?columns=name,queues", "/api/health/checks/alarms", "/api/health/checks/virtual-hosts", "/api/nodes/none",
		"/api/queues?page=9999999999999&page_size=500", "/api/queues?page=0", "/api/queues?sort=name&columns=" + strings.Repeat("a,", 300), "/api/vhost-limits/a", "/api/parameters/vhost-limits/a", "/api/global-parameters",
	} {
		c.same(path)
	}
	for node := range c.rigs {
		w := c.want(node, 200, "GET", "/api/nodes?columns=name,running", "")
		if want := `[{"name":"curfew@n1","running":true},{"name":"curfew@n2","running":true},{"name":"curfew@n3","running":true}]`; w.Body.String() != want {
			t.Errorf("got %s, want %s", w.Body, want)
		}
		for other := range c.rigs {
			w := c.want(node, 200, "GET", fmt.Sprintf("/api/nodes/curfew@n%d?columns=name", other+1), "")
			if want := fmt.Sprintf(`{"name":"curfew@n%d"}`, other+1); w.Body.String() != want {
				t.Errorf("got %s, want %s", w.Body, want)
			}
		}
	}
}

// Definitions exported from a cluster are as from a broker that has all vhosts, and can be imported into another cluster through any node.
func TestDefinitionsOfClusters(t *testing.T) {
	c := newComparison(t, 7)
	export := func(node int) string {
		return nodeNames.ReplaceAllString(c.want(node, 200, "GET", "/api/definitions", "").Body.String(), "N")
	}
	without := regexp.MustCompile(`"users":\[.*?\],"vhosts"|"permissions":\[.*?\],"topic`) // they are copied by the registry, which tests have not
	want := without.ReplaceAllString(nodeNames.ReplaceAllString(c.single.do(200, "GET", "/api/definitions", ""), "N"), "")
	for node := range c.rigs {
		if got := without.ReplaceAllString(export(node), ""); got != want {
			t.Errorf("node %d: got\n%s\nwant\n%s", node, got, want)
		}
	}
	file := without.ReplaceAllStringFunc(export(0), func(s string) string {
		return map[bool]string{true: `"vhosts"`, false: `"topic`}[strings.HasSuffix(s, `"vhosts"`)]
	})
	file = strings.ReplaceAll(file, `"vhost":"d"`, `"vhost":"new"`)
	file = regexp.MustCompile(`"vhosts":\[.*?\],"global`).ReplaceAllString(file, `"vhosts":[{"name":"new"}],"global`) // the others exist, which only a registry knows
	other := newCluster(t)
	for node := range other.rigs {
		other.want(node, 204, "POST", "/api/definitions", file)
	}
	if _, there := other.rigs[0].api.Store.VHost("new"); !there {
		t.Error("the vhost that is new is not at the registry's owner")
	}
	for node := range other.rigs {
		got := other.want(node, 200, "GET", "/api/queues?columns=name,vhost", "").Body.String()
		if want := strings.ReplaceAll(c.single.do(200, "GET", "/api/queues?columns=name,vhost", ""), `"vhost":"d"`, `"vhost":"new"`); sortedJSON(got) != sortedJSON(want) {
			t.Errorf("node %d: got\n%s\nwant\n%s", node, got, want)
		}
	}
	for _, refused := range []string{
		`{"vhosts":[{"name":"other"}],"queues":[{"vhost":"c","name":"kept","durable":true},{"vhost":"b","name":"","durable":true}]}`,
		`{"vhosts":[{"name":"other"}],"queues":[{"vhost":"c","name":"kept","durable":true},{"vhost":"none","name":"q","durable":true}]}`,
		`{"vhosts":[{"name":"other"}],"queues":[{"vhost":"c","name":"kept"}],"exchanges":[{"vhost":"b","name":"x","type":"none"}]}`,
		`{"vhosts":[{"name":"other"}],"policies":[{"vhost":"b","name":"p","pattern":"(","definition":{"max-length":1}}]}`,
		`{"queues":[`, `[]`, `{"queues":5}`,
	} {
		own := c.single.serve(c.single.request(guest, "POST", "/api/definitions", refused))
		for node := range other.rigs {
			if w := other.at(node, guest, "POST", "/api/definitions", refused); w.Code != own.Code || w.Body.String() != own.Body.String() || w.Code != 400 {
				t.Errorf("%s at node %d: got %d %s, want %d %s", refused, node, w.Code, w.Body, own.Code, own.Body)
			}
		}
	}
	other.want(1, 404, "GET", "/api/queues/c/kept", "")
	other.want(1, 404, "GET", "/api/vhosts/other", "")
	for node := range other.rigs {
		other.want(node, 204, "POST", "/api/definitions/b", fmt.Sprintf(`{"queues":[{"name":"into-%d","durable":true}]}`, node))
		other.want(2, 200, "GET", fmt.Sprintf("/api/queues/b/into-%d", node), "")
	}
	other.nodes[1].down = true
	other.want(0, 503, "GET", "/api/definitions", "")
	other.want(0, 503, "POST", "/api/definitions", `{"queues":[{"vhost":"c","name":"kept"},{"vhost":"b","name":"q"}]}`)
	other.want(0, 404, "GET", "/api/queues/c/kept", "")
}

// sortedJSON returns the objects of a list in a fixed order.
func sortedJSON(list string) string {
	all := strings.Split(strings.Trim(list, "[]"), "},")
	slices.Sort(all)
	return strings.ReplaceAll(strings.Join(all, ""), "}", "")
}

// The answer has the parts of the good nodes, and names the others, whatever these send.
func TestHostilePeers(t *testing.T) {
	stuck := make(chan struct{})
	c := newCluster(t)
	t.Cleanup(func() { close(stuck) })
	for vhost := range clusterVHosts {
		c.want(0, 201, "PUT", "/api/queues/"+url.PathEscape(vhost)+"/q", "")
	}
	text := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(filteredHeader, "-5")
			w.Header().Set(totalHeader, "99999999999999999999")
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	for name, handle := range map[string]http.HandlerFunc{
		"no JSON": text(200, `<html>`), "half an answer": text(200, `[{"name":"q","vhost":"b"`), "an object": text(200, `{"name":"q"}`), "numbers": text(200, `[1,2]`),
		"a deep one": text(200, strings.Repeat("[", 100000)), "nothing": text(200, ""), "a fault": text(500, `[]`), "a redirection": text(302, ""), "refusal": text(401, `{"error":"not_authorized"}`),
		"status 99": text(999, "[]"),
		"a broken connection": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(`[{"name":"q","vhost":"b"}`))
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.nodes[1].answer(handle)
			w := c.want(0, 200, "GET", "/api/queues?columns=name,vhost", "")
			if got, want := w.Body.String(), `[{"name":"q","vhost":"/"},{"name":"q","vhost":"a"},{"name":"q","vhost":"c"}]`; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			if got := w.Header().Get(unreachableHeader); got != "curfew@n2" {
				t.Errorf("the answer is marked with %q", got)
			}
			w = c.want(0, 200, "GET", "/api/queues?page=1&columns=vhost", "")
			if got := w.Body.String(); !strings.Contains(got, `"unreachable_nodes":["curfew@n2"]`) || !strings.Contains(got, `"total_count":3`) {
				t.Errorf("got %s", got)
			}
			w = c.want(0, 200, "GET", "/api/overview?columns=object_totals.queues,unreachable_nodes", "")
			if got := w.Body.String(); got != `{"object_totals":{"queues":3},"unreachable_nodes":["curfew@n2"]}` && name != "an object" {
				t.Errorf("got %s", got)
			}
			w = c.want(0, 200, "GET", "/api/nodes?columns=name,running", "")
			if got := w.Body.String(); !strings.Contains(got, `{"name":"curfew@n2","running":false}`) {
				t.Errorf("got %s", got)
			}
		})
	}
	c.nodes[1].answer(nil)
	c.nodes[1].down = true
	c.want(0, 503, "GET", "/api/queues/b/q", "")
	c.want(0, 503, "GET", "/api/connections/none", "")
	c.want(0, 503, "DELETE", "/api/connections/username/guest", "")
	c.want(0, 404, "GET", "/api/queues/a/none", "")
	w := c.want(0, 200, "GET", "/api/queues?columns=vhost", "")
	if got := w.Header().Get(unreachableHeader); got != "curfew@n2" {
		t.Errorf("the answer is marked with %q", got)
	}
}

// A node that is slow holds a list up for five seconds, and no longer.
func TestSlowPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		for _, r := range c.rigs {
			must(t, r.api.AMQP.Suspend(false)) // time would not pass while it listens
		}
		c.nodes[1].answer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() }))
		began := time.Now()
		w := c.want(0, 200, "GET", "/api/vhosts?columns=name", "")
		if got := w.Body.String(); got != `[{"name":"/"},{"name":"a"},{"name":"b"},{"name":"c"},{"name":"d"}]` {
			t.Errorf("got %s", got)
		}
		if took := time.Since(began); took != partTime {
			t.Errorf("the node had %s, and not %s", took, partTime)
		}
	})
}
