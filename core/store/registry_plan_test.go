package store

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog"
	"github.com/curfewmq/curfew/core/wlog/fake"
)

// elsewhere has the second of two nodes own the registry for a while, and change it.
func elsewhere(t *testing.T, storage *fake.Storage, all []*Registry) {
	t.Helper()
	storage.SetOwner(registryShard, 2)
	time.Sleep(time.Second)
	_, _, err := all[1].Place("taken", vhost.Metadata{})
	must(t, err)
	_, err = all[1].Users().Set(auth.Account{Name: "taken"})
	must(t, err)
	storage.SetOwner(registryShard, 1)
	time.Sleep(time.Second)
	if !all[0].Owned() {
		t.Fatal("node 1 does not own the registry again")
	}
}

// A change that was planned before another node owned the registry is not written afterwards, although this node owns it again: the other
// one may have given away the same place.
func TestChangesAreWrittenInTheTermTheyArePlannedIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := fake.New()
		_, all := beginOn(t, storage, 2)
		defer closeAll(all)
		r := all[0]
		own := r.plan()
		p, err := r.nextPlacement("late")
		must(t, err)
		elsewhere(t, storage, all)
		if err := r.write(own, definePlacement(&p)); !errors.Is(err, wlog.ErrNotOwner) {
			t.Errorf("a placement: got %v", err)
		}
		if err := r.confirm(own); !errors.Is(err, wlog.ErrNotOwner) {
			t.Errorf("what was read is said to be up to date: %v", err)
		}
		r.changing.Unlock()
		if taken, _ := r.Placement("taken"); taken.Number != p.Number {
			t.Errorf("the other node gave the number %d, and this one would have given %d: the test shows nothing", taken.Number, p.Number)
		}
		if r.placed("late") {
			t.Error("it was written")
		}
		if _, _, err := r.Place("late", vhost.Metadata{}); err != nil {
			t.Error(err)
		}
	})
}

// So it is with the removal of a vhost, which users plan, too: the other node may have removed that vhost, and placed another one of its
// name, which this node removed with all that is in it.
func TestAVHostIsUnplacedInTheTermItIsPlannedIn(t *testing.T) {
	for _, again := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			storage := fake.New()
			_, all := beginOn(t, storage, 2)
			defer closeAll(all)
			r := all[0]
			_, _, err := r.Place("v", vhost.Metadata{})
			must(t, err)
			own := r.plan()
			storage.SetOwner(registryShard, 2)
			time.Sleep(time.Second)
			must2(t)(all[1].Unplace("v"))
			if again {
				_, _, err = all[1].Place("v", vhost.Metadata{})
				must(t, err)
			}
			storage.SetOwner(registryShard, 1)
			time.Sleep(time.Second)
			existed, err := r.unplace(own, "v")
			r.changing.Unlock()
			if existed != again || !errors.Is(err, wlog.ErrNotOwner) {
				t.Errorf("got %t, %v", existed, err)
			}
			if r.placed("v") != again {
				t.Errorf("the vhost that was placed anew is there: %t, want %t", r.placed("v"), again)
			}
			if existed, err := r.Unplace("v"); existed != again || err != nil {
				t.Errorf("afterwards: got %t, %v", existed, err)
			}
			if r.placed("v") {
				t.Error("it is not removed")
			}
		})
	}
}

// So it is with users, whose changes are planned by another package.
func TestUsersAreWrittenInTheTermTheyArePlannedIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := fake.New()
		_, all := beginOn(t, storage, 2)
		defer closeAll(all)
		log := &registryScopeLog{registry: all[0], of: scope{kind: scopeUsers}}
		users := auth.New(auth.Options{Hashing: auth.SHA512, Definitions: log, Follows: log.plan, VHost: func(string) bool {
			elsewhere(t, storage, all)
			return true
		}})
		guest, err := parseRegistryEntry(all[0].Users().Definitions())
		must(t, err)
		must(t, users.Follow(guest.users))
		_, err = users.SetPermissions(auth.Grant{User: auth.Guest, VHost: "/", Permissions: auth.Permissions{Configure: "stale"}})
		if !errors.Is(err, wlog.ErrNotOwner) {
			t.Errorf("got %v", err)
		}
		for _, g := range all[0].Users().Grants() {
			if g.Permissions.Configure == "stale" {
				t.Error("it was written")
			}
		}
	})
}

// A vhost need not wait for a module of many megabytes, which is written piece by piece.
func TestModulesDoNotHoldUpOtherChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		storage := fake.New()
		nodes, all := beginOn(t, storage, 1)
		defer closeAll(all)
		r := all[0]
		must(t, r.SaveModule("m", nil, bytes.Repeat([]byte("m"), 16*modulePart)))
		nodes[0].SetLatency(100 * time.Millisecond)
		written := make(chan error, 1)
		go func() { written <- r.SaveModule("m", nil, bytes.Repeat([]byte("n"), 16*modulePart)) }()
		time.Sleep(50 * time.Millisecond)
		for name, change := range map[string]func() error{
			"vhost":  func() error { _, _, err := r.Place("v", vhost.Metadata{}); return err },
			"user":   func() error { _, err := r.Users().Set(auth.Account{Name: "u"}); return err },
			"member": func() error { return r.SetMember(Member{Number: 3, Address: "c:1"}) },
		} {
			began := time.Now()
			must(t, change())
			if d := time.Since(began); d > 500*time.Millisecond {
				t.Errorf("%s: took %v", name, d)
			}
		}
		select {
		case err := <-written:
			t.Errorf("the module was written first (%v): the test shows nothing", err)
		default:
		}
		must(t, <-written)
	})
}
