package app

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/clock"
	"github.com/curfewmq/curfew/core/mgmt"
	"github.com/curfewmq/curfew/core/store"
	"github.com/curfewmq/curfew/core/wlog"
	fakelog "github.com/curfewmq/curfew/core/wlog/fake"
	"github.com/curfewmq/curfew/plugins/wasm"
)

// moduleNode is the part of a cluster's node that concerns modules.
type moduleNode struct {
	policyHost
	store   atomic.Pointer[store.Store]
	changed chan struct{} // receives after the host has followed
}

func newModuleNode(t *testing.T, cluster wlog.Cluster) *moduleNode {
	t.Helper()
	n := &moduleNode{changed: make(chan struct{}, 100)}
	plugin, _, err := wasm.Factory.New(func(any) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	n.host, _ = plugin.(*wasm.Host)
	n.env.Store = func() (*store.Store, bool) { st := n.store.Load(); return st, st != nil }
	if err := n.host.Open(wasm.Env{Store: clusterModules{n.env.Store}, Shared: true}); err != nil {
		t.Fatal(err)
	}
	c, err := chain.New([]chain.Named{{Name: "wasm", Plugin: n.host}}, chain.Options{})
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), store.Options{
		Cluster: cluster, Shards: 1, Chain: c, Clock: clock.New(), Log: slog.New(slog.DiscardHandler), ClusterName: "test",
		Members: []store.Member{{Number: 1, Address: "a:1"}},
		Modules: func(all []*store.Module) {
			n.Follow(all)
			n.changed <- struct{}{}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	n.store.Store(st)
	t.Cleanup(func() {
		if err := errors.Join(st.Close(context.WithoutCancel(t.Context())), n.Close()); err != nil {
			t.Error(err)
		}
	})
	return n
}

// A module that one node loads is loaded by all. A node that does not own the registry refuses with that reason, and a node that joins later has
// the modules before it is ready.
func TestModulesOfACluster(t *testing.T) {
	module, err := os.ReadFile("../../../wasm-examples/priority-ttl/priority.wasm")
	if err != nil {
		t.Fatal(err)
	}
	storage := fakelog.New()
	a, b := newModuleNode(t, storage.Node(1, 0)), newModuleNode(t, storage.Node(2, 0))
	storage.SetOwner(0, 1)
	<-a.changed
	<-b.changed // both are empty
	<-a.store.Load().Registry().Ready()
	o := wasm.Options{Config: json.RawMessage(`{"ttl":"1s"}`), OnError: wasm.Keep, Recompute: true, Fuel: wasm.LargeFuel}
	if _, err := b.host.Load("p", module, o); !errors.Is(err, wlog.ErrNotOwner) {
		t.Errorf("at another node: got %v, want %v", err, wlog.ErrNotOwner)
	}
	for {
		_, err := a.host.Load("p", module, o)
		if err == nil {
			break
		}
		if !errors.Is(err, wlog.ErrNotOwner) { // which it may not be yet
			t.Fatal(err)
		}
	}
	<-b.changed
	c := newModuleNode(t, storage.Node(3, 0))
	<-c.store.Load().Registry().Ready()
	for _, n := range []*moduleNode{a, b, c} {
		i, ok := n.host.Info("p")
		if !ok || !i.Loaded || i.OnError != wasm.Keep || i.Fuel != wasm.LargeFuel || string(i.Config) != string(o.Config) {
			t.Errorf("got %+v", i)
		}
	}
	if err := a.host.Unload("p", false); err != nil {
		t.Fatal(err)
	}
	<-b.changed
	if got := b.host.Strategies(); slices.Contains(got, "wasm/p") {
		t.Errorf("after it was unloaded there are %v", got)
	}
}

func TestSettingsOfAModuleThatCannotBeRead(t *testing.T) {
	k := storedModule(&store.Module{Name: "p", Options: []byte(`{"fuel":"many"}`), Bytes: []byte{1}, Revision: 7})
	if k.Name != "p" || k.Revision != 7 || k.Damage == nil || !strings.Contains(k.Damage.Error(), `module "p"`) {
		t.Errorf("got %+v", k)
	}
	k = storedModule(&store.Module{Name: "p", Options: []byte(`{"fuel":"large","recompute":true}`), Bytes: []byte{1}})
	if k.Damage != nil || k.Options.Fuel != wasm.LargeFuel || !k.Options.Recompute {
		t.Errorf("got %+v", k)
	}
}

// A policy in a definitions file is compared with the loaded one, so equal settings must be written in the same way.
func TestCanonicalModules(t *testing.T) {
	for _, tt := range []struct{ fuel, onError, wantFuel, wantOnError string }{
		{"", "", "default", "builtin"},
		{"1000000", "keep", "default", "keep"},
		{"0050000000", "reject", "large", "reject"},
		{"0020000", "", "20000", "builtin"},
		{"much", "keep", "much", "keep"}, // is refused when it is loaded, like the next one
		{"1000000", "never", "1000000", "never"},
	} {
		got := moduleAdmin{}.Canonical(mgmt.Module{Name: "a", Fuel: tt.fuel, OnError: tt.onError})
		if got.Name != "a" || got.Fuel != tt.wantFuel || got.OnError != tt.wantOnError {
			t.Errorf("%q, %q: got %+v", tt.fuel, tt.onError, got)
		}
	}
}
