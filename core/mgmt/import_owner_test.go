package mgmt

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/mgmt/definitions"
	"github.com/curfewmq/curfew/core/vhost"
)

// An import does not pass over a vhost whose owner does not serve it yet, because it is reading its log: it changes nothing.
func TestImportIntoAVHostThatIsNotServedYet(t *testing.T) {
	c := newCluster(t)
	c.mu.Lock()
	c.owners["x"] = c.nodes[1].ID
	c.mu.Unlock()
	const file = `{"users":[{"name":"new","password":"p","tags":""}],"queues":[{"name":"q","vhost":"x","durable":true}]}`
	if w := c.want(0, 503, "POST", "/api/definitions", file); !strings.Contains(w.Body.String(), "vhost 'x'") {
		t.Errorf("got %s", w.Body)
	}
	c.want(0, 404, "GET", "/api/users/new", "")
	c.place("x", 1)
	c.want(0, 204, "POST", "/api/definitions", file)
	c.want(0, 200, "GET", "/api/queues/x/q", "")
}

// Each step of an import gets the whole file. Only the one that makes users hashes their passwords, which takes a tenth of a second each.
func TestAnImportHashesAPasswordOnce(t *testing.T) {
	c := newCluster(t)
	var hashed atomic.Int32
	for i := range c.rigs {
		users := c.rigs[i].api.Store.Users()
		c.rigs[i].api.definitions.files.Hash = func(password string) (auth.Hash, error) {
			hashed.Add(1)
			return users.Hash(password)
		}
	}
	c.want(1, 204, "POST", "/api/definitions", `{"users":[{"name":"new","password":"p","tags":""}],"vhosts":[{"name":"b"}],"queues":[
		{"name":"q","vhost":"b","durable":true}, {"name":"q","vhost":"/","durable":true}]}`)
	if n := hashed.Load(); n != 1 {
		t.Errorf("the password was hashed %d times, want once", n)
	}
}

// A vhost that its owner stops serving between the check and the step that makes its queues gets them once it is served again.
func TestImportIntoAVHostThatPauses(t *testing.T) {
	c := newCluster(t)
	applied := 0
	c.nodes[1].answer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get(stepHeader) == string(definitions.ApplyVHosts) {
			store := c.rigs[1].api.Store
			var err error
			if applied++; applied == 1 {
				_, err = store.DeleteVHost("b")
			} else {
				_, err = store.AddVHost("b", vhost.Metadata{})
			}
			must(t, err)
		}
		c.rigs[1].api.Forwarded().ServeHTTP(w, q)
	}))
	c.want(0, 204, "POST", "/api/definitions", `{"queues":[{"name":"q","vhost":"b","durable":true}]}`)
	c.nodes[1].answer(nil)
	if _, ok := c.rigs[1].api.Store.VHost("b"); !ok || applied != 2 {
		t.Fatalf("the step was done %d times", applied)
	}
	c.want(1, 200, "GET", "/api/queues/b/q", "")
}
