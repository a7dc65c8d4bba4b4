package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/campaign"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
)

// tenantry is clients that add and delete vhosts, one client for each name, and use them.
type tenantry struct {
	t       *testing.T
	team    *team
	stop    chan struct{}
	working sync.WaitGroup
	turn    chan struct{} // has one value: clients take turns, because simulated time stands still while one waits for another's mutex

	mu    sync.Mutex // guards the rest
	steps int
}

// known is what a client knows of its vhost.
type known struct {
	name    string
	state   string          // "added", "deleted", or "" if the client was not told
	queues  map[string]bool // false means that it may be there or not
	through wlog.Index      // of the registry, that has the last change
	next    int
}

// registrar returns the node that owns the registry, nil if none is known to.
func (c *tenantry) registrar() *member {
	for _, n := range c.team.nodes {
		if n.Registry().Owned() {
			return n
		}
	}
	return nil
}

// change adds the vhost, or deletes it.
func (c *tenantry) change(k *known, add bool) error {
	n := c.registrar()
	if n == nil {
		return wlog.ErrNoOwner
	}
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	was := k.state
	k.state = ""
	if !add {
		existed, err := n.DeleteVHost(k.name)
		if err == nil && (was == "added" && !existed || was == "deleted" && existed) {
			c.t.Errorf("vhost %s was %s; deleted, it existed: %v", k.name, was, existed)
		}
		if err == nil {
			k.state, k.through, k.queues = "deleted", n.Registry().Applied(), map[string]bool{}
		}
		return err
	}
	created, err := n.AddVHost(k.name, vhost.Metadata{})
	if err == nil && (was == "added" && created || was == "deleted" && !created) {
		c.t.Errorf("vhost %s was %s; added, it is new: %v", k.name, was, created)
	}
	if err != nil {
		return err
	}
	k.through = n.Registry().Applied()
	if created {
		k.queues = map[string]bool{}
	}
	if created || was == "added" {
		k.state = "added"
	}
	return nil
}

// use declares a queue, and checks which there are, at a node that serves the vhost.
func (c *tenantry) use(k *known, n *member) error {
	if n.Registry().Applied() < k.through {
		return nil
	}
	h, exists := n.Home(k.name)
	if !exists {
		c.t.Errorf("node %d knows no vhost %s", n.ID(), k.name)
	}
	v, here := n.VHost(k.name)
	if !h.Here || !here {
		return nil
	}
	if missing := k.missing(v); missing != "" && v.AddConnection(1, "user", func(string) {}) == nil { // it has not moved
		v.RemoveConnection(1)
		c.t.Errorf("vhost %s: %s", k.name, missing)
	}
	k.next++
	name := fmt.Sprint("q", k.next)
	k.queues[name] = false
	_, err := v.DeclareQueue(vhost.QueueDeclare{Name: name, Durable: true})
	if err == nil {
		k.queues[name] = true
	}
	return err
}

// missing says which queues should be there, or should not; "" = none.
func (k *known) missing(v *vhost.VHost) string {
	var are []string
	for _, q := range v.Queues() {
		name := q.Config().Name
		if _, may := k.queues[name]; !may {
			return "has the queue " + name + " of an earlier one"
		}
		are = append(are, name)
	}
	for name, must := range k.queues {
		if must && !slices.Contains(are, name) {
			return "has lost the queue " + name
		}
	}
	return ""
}

func (c *tenantry) work(name string, seed uint64) *known {
	k := &known{name: name, queues: map[string]bool{}}
	r := rand.New(rand.NewPCG(seed, uint64(name[0])))
	c.working.Go(func() {
		for {
			select {
			case <-c.stop:
				return
			case <-time.After(time.Duration(r.IntN(4000)) * time.Microsecond):
			}
			var err error
			switch n := r.IntN(10); {
			case k.state != "added" || n == 0:
				err = c.change(k, k.state != "deleted" && n%2 == 0 || k.state == "deleted")
			case n == 1:
				err = c.change(k, false)
			default:
				err = c.use(k, c.team.nodes[n%len(c.team.nodes)])
			}
			if err != nil && !errors.Is(err, wlog.ErrNotOwner) && !errors.Is(err, wlog.ErrNoOwner) && !errors.Is(err, wlog.ErrLost) {
				c.t.Errorf("vhost %s: %v", name, err)
			}
			if err == nil {
				c.mu.Lock()
				c.steps++
				c.mu.Unlock()
			}
		}
	})
	return k
}

func (c *tenantry) unrest(r *rand.Rand) {
	for {
		select {
		case <-c.stop:
			return
		case <-time.After(time.Duration(r.IntN(100)) * time.Millisecond):
		}
		for _, n := range c.team.nodes {
			n.SetLag(time.Duration(max(0, r.IntN(20)-10)) * time.Millisecond)
			n.SetStalled(r.IntN(4) == 0)
		}
		c.team.storage.SetOwner(uint32(r.IntN(3)), wlog.NodeID(r.IntN(len(c.team.nodes)+1)))
	}
}

// Vhosts are added and deleted while the registry and their shards change owners, and nodes' copies of the registry lag behind. A vhost
// that was added is there, with all that was declared in it since, and nothing from before.
func TestCampaignPlacementModel(t *testing.T) {
	for seed := range campaign.Size(t, "SIMULATION_SEEDS", 1, 2) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { placementModel(t, seed) })
		})
	}
}

func placementModel(t *testing.T, seed uint64) {
	t.Helper()
	m := newTeam(t, 3, withRegistry)
	for shard := range uint32(3) {
		m.own(shard, m.nodes[shard])
	}
	time.Sleep(time.Second)
	c := &tenantry{t: t, team: m, stop: make(chan struct{}), turn: make(chan struct{}, 1)}
	var all []*known
	for _, name := range []string{"a", "b", "c", "d"} {
		all = append(all, c.work(name, seed))
	}
	c.working.Go(func() { c.unrest(rand.New(rand.NewPCG(seed, 2))) })
	time.Sleep(10 * time.Second / fewer)
	close(c.stop)
	c.working.Wait()
	for _, n := range m.nodes {
		n.SetLag(0)
		n.SetStalled(false)
	}
	for shard := range uint32(3) {
		m.own(shard, m.nodes[shard])
	}
	time.Sleep(5 * time.Second)
	for _, k := range all {
		c.checkAt(k)
	}
	if c.steps < 100 {
		t.Errorf("only %d steps succeeded", c.steps)
	}
	for _, n := range m.nodes {
		for _, v := range n.VHosts() {
			if _, placed := m.nodes[0].Home(v.Name()); !placed {
				t.Errorf("node %d still serves the vhost %s", n.ID(), v.Name())
			}
		}
	}
	m.close()
}

// checkAt checks a vhost when everything is quiet.
func (c *tenantry) checkAt(k *known) {
	c.t.Helper()
	h, exists := c.team.nodes[0].Home(k.name)
	if k.state == "added" && !exists || k.state == "deleted" && exists {
		c.t.Errorf("vhost %s was %s, and exists: %v", k.name, k.state, exists)
	}
	if !exists {
		return
	}
	v, here := c.team.nodes[h.Owner-1].VHost(k.name)
	if !here {
		c.t.Errorf("vhost %s is not served by node %d", k.name, h.Owner)
		return
	}
	if missing := k.missing(v); k.state == "added" && missing != "" {
		c.t.Errorf("vhost %s: %s", k.name, missing)
	}
}
