package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/curfewmq/curfew/core/campaign"
	"github.com/curfewmq/curfew/tests/process"
)

// thingInput is what a client does with a thing, and thingOutput what it learns.
type (
	thingInput struct {
		path string // of the management API
		does byte   // + makes it, - removes it, ! finds that it is not there
	}
	thingOutput struct {
		was     bool // it was there
		silent  bool // it is done, and nobody knows whether there was something to do
		unknown bool // nobody knows whether it was done at all
	}
)

// thingModel is things that are there or not: each answer says what was so before, so that both of two that follow one another are
// compare-and-set.
var thingModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		byPath := map[string][]porcupine.Operation{}
		for _, o := range history {
			path := o.Input.(thingInput).path
			byPath[path] = append(byPath[path], o)
		}
		for _, part := range byPath {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return false },
	Step: func(state, input, output any) (bool, any) {
		in, out := input.(thingInput), output.(thingOutput)
		if in.does == '!' {
			return state == false, state
		}
		return out.unknown || out.silent || out.was == state, in.does == '+'
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v: %+v", input, output) },
}

// inquiry is clients that use the nodes of a cluster as one broker, and what they have learned.
type inquiry struct {
	*Cluster
	began time.Time

	mu  sync.Mutex // guards what follows
	all []porcupine.Operation
}

// What clients learn at different nodes is what they would from one broker, while nodes are killed, stopped and cut off: who made a user, a
// vhost or a durable queue, who removed it, and that a user cannot log in because it is gone. LINEAR_ROUNDS says how many things happen to nodes; LINEAR_SEED repeats a run, as
// far as a seed decides.
func TestCampaignNodesAnswerAsOne(t *testing.T) {
	t.Parallel()
	rounds, seed := campaign.Size(t, "LINEAR_ROUNDS", 0, 4), campaign.Number(t, "LINEAR_SEED", rand.Uint64()>>16)
	t.Logf("LINEAR_SEED=%d", seed)
	q := &inquiry{Cluster: Start(t, "limits: {heartbeat: 0s}"), began: time.Now()}
	r := rand.New(rand.NewPCG(seed, 0))
	operations, unknown := 0, 0
	for round := range int(rounds) {
		q.all = nil
		does := q.play(round, r)
		for _, o := range q.all {
			if o.Output.(thingOutput).unknown {
				unknown++
			}
		}
		operations += len(q.all)
		switch got := porcupine.CheckOperationsTimeout(thingModel, q.all, 20*time.Second); got {
		case porcupine.Illegal:
			t.Fatalf("round %d (%s): no single broker would have answered so:\n%s", round, does, q.story())
		default:
			t.Logf("round %d: %s: %d operations: %s", round, does, len(q.all), got)
		}
	}
	t.Logf("%d operations, of which %d may have happened", operations, unknown)
	if operations == unknown {
		t.Error("nobody has learned anything")
	}
}

// play has clients at work while something happens to a node, and returns what. Things have other names in each round.
func (q *inquiry) play(round int, r *rand.Rand) (does string) {
	q.t.Helper()
	ctx, cancel := context.WithCancel(q.t.Context())
	var clients sync.WaitGroup
	addresses := make([]string, len(q.Nodes))
	for i, n := range q.Nodes {
		addresses[i] = n.Management
	}
	for client := range 6 {
		own := rand.New(rand.NewPCG(r.Uint64(), uint64(client)))
		clients.Go(func() { q.work(ctx, client, round, addresses, own) })
	}
	pause := func(least, most int) { time.Sleep(time.Duration(least+r.IntN(most-least)) * time.Millisecond) }
	pause(200, 700)
	n := q.Nodes[r.IntN(len(q.Nodes))]
	if r.IntN(2) == 0 {
		if owner := q.registrar(); owner != nil {
			n = owner
		}
	}
	faults := []struct {
		name string
		do   func()
	}{
		{"killed", n.Kill},
		{"stopped", n.Stop},
		{"frozen", n.Freeze},
		{"cut off", func() { q.Isolate(n.Number, q.Network.Cut) }},
		{"isolated", func() { q.Isolate(n.Number, q.Network.Hold) }},
		{"deaf", func() {
			q.Isolate(n.Number, func(from, to int) {
				if to == n.Number {
					q.Network.Hold(from, to)
				}
			})
		}},
	}
	f := faults[r.IntN(len(faults))]
	f.do()
	pause(1000, 3500)
	q.Heal()
	n.Continue()
	if !n.Running() {
		n.Launch()
	}
	pause(300, 1500) // what it still believes, clients hear
	cancel()
	clients.Wait()
	for _, n := range q.Nodes {
		n.AwaitReady()
	}
	q.Owner("/")
	return fmt.Sprintf("node %d is %s", n.Number, f.name)
}

// registrar returns the owner of the registry, nil if the node that is asked does not know it.
func (q *inquiry) registrar() *Node {
	var view struct {
		Registrar string
	}
	for _, n := range q.Nodes {
		if json.Unmarshal(n.Get("cluster"), &view) != nil {
			continue
		}
		for _, o := range q.Nodes {
			if strings.HasSuffix(view.Registrar, "@"+o.Address) {
				return o
			}
		}
	}
	return nil
}

// work does one thing after the other at any node.
func (q *inquiry) work(ctx context.Context, client, round int, addresses []string, r *rand.Rand) {
	for ctx.Err() == nil {
		in := thingInput{
			path: fmt.Sprintf([]string{"users/u%d.%d", "users/u%d.%d", "vhosts/v%d.%d", "queues/%%2F/q%d.%d"}[r.IntN(4)], round, r.IntN(2)),
			does: "++--!"[r.IntN(5)],
		}
		if in.does == '!' && !strings.HasPrefix(in.path, "users/") {
			continue
		}
		call := time.Since(q.began)
		out, known := ask(ctx, addresses[r.IntN(len(addresses))], in, 1+r.IntN(1<<30))
		if known {
			q.record(client, in, out, call)
		}
		if out.unknown { // others have a chance to see which it was
			time.Sleep(300 * time.Millisecond)
		}
		time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
	}
}

func (q *inquiry) record(client int, in thingInput, out thingOutput, call time.Duration) {
	o := porcupine.Operation{ClientId: client, Input: in, Call: int64(call), Output: out, Return: int64(time.Since(q.began))}
	if out.unknown {
		o.Return = math.MaxInt64 // it may still happen
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.all = append(q.all, o)
}

// story is what clients did, in the order in which they began.
func (q *inquiry) story() string {
	var b strings.Builder
	for _, o := range q.all {
		fmt.Fprintf(&b, "%s..%s client %d: %s %c: %+v\n", time.Duration(o.Call), time.Duration(o.Return), o.ClientId, o.Input.(thingInput).path,
			o.Input.(thingInput).does, o.Output)
	}
	return b.String()
}

// answerTime is how long a client waits for an answer.
const answerTime = 2 * time.Second

// ask does something by the management API of a node, and returns what the answer says. known is false if it says nothing.
func ask(ctx context.Context, address string, in thingInput, unique int) (out thingOutput, known bool) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	queue := strings.HasPrefix(in.path, "queues/")
	method, path, body := http.MethodDelete, in.path, ""
	switch {
	case in.does == '!':
		method, path = http.MethodGet, "whoami"
	case in.does == '+' && queue: // another one each time, which is refused if there is one
		method, body = http.MethodPut, fmt.Sprintf(`{"durable": true, "arguments": {"x-max-length": %d}}`, unique)
	case in.does == '+':
		method, body = http.MethodPut, `{"password": "secret", "tags": "administrator"}`
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+address+"/api/"+path, strings.NewReader(body))
	if err != nil {
		return out, false
	}
	r.SetBasicAuth("guest", "guest")
	if in.does == '!' {
		r.SetBasicAuth(strings.TrimPrefix(in.path, "users/"), "secret")
	}
	status, _, err := process.Do(r)
	switch {
	case in.does == '!':
		return out, err == nil && status == http.StatusUnauthorized
	case err != nil || status >= http.StatusInternalServerError:
		return thingOutput{unknown: true}, true
	case queue: // that there is nothing to do may be out of date
		return thingOutput{silent: in.does == '-'}, status == http.StatusCreated || status == http.StatusNoContent
	case status == http.StatusCreated || status == http.StatusNotFound:
		return out, true
	}
	return thingOutput{was: true}, status == http.StatusNoContent
}
