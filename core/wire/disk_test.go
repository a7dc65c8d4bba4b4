package wire

import (
	"errors"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/curfewmq/curfew/core/amqp"
	"github.com/curfewmq/curfew/core/chain"
	"github.com/curfewmq/curfew/core/journal"
	"github.com/curfewmq/curfew/core/queue"
	"github.com/curfewmq/curfew/core/vhost"
)

// alarm is an alarm that a test raises and clears.
type alarm struct {
	mu   sync.Mutex // guards over
	over chan struct{}
	next chan struct{} // closed when it is raised; nil = no publisher has asked for it
}

func (a *alarm) raise() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = make(chan struct{})
	if a.next != nil {
		close(a.next)
		a.next = nil
	}
}

func (a *alarm) nextRaise() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.next == nil {
		a.next = make(chan struct{})
	}
	return a.next
}

func (a *alarm) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.over)
	a.over = nil
}

func (a *alarm) get() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.over
}

// Publishers wait while the disk is full, and then for the other alarm that was raised in the meantime.
func TestPublisherWaitsForSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var disk alarm
		var used atomic.Int64
		s := newServer(t, func(o *Options) { o.MemoryLimit, o.DiskFull = 1000, disk.get })
		s.memory.used = used.Load
		c := dial(t, s).open(0).channel()
		c.declare("q")

		disk.raise()
		c.write(publication("q", []byte("x")))
		if m := expectMethod[*amqp.ConnectionBlocked](c); m.Reason != "low on disk" {
			t.Errorf("got reason %q", m.Reason)
		}
		go c.write(amqp.AppendMethod(nil, 1, &amqp.QueueDeclare{Queue: "q"}))
		used.Store(1001)
		disk.end()
		time.Sleep(time.Minute)
		if n := len(c.frames); n > 0 {
			t.Errorf("got %d frames under the second alarm", n)
		}
		used.Store(0)
		expectMethod[*amqp.ConnectionUnblocked](c)
		expectMethod[*amqp.QueueDeclareOK](c)
		c.close()
	})
}

// The memory limit can be changed while the broker runs, and the alarm follows at once. This used to need a restart.
func TestMemoryLimitIsChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var used atomic.Int64
		used.Store(500)
		s := newServer(t, func(o *Options) { o.MemoryLimit = 1000 })
		s.memory.used = used.Load
		raised := func(want bool) {
			t.Helper()
			time.Sleep(time.Second)
			if got := len(s.Alarms()) > 0; got != want {
				t.Fatalf("alarm: %t, want %t", got, want)
			}
		}
		c := dial(t, s).open(0).channel()
		c.declare("q")
		raised(false)
		s.SetMemoryLimit(400)
		raised(true)
		c.write(publication("q", []byte("x")))
		if m := expectMethod[*amqp.ConnectionBlocked](c); m.Reason != "low on memory" {
			t.Errorf("got reason %q", m.Reason)
		}
		s.SetMemoryLimit(2000)
		expectMethod[*amqp.ConnectionUnblocked](c)
		raised(false)
		used.Store(0)
		s.SetMemoryLimit(0)
		raised(true)
		s.SetMemoryLimit(-1)
		raised(false)
		used.Store(1 << 50)
		s.SetMemoryLimit(-7)
		raised(false)
		if n := s.MemoryLimit(); n != -1 {
			t.Errorf("the limit is %d", n)
		}
		c.close()
	})
}

// slowDisk is a log of definitions and a journal on a disk that falls behind, and then fails.
type slowDisk struct{ alarm }

func (d *slowDisk) NewStorage() *queue.Storage     { return &queue.Storage{Journal: d, ID: 1} }
func (*slowDisk) Write([]byte)                     {}
func (*slowDisk) NeedsCompaction() bool            { return false }
func (*slowDisk) Rewrite(iter.Seq[[]byte])         {}
func (*slowDisk) WaitDurable() error               { return nil }
func (*slowDisk) Extent() uint32                   { return 1 }
func (*slowDisk) Err() error                       { return nil }
func (*slowDisk) TryCommit([]byte) bool            { return true }
func (*slowDisk) Relocate([]byte, []journal.Delta) {}
func (d *slowDisk) CaughtUp() <-chan struct{}      { return d.get() }

func (d *slowDisk) Commit(_ []byte, _ []journal.Delta, c journal.Completer) {
	over := d.get()
	go func() {
		<-over
		c.Failed(errors.New("input/output error"))
	}()
}

// A publisher that is faster than the disk is not read from until the log has caught up. It gets no notice. If its messages cannot be
// stored, its channel is closed at once, even if the publisher sends nothing.
func TestPublisherWaitsForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var disk slowDisk
		s := newServer(t, func(o *Options) {
			noPlugins, err := chain.New(nil, chain.Options{})
			if err != nil {
				t.Fatal(err)
			}
			v := vhost.New(vhost.Config{Name: "/", Chain: noPlugins, Clock: o.Clock, Log: o.Session.Log, DefinitionLog: &disk})
			o.Session.VHosts = func(string) (*vhost.VHost, bool) { return v, true }
		})
		c := dial(t, s).open(0).channel()
		c.send(1, &amqp.ConfirmSelect{}, &amqp.QueueDeclare{Queue: "kept", Durable: true})
		expectMethod[*amqp.ConfirmSelectOK](c)
		expectMethod[*amqp.QueueDeclareOK](c)

		disk.raise()
		b := amqp.AppendMethod(nil, 1, &amqp.BasicPublish{RoutingKey: "kept"})
		b = amqp.AppendContentHeader(b, 1, 1, []byte{0x10, 0, 2})
		c.write(amqp.AppendBody(b, 1, []byte("x"), 131072))
		go c.write(amqp.AppendMethod(nil, 2, &amqp.ChannelOpen{}))
		time.Sleep(time.Minute)
		if n := len(c.frames); n > 0 {
			t.Errorf("got %d frames", n)
		}
		if b := s.Blocked(); b != (Blocked{Log: 1}) {
			t.Errorf("blocked are %+v, want the publisher", b)
		}
		disk.end()
		first, second := <-c.frames, <-c.frames
		if first.Channel == 2 { // in any order
			first, second = second, first
		}
		m, err := amqp.ParseMethod(first.Payload)
		if closed, ok := m.(*amqp.ChannelClose); err != nil || !ok || closed.ReplyCode != amqp.ReplyInternalError || second.Channel != 2 {
			t.Errorf("got %+v, %v and then %+v", m, err, second)
		}
		c.close()
	})
}

// fullDisk is a slow disk that does not fail.
type fullDisk struct{ slowDisk }

func (d *fullDisk) NewStorage() *queue.Storage { return &queue.Storage{Journal: d, ID: 1} }

func (*fullDisk) Commit(_ []byte, _ []journal.Delta, c journal.Completer) {
	if c != nil {
		c.Durable()
	}
}

// A publisher whose messages wait for space raises the alarm by that, after they were read. Its client was not told until it was read from
// again: not at all, as long as the disk was full. Later it was told up to half a second late.
func TestThePublisherThatFindsTheDiskFullIsTold(t *testing.T) {
	for _, reason := range []string{"low on disk", "low on memory"} {
		t.Run(reason, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testToldAtOnce(t, reason) }) })
	}
}

func testToldAtOnce(t *testing.T, reason string) {
	t.Helper()
	var log fullDisk
	var disk alarm
	var used atomic.Int64
	s := newServer(t, func(o *Options) {
		noPlugins, err := chain.New(nil, chain.Options{})
		if err != nil {
			t.Fatal(err)
		}
		v := vhost.New(vhost.Config{Name: "/", Chain: noPlugins, Clock: o.Clock, Log: o.Session.Log, DefinitionLog: &log})
		o.Session.VHosts = func(string) (*vhost.VHost, bool) { return v, true }
		o.MemoryLimit, o.DiskFull, o.DiskFills = 1000, disk.get, disk.nextRaise
	})
	s.memory.used = used.Load
	raise, end := disk.raise, disk.end
	if reason == "low on memory" {
		raise, end = func() { used.Store(1001); s.memory.check() }, func() { used.Store(0) }
	}
	c := dial(t, s).open(0).channel()
	c.send(1, &amqp.QueueDeclare{Queue: "kept", Durable: true})
	expectMethod[*amqp.QueueDeclareOK](c)

	log.raise()
	b := amqp.AppendMethod(nil, 1, &amqp.BasicPublish{RoutingKey: "kept"})
	b = amqp.AppendContentHeader(b, 1, 1, []byte{0x10, 0, 2})
	c.write(amqp.AppendBody(b, 1, []byte("x"), 131072))
	time.Sleep(time.Second + 100*time.Millisecond)
	raise()
	synctest.Wait()
	if len(c.frames) == 0 {
		t.Fatal("the publisher is not told at once")
	}
	if m := expectMethod[*amqp.ConnectionBlocked](c); m.Reason != reason {
		t.Errorf("got reason %q", m.Reason)
	}
	log.end()
	time.Sleep(time.Minute)
	if n := len(c.frames); n > 0 {
		t.Errorf("got %d frames under the alarm", n)
	}
	end()
	expectMethod[*amqp.ConnectionUnblocked](c)
	c.close()
}

// The list of alarms did not show memory that was filled other than by publishers on connections: only those triggered a check.
func TestMemoryAlarmWithoutPublishers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		used := int64(0)
		s.memory.used = func() int64 { return used }
		s.SetMemoryLimit(100)
		if got := s.Alarms(); got != nil {
			t.Errorf("got %v", got)
		}
		used = 101
		if got := s.Alarms(); len(got) != 1 || got[0] != memoryAlarm {
			t.Errorf("with too much: got %v", got)
		}
		cutOff(s)
		if got := s.Alarms(); got != nil {
			t.Errorf("after the end: got %v", got) // and no goroutine goes on
		}
	})
}
