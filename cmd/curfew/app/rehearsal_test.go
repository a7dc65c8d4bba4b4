package app

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/mgmt"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/simulation"
	"github.com/curfewmq/curfew/plugins/wasm"
	"github.com/curfewmq/curfew/sdk/hook"
)

// newLab returns a lab with the plugins of the repository in their order.
func newLab(t *testing.T) lab {
	t.Helper()
	var l lab
	var all []chain.Named
	for _, f := range Builtin() {
		p, _, err := f.New(func(any) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		if h, ok := p.(*wasm.Host); ok {
			l.host = h
		}
		all = append(all, chain.Named{Name: f.Name, Plugin: p})
	}
	var err error
	if l.chain, err = chain.New(all, chain.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := l.host.Open(wasm.Env{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.host.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// All plugins of the chain decide about a message of a simulation, in their order, including a module that is not loaded.
func TestRehearsal(t *testing.T) {
	l := newLab(t)
	module, err := os.ReadFile("../../../wasm-examples/priority-ttl/priority.wasm")
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]any{"message-ttl": int64(1000), "dead-letter-exchange": "dlx"}
	for _, tc := range []struct {
		name      string
		candidate *mgmt.Module
		strategy  string
		by        []string
		after     time.Duration
		opinion   bool
	}{
		{"the built-in strategy", nil, "deadline", []string{"ttl"}, time.Second, false},
		{"a module", &mgmt.Module{Name: "prio", Module: module}, "wasm/prio", []string{"wasm"}, time.Second, false},
		{"a module beside the built-in strategy", &mgmt.Module{Name: "prio", Module: module, Shadow: "deadline"}, "deadline", []string{"ttl"}, time.Second, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := l.Rehearse(tc.candidate)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if (r.Candidate() != nil) != (tc.candidate != nil) || r.Strategy() != "" && r.Strategy() != tc.strategy {
				t.Errorf("got %s, %s", r.Strategy(), r.Candidate())
			}
			const at = hook.Instant(1_700_000_000_000_000_000)
			got := simulation.Run(r.Stage(), &simulation.Play{
				Queue: &queue.Profile{Kind: queue.Classic, Strategy: tc.strategy, DeliveryLimit: -1, Settings: func(name string) (any, bool) { v, ok := settings[name]; return v, ok }},
				Name:  "q", At: at, For: time.Hour, Message: simulation.Message{Priority: 0},
			})
			if got.End != simulation.DeadLetter || len(got.Events) != 2 || got.Verdict.Target.Exchange != "dlx" {
				t.Fatalf("got %+v", got)
			}
			enqueue, due := &got.Events[0], &got.Events[1]
			if !slices.Equal(enqueue.By, tc.by) || due.At != at.Add(tc.after) || !slices.Equal(due.By, append(slices.Clone(tc.by), "deadletter")) {
				t.Errorf("got %+v and %+v", enqueue, due)
			}
			if (len(enqueue.Opinions) == 1) != tc.opinion || len(enqueue.Notes) > 0 {
				t.Errorf("got %+v", enqueue)
			}
		})
	}
	if _, err := l.Rehearse(&mgmt.Module{Name: "a", Module: module, Fuel: "much"}); err == nil {
		t.Error("fuel: much was accepted")
	}
	if _, err := (lab{chain: l.chain}).Rehearse(&mgmt.Module{Name: "a"}); err == nil {
		t.Error("a module was tried without the plugin")
	}
}
