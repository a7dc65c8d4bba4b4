package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/fake"
)

// testMembers are the nodes of a cluster in tests.
var testMembers = []Member{{1, "a:5680", "curfew@a", 1}, {2, "b:5680", "curfew@b", 1}, {3, "c:5680", "curfew@c", 1}}

func registryOn(t *testing.T, cluster wlog.Cluster, change ...func(*registryOptions)) *Registry {
	t.Helper()
	o := registryOptions{
		Cluster: cluster, Shards: 3, Log: slog.New(slog.DiscardHandler), Hashing: auth.SHA512,
		Name: "test", Members: testMembers,
	}
	for _, f := range change {
		f(&o)
	}
	return newRegistry(t.Context(), o)
}

// The first owner begins the cluster, and all nodes know it.
func TestRegistryBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := fake.New()
		var all []*Registry
		for id := range wlog.NodeID(3) {
			r := registryOn(t, storage.Node(id+1, 0))
			defer r.close()
			all = append(all, r)
		}
		storage.SetOwner(registryShard, 2)
		for _, r := range all {
			<-r.Ready()
		}
		synctest.Wait()
		for i, r := range all {
			if got := r.Members(); len(got) != 3 || got[0] != testMembers[0] {
				t.Errorf("node %d knows the members %v", i+1, got)
			}
			if p, ok := r.Placement(DefaultVHost); !ok || p.Shard != 1 || p.Number != 1 {
				t.Errorf("node %d has placed / at %v", i+1, p)
			}
			if _, ok := r.Users().Lookup(auth.Guest); !ok {
				t.Errorf("node %d does not know guest", i+1)
			}
			if got := r.Cluster(); got != "test" {
				t.Errorf("node %d calls the cluster %q", i+1, got)
			}
		}
		if _, _, err := all[1].Place("v", vhost.Metadata{}); err != nil {
			t.Error(err)
		}
	})
}

// beginOn returns registries on the first nodes of a cluster, of which the first owns it.
func beginOn(t *testing.T, storage *fake.Storage, n int, change ...func(*registryOptions)) (nodes []*fake.Node, all []*Registry) {
	t.Helper()
	for id := range wlog.NodeID(n) {
		nodes = append(nodes, storage.Node(id+1, 0))
		all = append(all, registryOn(t, nodes[id], change...))
	}
	storage.SetOwner(registryShard, 1)
	for _, r := range all {
		<-r.Ready()
	}
	synctest.Wait()
	return nodes, all
}

func closeAll(all []*Registry) {
	for _, r := range all {
		r.close()
	}
}

// However much is changed, and however often the owner changes, the log is about as long as what it says.
func TestRegistryLogIsTrimmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const extent, terms, changes = 2 << 10, 10, 300
		storage := fake.New()
		_, all := beginOn(t, storage, 2, func(o *registryOptions) { o.Extent = extent })
		defer closeAll(all)
		for term := range terms {
			storage.SetOwner(registryShard, wlog.NodeID(term%2)+1)
			time.Sleep(time.Second) // a takeover may need a second attempt
			r := all[term%2]
			s := &Store{globals: r.globals}
			for i := range changes {
				name := fmt.Sprint("n", i%3)
				_, _, err := r.Place(name, vhost.Metadata{})
				must(t, err)
				_, err = s.SetGlobalParameter(name, []byte("1"))
				must(t, err)
				_, err = r.Users().Set(auth.Account{Name: name, Tags: []string{strconv.Itoa(i)}})
				must(t, err)
				must(t, r.SaveModule(name, nil, bytes.Repeat([]byte{byte(i)}, extent)))
				must(t, r.SetMember(Member{Number: 3, Address: fmt.Sprint("c:", i+1)}))
			}
			const modules, rest = 3 * (extent + 512), 3 * 4 * 2048 // four scopes, which are written again at four times their size
			if got := r.writer().Stats(); got.LogBytes > 2*modules+2*rest+8*extent {
				t.Errorf("term %d: the log has %d bytes, of which %d are live", term, got.LogBytes, got.Live)
			}
		}
	})
}

// A module that is written while its owner changes is there as a whole or not at all, also if the owner is the same again.
func TestRegistryModuleOfALostTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := fake.New()
		nodes, all := beginOn(t, storage, 2)
		defer closeAll(all)
		nodes[0].SetLatency(time.Second)
		saved := make(chan error, 1)
		go func() { saved <- all[0].SaveModule("a", nil, make([]byte, 3*modulePart)) }()
		time.Sleep(1500 * time.Millisecond) // one piece is there
		storage.SetOwner(registryShard, 2)
		for all[1].SaveModule("b", nil, []byte{1}) != nil {
			time.Sleep(time.Millisecond)
		}
		must(t, all[1].SaveModule("b", nil, make([]byte, 2*modulePart)))
		storage.SetOwner(registryShard, 1)
		if err := <-saved; !errors.Is(err, wlog.ErrLost) && !errors.Is(err, wlog.ErrNotOwner) {
			t.Errorf("got %v, want that the term was lost", err)
		}
		time.Sleep(time.Second)
		for i, r := range all {
			if got := r.Modules(); len(got) != 1 || got[0].Name != "b" || r.Err() != nil {
				t.Errorf("node %d has %d modules, and follows with %v", i+1, len(got), r.Err())
			}
		}
		must(t, all[0].SaveModule("a", nil, make([]byte, 3*modulePart)))
		time.Sleep(time.Second)
		if got := all[1].Modules(); len(got) != 2 || len(got[0].Bytes) != 3*modulePart {
			t.Errorf("got %d modules, want 2", len(got))
		}
	})
}

// A node that comes to a log whose beginning was trimmed knows everything once it is ready, and not before.
func TestRegistryIsReadyWhenItIsWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := fake.New()
		_, all := beginOn(t, storage, 2, func(o *registryOptions) { o.Extent = 2 << 10 })
		defer closeAll(all)
		for i := range 300 {
			_, err := all[0].Users().Set(auth.Account{Name: "x", Tags: []string{strconv.Itoa(i)}})
			must(t, err)
			if i%50 == 0 {
				time.Sleep(time.Second) // a round of what is written again
			}
		}
		if got := all[0].writer().Stats().LogBytes; got > 20<<10 {
			t.Errorf("the log has %d bytes: it was not trimmed", got)
		}
		late := registryOn(t, storage.Node(3, 0))
		defer late.close()
		<-late.Ready()
		if got, want := late.says(), all[0].says(); got != want {
			t.Errorf("it knows\n%s\nand the owner\n%s", got, want)
		}
		storage.SetOwner(registryShard, 0)
		early := registryOn(t, storage.Node(4, 0))
		defer early.close()
		time.Sleep(time.Minute)
		select {
		case <-early.Ready():
			t.Error("a node is ready that could ask nobody whether it knows everything")
		default:
		}
	})
}

// What a former owner knows is not what there is: it refuses also what would change nothing.
func TestRegistryOfAFormerOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := fake.New()
		nodes, all := beginOn(t, storage, 2)
		defer closeAll(all)
		nodes[0].SetLag(time.Hour)
		nodes[0].SetStalled(true)
		storage.SetOwner(registryShard, 2)
		time.Sleep(time.Second)
		_, err := all[1].Users().Set(auth.Account{Name: "a"})
		must(t, err)
		s := &Store{globals: all[0].globals}
		for name, change := range map[string]func() error{
			"user":   func() error { _, err := all[0].Users().Delete("a"); return err },
			"vhost":  func() error { _, err := all[0].Unplace("v"); return err },
			"global": func() error { _, err := s.ClearGlobalParameter("g"); return err },
			"module": func() error { _, err := all[0].DeleteModule("m"); return err },
			"member": func() error { return all[0].SetMember(testMembers[0]) },
		} {
			if err := change(); err == nil {
				t.Errorf("%s: it says that there is nothing to change", name)
			}
		}
		nodes[0].SetStalled(false)
		synctest.Wait()
		if _, err := all[0].Users().Delete("b"); !errors.Is(err, wlog.ErrNotOwner) {
			t.Errorf("got %v, want %v", err, wlog.ErrNotOwner)
		}
	})
}

// Whatever is in the log, a copy takes it or refuses it, and what it takes it can write again.
func FuzzRegistryFold(f *testing.F) {
	r := &Registry{options: registryOptions{Name: "test", Members: testMembers, Hashing: auth.SHA512}}
	first, err := r.firstDefinitions()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(first)
	var module []byte
	m := &Module{Name: "m", Bytes: []byte("code"), Options: []byte("{}"), Revision: 1}
	for d := range m.definitions() {
		module = amqp.AppendTable(module, d)
	}
	f.Add(append(module, amqp.AppendTable(nil, defineName(opDeleteModule, "m"))...))
	f.Add(amqp.AppendTable(nil, (&part{of: scope{kind: scopeMembers}, first: true, last: true, definitions: first[:0]}).definition()))
	f.Add(amqp.AppendTable(nil, defineMemberRemoved(1)))
	f.Fuzz(func(t *testing.T, entry []byte) {
		fold, usage := newRegistryFold(), newRegistryUsage()
		refused := fold.entry(0, 1, entry)
		if counted := usage.entry(1, 1, entry); refused == nil && counted != nil {
			t.Errorf("it is taken, and cannot be counted: %v", counted)
		}
		if refused != nil || fold.err() != nil {
			return
		}
		if _, err := parseRegistryEntry(entry); err != nil {
			t.Errorf("it is taken from the beginning, and refused later: %v", err)
		}
		again := newRegistryFold()
		for d := range fold.state.membership {
			must(t, again.entry(0, 1, amqp.AppendTable(nil, d)))
		}
		for d := range fold.state.placing {
			must(t, again.entry(0, 1, amqp.AppendTable(nil, d)))
		}
		for _, m := range fold.state.modules {
			for d := range m.definitions() {
				must(t, again.entry(0, 1, amqp.AppendTable(nil, d)))
			}
		}
		fold.state.upload = nil
		if err := again.err(); err != nil || !reflect.DeepEqual(again.state, fold.state) {
			t.Errorf("written again: %v\n%+v\nof\n%+v", err, again.state, fold.state)
		}
	})
}

// What is done once in the life of a cluster is not done again by another owner, or after a restart.
func TestRegistryOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := fake.New()
		var done, owned atomic.Int64
		failing := errors.New("not yet")
		var all []*Registry
		own := func(o *registryOptions) {
			i := len(all)
			o.Owned = func(context.Context) error {
				owned.Add(1)
				return all[i].Once("a", func() error {
					if done.Add(1) == 1 {
						return failing
					}
					return nil
				})
			}
		}
		for id := range wlog.NodeID(2) {
			all = append(all, registryOn(t, storage.Node(id+1, 0), own))
		}
		defer closeAll(all)
		storage.SetOwner(registryShard, 1)
		time.Sleep(time.Second) // it is tried again
		storage.SetOwner(registryShard, 2)
		time.Sleep(time.Second)
		storage.SetOwner(registryShard, 1)
		time.Sleep(time.Second)
		if done.Load() != 2 || owned.Load() != 4 {
			t.Errorf("done %d times by %d owners, want 2 by 4", done.Load(), owned.Load())
		}
	})
}

// An owner that cannot begin tries again, less and less often, and gives the registry up.
func TestRegistryIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := fake.New()
		var tries, givenUp atomic.Int64
		all := []*Registry{
			registryOn(t, storage.Node(1, 0), func(o *registryOptions) {
				o.Owned = func(context.Context) error {
					tries.Add(1)
					return errBroken
				}
				o.GiveUp = func(shard uint32) {
					givenUp.Add(1)
					if shard != registryShard {
						t.Errorf("shard %d is given up", shard)
					}
				}
			}),
			registryOn(t, storage.Node(2, 0)),
		}
		defer closeAll(all)
		storage.SetOwner(registryShard, 1)
		time.Sleep(time.Minute)
		if tries.Load() > 15 || givenUp.Load() < 3 || givenUp.Load() > 8 {
			t.Errorf("taken %d times and given up %d times in a minute", tries.Load(), givenUp.Load())
		}
		storage.SetOwner(registryShard, 2)
		synctest.Wait()
		before := givenUp.Load()
		_, err := all[1].Users().Set(auth.Account{Name: "u"})
		must(t, err)
		time.Sleep(time.Minute)
		if givenUp.Load() != before {
			t.Error("the registry of another node is given up")
		}
	})
}

func TestRegistryMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, all := beginOn(t, fake.New(), 2)
		defer closeAll(all)
		if got := all[1].Format(); got != 1 {
			t.Errorf("all read format %d, want 1", got)
		}
		m := testMembers[0]
		m.Format = 3
		must(t, all[0].SetMember(m))
		must(t, all[0].ReplaceMember(2, Member{Number: 7, Address: "b:5680", Format: 2}))
		must(t, all[0].ReplaceMember(2, Member{Number: 7, Address: "b:5680", Format: 2})) // again, after a crash
		must(t, all[0].ReplaceMember(7, Member{Number: 8, Address: "b:5680", Format: 2}))
		if err := all[0].ReplaceMember(2, Member{Number: 7, Address: "b:5680", Format: 2}); err == nil { // of a node that has not heard of it
			t.Error("a node that was replaced is a member again, beside the one that has its address")
		}
		must(t, all[0].ReplaceMember(8, Member{Number: 7, Address: "b:5680", Format: 2}))
		synctest.Wait()
		if got, want := all[1].Members(), []Member{m, {Number: 7, Address: "b:5680", Format: 2}, testMembers[2]}; !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if got := all[1].Format(); got != 1 {
			t.Errorf("all read format %d, want 1", got)
		}
		if got := all[1].Owner(); got != 1 || !all[0].Owned() || all[1].Owned() {
			t.Errorf("%d owns it", got)
		}
		for _, bad := range []Member{{}, {Number: 1}, {Number: 1, Address: "a", Format: -1}, {Number: 1, Address: "a", Name: strings.Repeat("x", 256)}} {
			if err := all[0].SetMember(bad); err == nil {
				t.Errorf("%v is accepted", bad)
			}
		}
	})
}

// Vhosts are spread over the shards, numbers are never given again, and permissions go with a vhost.
func TestRegistryPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := fake.New()
		_, all := beginOn(t, storage, 2)
		defer closeAll(all)
		r := all[0]
		for i, want := range []Placement{{VHost: "a", Shard: 2, Number: 2}, {VHost: "b", Shard: 3, Number: 3}, {VHost: "c", Shard: 1, Number: 4}} {
			got, created, err := r.Place(want.VHost, vhost.Metadata{})
			if err != nil || !created || !reflect.DeepEqual(got, want) {
				t.Errorf("%d: got %v, %t, %v; want %v", i, got, created, err, want)
			}
		}
		must2(t)(r.Users().SetPermissions(auth.Grant{User: auth.Guest, VHost: "c"}))
		if existed, err := r.Unplace("c"); !existed || err != nil {
			t.Errorf("got %t, %v", existed, err)
		}
		synctest.Wait()
		if err := all[1].Users().OpenVHost(auth.Guest, "c"); err == nil {
			t.Error("permissions for a deleted vhost hold")
		}
		if _, err := r.Users().SetPermissions(auth.Grant{User: auth.Guest, VHost: "c"}); err == nil {
			t.Error("a vhost that is deleted can get permissions")
		}
		storage.SetOwner(registryShard, 2)
		time.Sleep(time.Second)
		got, created, err := all[1].Place("c", vhost.Metadata{Description: "x"})
		if want := (Placement{"c", 1, 5, vhost.Metadata{Description: "x"}}); err != nil || !created || !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, %t, %v; want %v", got, created, err, want)
		}
		if _, created, err := all[0].Place("d", vhost.Metadata{}); created || !errors.Is(err, wlog.ErrNotOwner) {
			t.Errorf("elsewhere: got %t, %v", created, err)
		}
		if _, _, err := all[1].Place("", vhost.Metadata{}); err == nil {
			t.Error("a vhost without a name is accepted")
		}
	})
}

func must2(t *testing.T) func(bool, error) {
	t.Helper()
	return func(_ bool, err error) { must(t, err) }
}

// What is too large is refused by its name before anything is written.
func TestRegistryRefusesModules(t *testing.T) {
	for name, m := range map[string]Module{
		"":      {Bytes: []byte{1}},
		"empty": {Name: "empty"},
		"large": {Name: "large", Bytes: make([]byte, MaxModule+1)},
		"many":  {Name: "many", Bytes: []byte{1}, Options: make([]byte, maxOptions+1)},
	} {
		if err := CheckModule(&m); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", name)) {
			t.Errorf("got %v, want an error that names %q", err, name)
		}
	}
}
