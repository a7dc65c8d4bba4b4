package quorum

import (
	"maps"
	"slices"
	"sync"

	"github.com/curfewmq/curfew/core/wlog"
)

// owners is the table of the shards' owners. It passes each change to its listeners.
type owners struct {
	mu    sync.Mutex // guards the rest
	table map[uint32]wlog.Ownership
	heard map[*listener]struct{}
}

// listener is one subscription to changes of owners.
type listener struct {
	fn      func(wlog.Ownership)
	changed map[uint32]struct{} // shards whose latest owner fn has not received; guarded by mu of owners
	wake    chan struct{}
	stop    chan struct{}
}

// set stores an ownership. It does not block.
func (o *owners) set(now wlog.Ownership) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if was, known := o.table[now.Shard]; known && was == now {
		return
	}
	o.table[now.Shard] = now
	for l := range o.heard {
		l.changed[now.Shard] = struct{}{}
		l.rouse()
	}
}

func (l *listener) rouse() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (o *owners) of(shard uint32) wlog.Ownership {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.table[shard]
	now.Shard = shard
	return now
}

// listen calls fn on a goroutine of its own, until stop is called.
func (o *owners) listen(fn func(wlog.Ownership)) (stop func()) {
	l := &listener{fn: fn, changed: map[uint32]struct{}{}, wake: make(chan struct{}, 1), stop: make(chan struct{})}
	o.mu.Lock()
	for shard := range o.table {
		l.changed[shard] = struct{}{}
	}
	o.heard[l] = struct{}{}
	o.mu.Unlock()
	l.rouse()
	go o.tell(l)
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.end(l)
	}
}

// end ends a listener, unless it has ended. The caller holds mu.
func (o *owners) end(l *listener) {
	if _, hears := o.heard[l]; hears {
		delete(o.heard, l)
		close(l.stop)
	}
}

// tell is the goroutine of a listener.
func (o *owners) tell(l *listener) {
	for {
		select {
		case <-l.wake:
		case <-l.stop:
			return
		}
		for now, more := o.next(l); more; now, more = o.next(l) {
			l.fn(now)
		}
	}
}

// next returns an ownership that a listener has not received.
func (o *owners) next(l *listener) (now wlog.Ownership, more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, hears := o.heard[l]; !hears || len(l.changed) == 0 {
		return now, false
	}
	shard := slices.Min(slices.Collect(maps.Keys(l.changed)))
	delete(l.changed, shard)
	return o.table[shard], true
}

// close ends all listeners.
func (o *owners) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for l := range o.heard {
		o.end(l)
	}
}

// Owners implements [wlog.Cluster]. A call of fn that has begun may end after stop has returned. fn may call stop.
func (e *Engine) Owners(fn func(wlog.Ownership)) (stop func()) { return e.owners.listen(fn) }
