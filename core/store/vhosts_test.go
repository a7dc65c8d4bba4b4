package store

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/logtest"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/vfs"
	"github.com/curfewmq/curfew/sdk/hook"
)

func (k *kept) names() string {
	var names []string
	for _, v := range k.VHosts() {
		names = append(names, v.Name())
	}
	return strings.Join(names, " ")
}

// in returns the store with another vhost for its own.
func (k *kept) in(name string) *kept {
	k.t.Helper()
	v, ok := k.VHost(name)
	if !ok {
		k.t.Fatalf("there is no vhost %s", name)
	}
	return &kept{k.Store, k.t, v, k.log}
}

func TestVHosts(t *testing.T) {
	disk := crashfs.New(1)
	k := open(t, disk)
	for _, want := range []bool{true, false} {
		created, err := k.AddVHost("v", vhost.Metadata{Description: "first"})
		must(t, err)
		if created != want {
			t.Errorf("created: got %t", created)
		}
	}
	_, err := k.AddVHost("v", vhost.Metadata{Description: "second", Tags: []string{"a"}})
	must(t, err)
	v := k.in("v")
	v.put(v.declare("q"), "1", "2")
	k.put(k.declare("q"), "3")
	must(t, v.v.Parameters().SetLimits(vhost.Limits{Queues: hook.LimitOf(5)}))
	_, err = k.Users().SetPermissions(auth.Grant{User: "guest", VHost: "v"})
	must(t, err)
	disk = disk.LosePower()
	k.end()

	k = open(t, disk)
	v = k.in("v")
	if m := v.v.Metadata(); m.Description != "second" || len(m.Tags) != 1 || v.v.Parameters().Limits().Queues.N() != 5 {
		t.Errorf("got %+v, %+v", m, v.v.Parameters().Limits())
	}
	if got := k.names(); got != "/ v" {
		t.Errorf("got %s", got)
	}
	v.wantMessages("q", "1", "2")
	k.wantMessages("q", "3")
	must(t, k.Users().OpenVHost("guest", "v"))
	k.close()
}

func TestDeleteVHost(t *testing.T) {
	disk := crashfs.New(1)
	k := open(t, disk)
	_, err := k.AddVHost("v", vhost.Metadata{})
	must(t, err)
	v := k.in("v")
	v.put(v.declare("q"), "1", "2")
	last := v.queue("q").Config().Storage.ID
	_, err = k.Users().SetPermissions(auth.Grant{User: "guest", VHost: "v"})
	must(t, err)
	_, err = k.Users().SetTopicPermissions(auth.TopicGrant{User: "guest", VHost: "v", TopicPermissions: auth.TopicPermissions{Exchange: "x"}})
	must(t, err)
	var evicted string
	must(t, v.v.AddConnection(1, "guest", func(reason string) { evicted = reason }))
	for _, want := range []bool{true, false} {
		existed, err := k.DeleteVHost("v")
		must(t, err)
		if existed != want {
			t.Errorf("existed: got %t", existed)
		}
	}
	if evicted != "vhost 'v' is deleted" {
		t.Errorf("evicted for %q", evicted)
	}
	if _, err := k.Users().SetPermissions(auth.Grant{User: "guest", VHost: "v"}); !errors.Is(err, auth.ErrNoVHost) {
		t.Errorf("got %v", err)
	}
	disk = disk.LosePower()
	k.end()

	k = open(t, disk)
	if got := k.names(); got != "/" || len(k.Users().Grants()) != 1 || len(k.Users().TopicGrants()) > 0 {
		t.Errorf("vhosts %s, permissions %v, %v", got, k.Users().Grants(), k.Users().TopicGrants())
	}
	if q := k.declare("q"); q.Config().Storage.ID <= last {
		t.Errorf("a queue has the number %d; %d was given before", q.Config().Storage.ID, last)
	}
	// One of the same name is another one.
	_, err = k.AddVHost("v", vhost.Metadata{})
	must(t, err)
	k.close()
	k = open(t, disk)
	if v := k.in("v"); len(v.v.Queues()) > 0 || k.Users().OpenVHost("guest", "v") == nil {
		t.Error("something of the old one is there")
	}
	k.close()
}

// lateFS takes a second for each sync of a file of shard 1.
type lateFS struct{ vfs.FS }

func (s lateFS) Open(name string, mode vfs.Mode) (vfs.File, error) {
	f, err := s.FS.Open(name, mode)
	if err == nil && strings.HasPrefix(name, "00001-") {
		return lateFile{f}, nil
	}
	return f, err
}

type lateFile struct{ vfs.File }

func (f lateFile) Sync() error {
	time.Sleep(time.Second) // in a bubble: everything else comes to rest first
	return f.File.Sync()
}

// DeleteVHost returned when clients did not find the vhost any more: its connections were closed later.
func TestDeleteVHostClosesConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := open(t, lateFS{crashfs.New(1)})
		defer k.close()
		var evicted atomic.Bool
		must(t, k.v.AddConnection(1, "guest", func(string) { evicted.Store(true) }))
		done := make(chan error, 1)
		go func() {
			_, err := k.DeleteVHost(DefaultVHost)
			if !evicted.Load() {
				t.Error("the connection is not closed")
			}
			done <- err
		}()
		synctest.Wait()                  // the deletion is being written
		k.cluster.seats[0].changedHere() // the caller looks again
		must(t, <-done)
	})
}

// Vhosts come and go, and the log stays small: that of definitions, and that of messages.
func TestVHostsLeaveNothing(t *testing.T) { synctest.Test(t, vhostsLeaveNothing) }

func vhostsLeaveNothing(t *testing.T) {
	t.Helper()
	disk := crashfs.New(1)
	k := open(t, disk)
	_, err := k.AddVHost("stays", vhost.Metadata{})
	must(t, err)
	arg := strings.Repeat("x", 10_000)
	for n := range 300 {
		name := "v" + strconv.Itoa(n)
		_, err := k.AddVHost(name, vhost.Metadata{})
		must(t, err)
		v := k.in(name)
		d, err := v.v.DeclareQueue(vhost.QueueDeclare{Name: "q", Durable: true, Args: table("x", arg)})
		must(t, err)
		v.put(d.Mailbox, arg)
		_, err = k.Users().SetPermissions(auth.Grant{User: "guest", VHost: name})
		must(t, err)
		_, err = k.DeleteVHost(name)
		must(t, err)
	}
	registry := k.Registry().writer()
	must(t, registry.Sync())
	if st := registry.Stats(); st.LogBytes > 2*minCompactBytes+2*definitionsExtent || st.Live > minCompactBytes {
		t.Errorf("of %d bytes of the registry, %d are left, %d of them live", st.Bytes, st.LogBytes, st.Live)
	}
	must(t, k.shard(1).Sync())
	synctest.Wait() // a queue accounts for what it had when its deletion is durable, on a turn of its own
	must(t, k.shard(1).Sync())
	const left = 20_000 // of definitions of the vhosts that stay, and of the numbers of queues
	if st := k.shard(1).Stats(); st.Bytes < 5<<20 || st.LogBytes > 4<<20 || st.Live > left {
		t.Errorf("of %d bytes of vhosts, %d are left, %d of them live", st.Bytes, st.LogBytes, st.Live)
	}
	k.close()
	k = open(t, disk)
	if got := k.names(); got != "/ stays" {
		t.Errorf("got %s", got)
	}
	k.close()
}

// The default vhost may be deleted for good; what a new data directory has is for new ones.
func TestDeleteDefaultVHost(t *testing.T) {
	disk := crashfs.New(1)
	k := open(t, disk)
	_, err := k.DeleteVHost(DefaultVHost)
	must(t, err)
	k.close()
	s, err := Open(t.Context(), options(t, disk, new(logtest.Log)))
	must(t, err)
	if all := s.VHosts(); len(all) > 0 {
		t.Errorf("there is %s", all[0].Name())
	}
	must(t, s.Close(t.Context()))
}

func TestWrongVHosts(t *testing.T) {
	k := open(t, crashfs.New(1))
	for name, m := range map[string]vhost.Metadata{
		"": {}, strings.Repeat("x", 256): {}, "\xff": {}, "v": {DefaultQueueType: "stream"}, "/": {DefaultQueueType: "bogus"},
	} {
		_, err := k.AddVHost(name, m)
		if e, ok := errors.AsType[*vhost.Error](err); !ok || e.Kind != vhost.Precondition {
			t.Errorf("%.10s: got %v", name, err)
		}
	}
	k.close()
}

// What cannot be made durable did not happen: it was so in memory until the next restart.
func TestChangesOnBrokenDisk(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(k *kept) error
	}{
		{"add vhost", func(k *kept) error { _, err := k.AddVHost("v", vhost.Metadata{}); return err }},
		{"describe vhost", func(k *kept) error { _, err := k.AddVHost("/", vhost.Metadata{Description: "new"}); return err }},
		{"delete vhost", func(k *kept) error { _, err := k.DeleteVHost("/"); return err }},
		{"set global parameter", func(k *kept) error { _, err := k.SetGlobalParameter("n", []byte("2")); return err }},
		{"clear global parameter", func(k *kept) error { _, err := k.ClearGlobalParameter("n"); return err }},
		{"set user", func(k *kept) error { _, err := k.Users().Set(auth.Account{Name: "new"}); return err }},
		{"set tags", func(k *kept) error { _, err := k.Users().Set(auth.Account{Name: "guest"}); return err }},
		{"delete user", func(k *kept) error { _, err := k.Users().Delete("guest"); return err }},
		{"set permissions", func(k *kept) error {
			_, err := k.Users().SetPermissions(auth.Grant{User: "guest", VHost: "/"})
			return err
		}},
		{"clear permissions", func(k *kept) error { _, err := k.Users().ClearPermissions("guest", "/"); return err }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			disk := crashfs.New(1)
			k := open(t, disk)
			_, err := k.SetGlobalParameter("n", []byte("1"))
			must(t, err)
			before, version := k.says(), k.Users().Version()
			disk.Inject(func(op crashfs.Op) error {
				if op.Kind == crashfs.OpSync {
					return syscall.EIO
				}
				return nil
			})
			if err := tt.change(k); !errors.Is(err, syscall.EIO) {
				t.Errorf("got error %v", err)
			}
			if got := k.says(); got != before || k.Users().Version() != version {
				t.Errorf("there is\n%s\nwant\n%s", got, before)
			}
			k.end()
		})
	}
}

func TestUsers(t *testing.T) {
	disk := crashfs.New(1)
	k := open(t, disk)
	hash, err := auth.ParseHash("XDouzE1Zt2yQZQnj8UTUKS8XfBkKhL/kJYaHGv2SdQhNFo03", "")
	must(t, err)
	_, err = k.Users().Set(auth.Account{Name: "alice", Password: hash, Tags: []string{"administrator"}})
	must(t, err)
	_, err = k.Users().SetPermissions(auth.Grant{User: "alice", VHost: "/", Permissions: auth.Permissions{Read: ".*"}})
	must(t, err)
	_, err = k.Users().Delete(auth.Guest)
	must(t, err)
	disk = disk.LosePower()
	k.end()

	k = open(t, disk)
	if got := fmt.Sprint(k.Users().List(), k.Users().Grants()); !strings.Contains(got, "alice") || strings.Contains(got, "guest") {
		t.Errorf("got %s", got)
	}
	if u, err := k.Users().Authenticate(t.Context(), "alice", "guest", auth.Origin{Now: 1}); err != nil || !u.Has("administrator") {
		t.Errorf("got %v, %v", u, err)
	}
	_, err = k.Users().Delete("alice")
	must(t, err)
	k.close()

	k = open(t, disk)
	if all := k.Users().List(); len(all) > 0 {
		t.Errorf("after the last user was deleted there is %s", all[0].Name)
	}
	k.close()
}

func TestGlobalParameters(t *testing.T) {
	disk := crashfs.New(1)
	k := open(t, disk)
	for _, want := range []bool{true, false} {
		created, err := k.SetGlobalParameter("b", []byte(` {"x": [1]} `))
		must(t, err)
		if created != want {
			t.Errorf("created: got %t", created)
		}
	}
	_, err := k.SetGlobalParameter("a", []byte("null"))
	must(t, err)
	_, err = k.SetGlobalParameter("c", []byte("3"))
	must(t, err)
	for _, want := range []bool{true, false} {
		existed, err := k.ClearGlobalParameter("c")
		must(t, err)
		if existed != want {
			t.Errorf("existed: got %t", existed)
		}
	}
	for _, c := range []struct{ name, value string }{{"", "1"}, {"x", ""}, {"x", "{"}, {strings.Repeat("x", 256), "1"}} {
		_, err := k.SetGlobalParameter(c.name, []byte(c.value))
		if _, ok := errors.AsType[*vhost.Error](err); !ok {
			t.Errorf("%v: got %v", c, err)
		}
	}
	for range 2 {
		if got := fmt.Sprintf("%s", k.GlobalParameters()); got != `[{a null} {b {"x":[1]}}]` {
			t.Errorf("got %s", got)
		}
		k.close()
		k = open(t, disk)
	}
	k.close()
}

// A policymaker could fill the memory with global parameters: 10,000 of 64 KiB.
func TestGlobalParametersHaveASize(t *testing.T) {
	k := open(t, crashfs.New(1))
	defer k.close()
	value := []byte(`"` + strings.Repeat("x", 64<<10-2) + `"`)
	n := 0
	for ; n <= vhost.MaxParameters/len(value); n++ {
		if _, err := k.SetGlobalParameter(strconv.Itoa(n), value); err != nil {
			break
		}
	}
	_, err := k.SetGlobalParameter("x", value)
	if refused, ok := errors.AsType[*vhost.Error](err); !ok || refused.Kind != vhost.Precondition {
		t.Errorf("with %d of %d bytes: got %v", n, len(value), err)
	}
	_, err = k.SetGlobalParameter("0", value) // instead of another
	must(t, err)
}
