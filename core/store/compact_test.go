package store

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/auth"
	"github.com/curfewmq/curfew/core/vhost"
	"github.com/curfewmq/curfew/core/wlog/crashfs"
	"github.com/curfewmq/curfew/core/wlog/vfs"
)

// Users, vhosts and global parameters are written anew when they get in the way, even if nobody touches them.
func TestRewrittenForSpace(t *testing.T) {
	disk := crashfs.New(1)
	k := open(t, disk)
	_, err := k.SetGlobalParameter("first", []byte("1"))
	must(t, err)
	_, err = k.Users().Set(auth.Account{Name: auth.Guest, Tags: []string{"monitoring"}})
	must(t, err)
	_, err = k.AddVHost("v", vhost.Metadata{Description: "d"})
	must(t, err)
	large := `"` + strings.Repeat("x", 60_000) + `"`
	for n := range 300 {
		_, err := k.v.Parameters().Set(vhost.Parameter{Component: "c", Name: "n", Value: []byte(large)})
		must(t, err)
		if n%10 == 0 {
			must(t, k.shard(1).Sync())
		}
	}
	if st := k.shard(1).Stats(); st.Bytes < 10<<20 || st.LogBytes > 4*minCompactBytes {
		t.Errorf("of %d bytes of definitions, %d are left", st.Bytes, st.LogBytes)
	}
	disk = disk.LosePower()
	k.end()
	k = open(t, disk)
	a, _ := k.Users().Lookup(auth.Guest)
	value, _ := k.GlobalParameter("first")
	if got := fmt.Sprint(a.Tags, string(value), k.in("v").v.Metadata().Description); got != "[monitoring]1d" {
		t.Errorf("got %s", got)
	}
	k.close()
}

// The front of the log goes to the disk in pieces: what is left of it begins anywhere, with a binding of a queue that is not
// known any more, say.
func TestFrontIsCutOff(t *testing.T) {
	disk := crashfs.New(1)
	k := open(t, disk)
	arg := table("x", strings.Repeat("x", 50_000))
	for n := range 100 {
		name := strconv.Itoa(n)
		_, err := k.v.DeclareQueue(vhost.QueueDeclare{Name: name, Durable: true, Args: arg})
		must(t, err)
		for key := range 5 {
			must(t, k.v.Bind(vhost.Binding{Source: "amq.topic", Destination: name, Key: strconv.Itoa(key), Args: arg}, 0))
		}
		if n > 2 {
			_, err = k.v.DeleteQueue(strconv.Itoa(n-2), 0, false, false)
			must(t, err)
		}
		if n%7 == 0 {
			k.close()
			k = open(t, disk)
		}
	}
	if n := len(k.v.Bindings()); n != 5*len(k.v.Queues()) {
		t.Errorf("%d queues have %d bindings", len(k.v.Queues()), n)
	}
	k.close()
}

// syncedFS calls a function before each sync of a log, by whichever goroutine.
type syncedFS struct {
	vfs.FS
	mu     sync.Mutex // guards before, and what it does
	before func()
}

// call sets the function; nil = none.
func (s *syncedFS) call(before func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = before
}

func (s *syncedFS) beforeSync() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.before != nil {
		s.before()
	}
}

type syncedFile struct {
	vfs.File
	fs *syncedFS
}

func (s *syncedFS) Open(name string, mode vfs.Mode) (vfs.File, error) {
	f, err := s.FS.Open(name, mode)
	if err != nil || !strings.HasPrefix(name, "0000") {
		return f, err
	}
	return syncedFile{f, s}, nil
}

func (f syncedFile) Sync() error {
	f.fs.beforeSync()
	return f.File.Sync()
}

// Whenever the power goes while definitions are written anew in parts, what there was is there.
func TestPowerGoesWhileRewriting(t *testing.T) {
	losses := 0
	for lost := true; lost; losses++ {
		lost = powerGoesWhileRewriting(t, losses)
	}
	if losses < 4 {
		t.Errorf("the power went %d times", losses)
	}
}

// powerGoesWhileRewriting loses the power before the nth sync while definitions are rewritten, or, if there are fewer, after
// that. It reports which.
func powerGoesWhileRewriting(t *testing.T, nth int) (meanwhile bool) {
	t.Helper()
	disk := crashfs.New(uint64(nth))
	synced := &syncedFS{FS: disk}
	k := open(t, synced)
	k.furnish(t)
	want := fmt.Sprint(k.says(), len(k.v.Bindings()))
	var next *crashfs.FS
	synced.call(func() {
		if nth--; nth < 0 && next == nil {
			next = disk.LosePower()
		}
	})
	registry := k.Registry().writer()
	for _, rewrite := range []func(){k.v.CompactDefinitions, k.users.CompactDefinitions, k.globals.compactDefinitions} {
		k.shard(1).upTo.Store(k.shard(1).Extent())
		k.Registry().log.reclaim(k.Registry().log.owner(), registry.Extent())
		rewrite()
		_ = errors.Join(k.shard(1).Sync(), registry.Sync()) // they fail once the power is gone
	}
	synced.call(nil)
	if meanwhile = next != nil; !meanwhile {
		next = disk.LosePower()
	}
	k.end()

	reopened := func(bindings int) {
		t.Helper()
		k = open(t, next)
		if n := len(k.v.Bindings()); n != bindings {
			t.Errorf("there are %d bindings, want %d", n, bindings)
		}
	}
	reopened(400)
	if got := fmt.Sprint(k.says(), len(k.v.Bindings())); got != want {
		t.Errorf("there are %d bytes of things, want %d", len(got), len(want))
	}
	must(t, k.v.Bind(vhost.Binding{Source: "amq.fanout", Destination: "0"}, 0))
	k.close()
	reopened(401) // an unfinished rewrite lies in the middle of the log now
	k.shard(1).upTo.Store(k.shard(1).Extent())
	k.v.CompactDefinitions()
	k.close()
	reopened(401)
	k.close()
	return meanwhile
}

// furnish makes so much of everything that it does not go into one part.
func (k *kept) furnish(t *testing.T) {
	t.Helper()
	for n := range 400 {
		name := strconv.Itoa(n)
		k.declare(name)
		must(t, k.v.Bind(vhost.Binding{Source: "amq.topic", Destination: name, Key: strings.Repeat("k", 100)}, 0))
	}
	for n := range 200 {
		_, err := k.Users().Set(auth.Account{Name: strconv.Itoa(n), Tags: []string{strings.Repeat("x", 200)}})
		must(t, err)
		_, err = k.SetGlobalParameter(strconv.Itoa(n), []byte(`"`+strings.Repeat("x", 300)+`"`))
		must(t, err)
	}
	must(t, k.shard(1).Sync())
}

// A part of a rewrite that is alone in the log makes no vhost: the first part of one that was being added when the power went
// made one, without its metadata, and so did the last part of the deletion when the log had been given back up to it.
func TestPartOfARewriteAlone(t *testing.T) {
	for name, write := range map[string]func(k *definitionLog){
		"added, first": func(k *definitionLog) {
			k.writePart(part{first: true, definitions: k.home().store.newVHost(k.home(), "v", vhost.Metadata{}, 0, k).Definitions()}, nil)
		},
		"deleted, last": func(k *definitionLog) {
			k.writePart(part{last: true, definitions: amqp.AppendTable(nil, numbersDefinition("v", 7))}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			disk := crashfs.New(1)
			k := open(t, disk)
			write(newDefinitionLog(k.shard(1), scope{scopeVHost, "v"}))
			must(t, k.shard(1).Sync())
			disk = disk.LosePower()
			k.end()
			for range 2 {
				k = open(t, disk)
				if _, exists := k.VHost("v"); exists {
					t.Error("there is a vhost")
				}
				k.close()
			}
			k = open(t, disk)
			created, err := k.AddVHost("v", vhost.Metadata{Description: "d"})
			must(t, err)
			k.close()
			k = open(t, disk)
			if got := k.in("v").v.Metadata().Description; !created || got != "d" {
				t.Errorf("created: %v, with description %q", created, got)
			}
			k.close()
		})
	}
}
